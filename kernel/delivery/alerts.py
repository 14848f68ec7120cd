"""Alert rules: which events a person is told about, and how often at most (F1).

A rule looks at events of every account; each account has its own window. The first event in it
speaks at once, the others are counted, and the next alert says how many there were. The windows
move in the transaction that causes the event: see `kernel/outbox.py`.
"""

from typing import Any

from kernel import audit, clock, outbox, schema
from kernel.delivery.fields import check_event
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.ids import check_id, new_id
from kernel.models import AlertRule, AlertWindow, Destination
from kernel.transactions import insert_new_in_tx, reading, transaction

KIND = "alert_rule"
WATCHED = tuple(event for event in outbox.EVENTS if event in outbox.ALERTING)
COOLDOWN_SECONDS_MAX = 7 * 86_400
FIELDS = ("event_prefix", "destination_id", "cooldown_seconds", "active")


def create_rule(
    *,
    event_prefix: str,
    destination_id: str,
    actor: audit.Actor,
    cooldown_seconds: int = 300,
    rule_id: str = "",
) -> AlertRule:
    """Tell a destination about events that begin with `event_prefix`, audited (F1, L4).

    At most once per `cooldown_seconds` and account. InvalidInput, NotFound (destination), Conflict
    `rule_exists`. Unavailable without migration 0069.
    """
    schema.require(schema.DELIVERY)
    return _create(
        rule_id=check_id(rule_id or new_id("rul"), field="rule_id"),
        values={
            "event_prefix": check_event(event_prefix, field="event_prefix", among=WATCHED),
            "destination_id": destination_id,
            "cooldown_seconds": _checked_seconds(cooldown_seconds),
        },
        actor=actor,
    )


@transaction
def _create(*, rule_id: str, values: dict[str, Any], actor: audit.Actor) -> AlertRule:
    audit.refuse_repeat_in_tx(actor=actor)
    _check_destination(values["destination_id"])
    if AlertRule.objects.filter(id=rule_id).exists():
        raise Conflict(f"The alert rule {rule_id} exists.", code="rule_exists")
    now = clock.db_now()
    row = AlertRule(id=rule_id, created_at=now, updated_at=now, **values)
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor, action="alert_rule.create", kind=KIND, object_id=rule_id, after=values
    )
    return row


def change_rule(*, rule_id: str, actor: audit.Actor, reason: str = "", **fields: Any) -> AlertRule:
    """Change FIELDS of a rule, audited. Its windows stay. InvalidInput, NotFound."""
    schema.require(schema.DELIVERY)
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise InvalidInput(f"an alert rule has no field {unknown[0]}", field=unknown[0])
    if "event_prefix" in fields:
        check_event(fields["event_prefix"], field="event_prefix", among=WATCHED)
    if "cooldown_seconds" in fields:
        _checked_seconds(fields["cooldown_seconds"])
    if "active" in fields and type(fields["active"]) is not bool:
        raise InvalidInput("active is true or false", field="active")
    return _change(rule_id=rule_id, actor=actor, reason=reason, values=dict(fields))


@transaction
def _change(*, rule_id: str, actor: audit.Actor, reason: str, values: dict[str, Any]) -> AlertRule:
    audit.refuse_repeat_in_tx(actor=actor)
    row = AlertRule.objects.select_for_update().filter(id=rule_id).first()
    if row is None:
        raise NotFound(f"no alert rule {rule_id}")
    if "destination_id" in values:
        _check_destination(values["destination_id"])
    before = {name: getattr(row, name) for name in FIELDS}
    AlertRule.objects.filter(id=rule_id).update(updated_at=clock.db_now(), **values)
    audit.append_in_tx(
        actor=actor,
        action="alert_rule.change",
        kind=KIND,
        object_id=rule_id,
        before=before,
        after={**before, **values},
        reason=reason,
    )
    return AlertRule.objects.get(id=rule_id)


@reading
def get_rule(*, rule_id: str) -> AlertRule:
    """One rule. NotFound."""
    row = AlertRule.objects.filter(id=rule_id).first()
    if row is None:
        raise NotFound(f"no alert rule {rule_id}")
    return row


@reading
def list_rules() -> list[AlertRule]:
    """Every rule, by id. At most 500."""
    return list(AlertRule.objects.order_by("id")[:500])


@reading
def windows_of(*, rule_id: str) -> list[AlertWindow]:
    """When a rule last spoke about each account, and what it kept back since. The latest 100."""
    return list(AlertWindow.objects.filter(rule_id=rule_id).order_by("-fired_at", "-id")[:100])


def _check_destination(destination_id: str) -> None:
    if not Destination.objects.filter(id=destination_id).exists():
        raise NotFound(
            f"no destination {destination_id}",
            field="destination_id",
            next_action="Add it first: manage.py destination add --help",
        )


def _checked_seconds(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= COOLDOWN_SECONDS_MAX:
        raise InvalidInput(
            f"cooldown_seconds is a number from 1 to {COOLDOWN_SECONDS_MAX}",
            field="cooldown_seconds",
        )
    return value
