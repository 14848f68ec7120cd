"""Destinations and alert rules as the screens read them: few rows, capped, with their circuit."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kernel import clock
from kernel.models import AlertRule, DeliveryAttempt, Destination

SHOWN_MAX = 500


@dataclass(frozen=True, slots=True)
class DestinationRow:
    """One destination, its circuit now (second half of a status name) and its event prefixes."""

    row: Destination
    circuit: str
    events: list[str]


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One alert rule with the destination it tells, None when that is gone."""

    row: AlertRule
    destination: DestinationRow | None


def destination_rows() -> list[DestinationRow]:
    """All destinations by account and id, up to SHOWN_MAX. One query."""
    now = clock.now()
    rows = Destination.objects.order_by("account_id", "id")[:SHOWN_MAX]
    return [destination_row(row, now=now) for row in rows]


def destination_row(row: Destination, *, now: datetime) -> DestinationRow:
    """A destination as it stands at `now`."""
    return DestinationRow(row, circuit_of(row, now=now), events_of(row))


def circuit_of(row: Destination, *, now: datetime) -> str:
    """open (accepting), failing, closed, probe (its time is over, one message is tried) or off."""
    if not row.active:
        return "off"
    if row.closed_until_at is not None:
        return "closed" if row.closed_until_at > now else "probe"
    return "failing" if row.failures else "open"


def closed_among(destination_ids: Iterable[str]) -> set[str]:
    """Those of these destinations that take nothing now, or get one probe. One query."""
    rows = Destination.objects.filter(id__in=set(destination_ids), closed_until_at__isnull=False)
    return set(rows.values_list("id", flat=True))


def events_of(row: Destination) -> list[str]:
    """The event prefixes that it takes; [] when the stored text is not readable."""
    try:
        value = json.loads(row.events_text)
    except ValueError:
        return []
    return [str(one) for one in value] if isinstance(value, list) else []


def latest_attempts(notification_ids: Sequence[str], *, count: int) -> list[DeliveryAttempt]:
    """The latest attempts at these notifications, newest first. One query."""
    rows = DeliveryAttempt.objects.filter(notification_id__in=list(notification_ids))
    return list(rows.order_by("-ended_at", "-id")[:count])


def rules_of(destination_id: str) -> list[AlertRule]:
    """The rules that tell this destination. One query."""
    return list(AlertRule.objects.filter(destination_id=destination_id).order_by("id")[:SHOWN_MAX])


def rule_rows() -> list[RuleRow]:
    """All alert rules by id, up to SHOWN_MAX. Two queries."""
    now = clock.now()
    rules = list(AlertRule.objects.order_by("id")[:SHOWN_MAX])
    found = Destination.objects.in_bulk({rule.destination_id for rule in rules})
    return [_rule_row(rule, found.get(rule.destination_id), now=now) for rule in rules]


def rule_row(rule: AlertRule) -> RuleRow:
    """One rule with its destination. One query."""
    found = Destination.objects.filter(id=rule.destination_id).first()
    return _rule_row(rule, found, now=clock.now())


def _rule_row(rule: AlertRule, row: Destination | None, *, now: datetime) -> RuleRow:
    return RuleRow(rule, destination_row(row, now=now) if row else None)
