"""Correcting a settled charge: typed, shown as it would be, then posted (A11b)."""

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.access import needs
from console.acting import actor_of, refused
from console.forms import ConsoleForm, NoteField, UsdField
from console.responses import Screen, form_version
from kernel import usage
from kernel.errors import KernelError, NotFound
from kernel.ids import is_id

PAGE, PART = "console/requests/correct.html", "console/requests/_correct.html"


class CorrectionForm(ConsoleForm):
    """What is added to a charge, and why. `confirmed` is the amount a person saw the effect of."""

    amount_nano = UsdField(
        label=gettext_lazy("Correction in USD"),
        allow_negative=True,
        help_text=gettext_lazy("Added to what was paid. A minus takes away, for example -0.05."),
    )
    reason = NoteField(label=gettext_lazy("Why was the charge wrong?"))
    confirmed = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean_reason(self) -> str:
        """A few words, checked before the effect is shown."""
        reason: str = self.cleaned_data["reason"]
        if len(reason) < usage.CORRECTION_REASON_CHARS_MIN:
            raise forms.ValidationError(_("Say it in a few words."))
        return reason


@needs("operate")
def correct(request: HttpRequest, request_id: str) -> HttpResponse:
    """The first POST shows what would be, the second posts exactly that, once per form."""
    screen = Screen(request, PAGE, PART)
    form = CorrectionForm(request.POST or None)
    context = _context(request_id, form)
    if request.method != "POST":
        return screen.show(context)
    if not form.is_valid():
        return screen.invalid(context)
    data = form.cleaned_data
    if data["confirmed"] != str(data["amount_nano"]):
        return screen.show(context | _effect(context, form))
    back = reverse("request", args=[request_id])
    try:
        usage.post_correction(
            request_id=request_id,
            amount_nano=data["amount_nano"],
            seen_total_nano=form_version(request),
            reason=data["reason"],
            actor=actor_of(request),
        )
    except KernelError as error:
        context = _context(request_id, form)
        context |= _effect(context, form)
        return refused(
            request, screen, error, context, form=form, back=back, subject=f"request:{request_id}"
        )
    return screen.done(to=back, message=_("The correction is posted."))


def _context(request_id: str, form: CorrectionForm) -> dict[str, Any]:
    if not is_id(request_id):
        raise Http404
    try:
        row = usage.get_request_by_id(request_id=request_id)
    except NotFound:
        raise Http404 from None
    found = usage.explain_charge(request=row)
    return {"row": row, "found": found, "total_nano": found.total_nano, "form": form}


def _effect(context: dict[str, Any], form: CorrectionForm) -> dict[str, Any]:
    """What the charge would come to; nothing when the kernel would refuse it anyway."""
    total, amount = context["total_nano"], form.cleaned_data["amount_nano"]
    if total is None:
        return {}
    if amount == 0 or total + amount < 0:
        form.add_error("amount_nano", _("It must change the charge, and not below zero."))
        return {}
    return {"amount_nano": amount, "after_nano": total + amount}
