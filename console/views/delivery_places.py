"""Where the "go to" box finds ids of delivery: notifications, dead letters, operations, set-up."""

from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _

from console.migrated import is_migrated
from kernel.models import AlertRule, DeadLetter, Destination, Notification, Operation
from kernel.schema import DELIVERY

ID_CHARS_MAX = 64


def delivery_place(text: str) -> dict[str, Any] | None:
    """The page of one of our own ids, by its prefix; None when nothing has it."""
    if not is_migrated(DELIVERY) or len(text) > ID_CHARS_MAX:
        return None
    looks: dict[str, tuple[Any, str, str]] = {
        "ntf_": (Notification, "notification", _("Notification")),
        "dlq_": (DeadLetter, "dead-letter", _("Dead letter")),
        "op_": (Operation, "operation", _("Operation")),
    }
    for prefix, (model, name, what) in looks.items():
        if text.startswith(prefix) and model.objects.filter(id=text).exists():
            return {"what": what, "name": text, "href": reverse(name, args=[text])}
    return None


def delivery_places(text: str) -> list[dict[str, Any]]:
    """Destinations and alert rules: people name them, so they may share a name with others."""
    if not is_migrated(DELIVERY):
        return []
    looks: tuple[tuple[Any, str, str], ...] = (
        (Destination, "destination", _("Destination")),
        (AlertRule, "alert-rule", _("Alert rule")),
    )
    return [
        {"what": what, "name": text, "href": reverse(name, args=[text])}
        for model, name, what in looks
        if model.objects.filter(id=text).exists()
    ]
