"""Form fields of the console: amounts as exact decimals, ids in the one alphabet, notes."""

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kernel.errors import InvalidId
from kernel.ids import check_id
from kernel.money import format_multiplier, nano_to_usd, parse_multiplier, usd_to_nano

NOTE_CHARS_MAX = 2000
# Commas between thousands are left out; "0,05" is no amount, least of all five dollars.
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")


class ConsoleForm(forms.Form):
    """A form whose widgets carry our classes; rendered by `{% field form.name %}`."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for bound in self:
            widget = bound.field.widget
            kind = "select" if isinstance(widget, forms.Select) else "input"
            if isinstance(widget, forms.CheckboxInput):
                kind = "check"
            elif isinstance(widget, forms.RadioSelect):
                continue
            widget.attrs.setdefault("class", kind)


class UsdField(forms.CharField):
    """An exact amount in USD; cleans to nano-USD, None when empty."""

    def __init__(self, *, allow_negative: bool = False, **kwargs: Any):
        self.allow_negative = allow_negative
        super().__init__(max_length=40, **kwargs)
        self.widget.attrs |= {"inputmode": "decimal", "autocomplete": "off", "class": "input mono"}

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            plain = text.replace("$", "", 1)
            nano = usd_to_nano(plain.replace(",", "") if THOUSANDS.fullmatch(plain) else plain)
        except ValueError:
            raise ValidationError(
                _("An amount in USD with at most 9 decimals, for example 12.50.")
            ) from None
        if nano < 0 and not self.allow_negative:
            raise ValidationError(_("The amount must not be negative."))
        return nano

    def prepare_value(self, value: Any) -> Any:
        return nano_to_usd(value) if isinstance(value, int) else value


class MultiplierField(forms.CharField):
    """The account's multiplier, '1.25'; cleans to millionths."""

    def __init__(self, **kwargs: Any):
        super().__init__(max_length=20, **kwargs)
        self.widget.attrs |= {"inputmode": "decimal", "autocomplete": "off", "class": "input mono"}

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        try:
            return parse_multiplier(text)
        except ValueError:
            raise ValidationError(_("A number from 0 to 1000 with at most 6 decimals.")) from None

    def prepare_value(self, value: Any) -> Any:
        return format_multiplier(value) if isinstance(value, int) else value


class IdTextField(forms.CharField):
    """An id in the allowed alphabet (A1)."""

    def __init__(self, **kwargs: Any):
        super().__init__(max_length=128, **kwargs)
        self.widget.attrs |= {"autocomplete": "off", "spellcheck": "false", "class": "input mono"}

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text and not self.required:
            return ""
        try:
            return check_id(text, field="id")
        except InvalidId:
            raise ValidationError(_("1 to 128 of A-Z a-z 0-9 . _ : -")) from None


class NoteField(forms.CharField):
    """Why somebody did something. Kept for good in the audit trail."""

    def __init__(self, **kwargs: Any):
        kwargs.setdefault("label", gettext_lazy("Note"))
        kwargs.setdefault("help_text", gettext_lazy("Kept with your name in the audit trail."))
        super().__init__(
            max_length=NOTE_CHARS_MAX,
            widget=forms.Textarea(attrs={"rows": 3, "class": "input"}),
            **kwargs,
        )
        self.widget.attrs["data-keep"] = ""  # the script keeps it over a lost sign-in
