"""The console's template language: `{% load console %}`. One tag per idea; see the style guide.

`values` holds the tags for single values, `parts` the tags for whole parts of a page, `rows` those
for the rows of long lists.
"""

from django import template

from console.templatetags import parts, rows, values

register = template.Library()
for library in (values.register, parts.register, rows.register):
    register.tags |= library.tags
    register.filters |= library.filters
