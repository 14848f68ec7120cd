"""Where the object of an audit chain (`<kind>:<id>`) has its page, or the list that shows it."""

from django.urls import reverse

from kernel.ids import is_id

PAGES = {
    "account": "account",
    "service": "service",
    "request": "request",
    "approval": "approval",
    "job": "job",
    "call": "call",
    "tool": "tool",
    "route": "route",
    "dead_letter": "dead-letter",
    "notification": "notification",
    "destination": "destination",
    "alert_rule": "alert-rule",
    "operation": "operation",
}
LISTS = {
    "price": "prices",
    "token": "tokens",
    "signing_key": "accounts",
    "person": "people",
    "pass": "reconciliation",
    "pause": "jobs",
    "doctor": "health",
}


def page_of(subject: str) -> str:
    """The object's own page; '' when it has none."""
    kind, _colon, object_id = subject.partition(":")
    if kind in PAGES and is_id(object_id):
        return reverse(PAGES[kind], args=[object_id])
    return ""


def place_of(subject: str) -> str:
    """The object's own page, else the list that shows it; '' when there is neither."""
    kind = subject.partition(":")[0]
    return page_of(subject) or (reverse(LISTS[kind]) if kind in LISTS else "")
