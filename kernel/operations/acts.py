"""What people do with an operation: apply, pause, resume, cancel; each audited (F9)."""

from typing import Any

from django.db.models import Count

from kernel import audit, clock, schema
from kernel.errors import Conflict, NotFound
from kernel.models import Operation, OperationItem
from kernel.operations.plan import KIND, REASON_CHARS_MAX
from kernel.states import OPERATION, OperationState
from kernel.transactions import reading, transaction


def apply(
    *, operation_id: str, actor: audit.Actor, seen_digest: str, reason: str = ""
) -> Operation:
    """planned -> running: the frozen set is worked off from now on (F9).

    `seen_digest` is that of the plan which was confirmed. NotFound; Conflict `changed` (another
    digest), `operation_state` (details: state).
    """
    schema.require(schema.DELIVERY)
    return _move(
        verb="apply",
        target=OperationState.RUNNING,
        operation_id=operation_id,
        actor=actor,
        reason=reason,
        seen_digest=seen_digest,
    )


def pause(*, operation_id: str, actor: audit.Actor, reason: str = "") -> Operation:
    """running -> paused, after the page that is being worked on. NotFound, Conflict."""
    schema.require(schema.DELIVERY)
    return _move(
        verb="pause",
        target=OperationState.PAUSED,
        operation_id=operation_id,
        actor=actor,
        reason=reason,
    )


def resume(*, operation_id: str, actor: audit.Actor, reason: str = "") -> Operation:
    """paused -> running. NotFound, Conflict."""
    schema.require(schema.DELIVERY)
    return _move(
        verb="resume",
        target=OperationState.RUNNING,
        operation_id=operation_id,
        actor=actor,
        reason=reason,
    )


def cancel(*, operation_id: str, actor: audit.Actor, reason: str = "") -> Operation:
    """Not ended -> cancelled: what is done stays done, the rest is not touched. NotFound, Conflict.

    A page that is being worked on at this moment is finished and counted.
    """
    schema.require(schema.DELIVERY)
    return _move(
        verb="cancel",
        target=OperationState.CANCELLED,
        operation_id=operation_id,
        actor=actor,
        reason=reason,
    )


@reading
def get_operation(*, operation_id: str) -> Operation:
    """One operation. NotFound; Unavailable without migration 0069."""
    schema.require(schema.DELIVERY)
    row = Operation.objects.filter(id=operation_id).first()
    if row is None:
        raise NotFound(f"no operation {operation_id}", operation_id=operation_id)
    return row


@reading
def list_operations(*, limit: int = 50) -> list[Operation]:
    """The newest operations. Unavailable without migration 0069."""
    schema.require(schema.DELIVERY)
    return list(Operation.objects.order_by("-created_at", "-id")[:limit])


@reading
def outcomes_of(*, operation_id: str) -> dict[tuple[str, str], int]:
    """How many items came to which (state, outcome); walks the items of one operation."""
    schema.require(schema.DELIVERY)
    rows = OperationItem.objects.filter(operation_id=operation_id)
    ends = rows.values_list("state", "outcome_text").annotate(count=Count("id"))
    return {(state, text): count for state, text, count in ends.order_by("state", "outcome_text")}


@transaction
def _move(
    *,
    verb: str,
    target: str,
    operation_id: str,
    actor: audit.Actor,
    reason: str,
    seen_digest: str | None = None,
) -> Operation:
    """The one move behind the four acts."""
    audit.refuse_repeat_in_tx(actor=actor)
    row = Operation.objects.select_for_update().filter(id=operation_id).first()
    if row is None:
        raise NotFound(f"no operation {operation_id}", operation_id=operation_id)
    if seen_digest is not None and seen_digest != row.digest:
        raise Conflict(
            "The plan that was confirmed is another one.",
            code="changed",
            next_action="Look at the plan again, then apply it.",
            digest=row.digest,
        )
    sources = OPERATION.moves_to(target, by=verb)
    if row.state not in sources:
        raise Conflict(
            f"The operation is {row.state}; it cannot be moved by {verb}.",
            code="operation_state",
            next_action="Read the operation again.",
            state=row.state,
        )
    now = clock.db_now()
    values: dict[str, Any] = {"state": target, "updated_at": now}
    if verb == "apply":
        values["started_at"] = now
    if target == OperationState.CANCELLED:
        values["finished_at"] = now
    Operation.objects.filter(id=row.id, state=row.state).update(**values)
    audit.append_in_tx(
        actor=actor,
        action=f"operation.{verb}",
        kind=KIND,
        object_id=row.id,
        before={"state": row.state},
        after={"state": target},
        reason=reason[:REASON_CHARS_MAX],
    )
    return Operation.objects.get(id=row.id)
