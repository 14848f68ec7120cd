"""The console's template language: `{% load console %}`. One tag per idea; see the style guide.

`values` holds the tags for single values, `parts` the tags for whole parts of a page.
"""

from django import template

from console.templatetags import parts, values

register = template.Library()
for library in (values.register, parts.register):
    register.tags |= library.tags
    register.filters |= library.filters
