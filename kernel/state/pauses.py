"""Pauses: switches that stop new work and keep reads, for all jobs or for one route (D4)."""

from kernel import audit, clock, schema, sql
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.ids import check_text, is_id
from kernel.models import Pause, Route
from kernel.transactions import insert_new_in_tx, reading, requires_transaction, transaction

GLOBAL = "global"
ROUTE_PREFIX = "route:"
REASON_CHARS_MAX = 1000


def pause(*, scope: str, reason: str, actor: audit.Actor) -> Pause:
    """Pause `global` or `route:<id>`; audited (D4). What runs is stopped at its next tool call.

    InvalidInput (scope, reason), NotFound (no such route), Conflict `already_paused`, Unavailable
    without migration 0068.
    """
    schema.require(schema.AGENT_JOBS)
    _check_scope(scope)
    text = check_text(reason, field="reason", chars_max=REASON_CHARS_MAX)
    return _pause(scope=scope, reason=text, actor=actor)


@transaction
def _pause(*, scope: str, reason: str, actor: audit.Actor) -> Pause:
    audit.refuse_repeat_in_tx(actor=actor)
    if scope != GLOBAL and not Route.objects.filter(id=scope.removeprefix(ROUTE_PREFIX)).exists():
        raise NotFound(f"no route {scope.removeprefix(ROUTE_PREFIX)}")
    found = Pause.objects.filter(scope=scope).first()
    if found is not None:
        raise Conflict(
            f"{scope} is paused already, by {found.paused_by}.",
            code="already_paused",
            next_action="Nothing more to do.",
            paused_by=found.paused_by,
            paused_at=found.paused_at.isoformat(),
            reason=found.reason,
        )
    row = Pause(
        scope=scope,
        reason=reason,
        paused_by=f"{actor.kind}:{actor.id}"[:160],
        paused_at=clock.db_now(),
    )
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor,
        action="pause.set",
        kind="pause",
        object_id=scope,
        after={"paused": True},
        reason=reason,
    )
    return row


def unpause(*, scope: str, actor: audit.Actor, reason: str = "") -> None:
    """Let new work go on; audited (D4). Conflict `not_paused`, Unavailable without 0068."""
    schema.require(schema.AGENT_JOBS)
    _check_scope(scope)
    _unpause(scope=scope, actor=actor, reason=reason)


@transaction
def _unpause(*, scope: str, actor: audit.Actor, reason: str) -> None:
    audit.refuse_repeat_in_tx(actor=actor)
    deleted, _ = Pause.objects.filter(scope=scope).delete()
    if deleted != 1:
        raise Conflict(
            f"{scope} is not paused.", code="not_paused", next_action="Nothing more to do."
        )
    audit.append_in_tx(
        actor=actor,
        action="pause.lift",
        kind="pause",
        object_id=scope,
        before={"paused": True},
        after={"paused": False},
        reason=reason,
    )


@reading
def paused_scopes() -> dict[str, Pause]:
    """What is paused now, by scope. Unavailable without migration 0068."""
    schema.require(schema.AGENT_JOBS)
    return {row.scope: row for row in Pause.objects.order_by("scope")}


@requires_transaction
def pause_of_in_tx(*, route_id: str) -> Pause | None:
    """The pause that stops this route now: the global one first, then its own (D4)."""
    scopes = [GLOBAL, f"{ROUTE_PREFIX}{route_id}"]
    rows = {row.scope: row for row in sql.rows(Pause, {"scope": scopes})}
    return rows.get(GLOBAL) or rows.get(f"{ROUTE_PREFIX}{route_id}")


def _check_scope(scope: object) -> None:
    if scope == GLOBAL:
        return
    if not isinstance(scope, str) or not scope.startswith(ROUTE_PREFIX):
        raise InvalidInput("a scope is global or route:<id>", field="scope")
    if not is_id(scope.removeprefix(ROUTE_PREFIX)):
        raise InvalidInput("a scope is global or route:<id>", field="scope")
