"""Uncertain tool calls: an operator says what happened, and the job goes on (D3)."""

from collections.abc import Callable

from kernel import audit, clock, schema
from kernel.errors import Conflict, InvalidInput, LostRace, NotFound
from kernel.ids import check_text
from kernel.jobs.calls import (
    calls_left_dispatching,
    deadlines_of,
    is_lost,
    locked_in_tx,
    move_in_tx,
)
from kernel.models import ToolCall
from kernel.state import RuntimeStateStore
from kernel.states import CallState, JobState, Waiting
from kernel.transactions import reading, transaction

NOTE_CHARS_MAX = 4000
DONE, NOT_DONE = "done", "not_done"


def resolve_call(
    *, call_id: str, outcome: str, note: str, actor: audit.Actor, store: RuntimeStateStore
) -> ToolCall:
    """End an uncertain call by what an operator found: `done` or `not_done`, with a note (D3).

    Audited. When it was the last uncertain call of a job that waits for it, the job goes on, in the
    same transaction. InvalidInput (`outcome`, `note`), NotFound, Conflict `in_flight` while its run
    is alive, LostRace when it is not uncertain any more. Unavailable without migration 0068.
    """
    schema.require(schema.AGENT_JOBS)
    if outcome not in (DONE, NOT_DONE):
        raise InvalidInput("outcome must be done or not_done", field="outcome")
    note = check_text(note, field="note", chars_max=NOTE_CHARS_MAX)
    job_id = _uncertain_job(call_id=call_id, store=store)

    def act() -> None:
        _resolve_in_tx(call_id, outcome=outcome, note=note, actor=actor)

    def act_on_the_last() -> None:
        act()
        if calls_left_dispatching(job_id=job_id):
            raise _NotTheLast

    try:
        if store.resume(job_id=job_id, reasons=[Waiting.CALL_UNCERTAIN], also=act_on_the_last):
            return _call(call_id)
    except (_NotTheLast, NotFound):
        pass  # others are uncertain too, or it is an invocation's call: nothing is to be resumed
    _resolve(act=act)
    resume_resolved(store=store, job_id=job_id)
    return _call(call_id)


class _NotTheLast(Exception):
    """Undoes a resume: other calls of the job are uncertain."""


def resume_resolved(*, store: RuntimeStateStore, job_id: str) -> bool:
    """Let a job go on that waits for uncertain calls, when it has none any more (D3)."""

    def check() -> None:
        if calls_left_dispatching(job_id=job_id):
            raise _NotTheLast

    try:
        return store.resume(job_id=job_id, reasons=[Waiting.CALL_UNCERTAIN], also=check)
    except (_NotTheLast, NotFound):
        return False


@reading
def _call(call_id: str) -> ToolCall:
    call = ToolCall.objects.filter(id=call_id).first()
    if call is None:
        raise NotFound(f"no tool call {call_id}")
    return call


@transaction
def _resolve(*, act: Callable[[], None]) -> None:
    act()


def _uncertain_job(*, call_id: str, store: RuntimeStateStore) -> str:
    """The job of a call whose run is gone. NotFound, LostRace, Conflict `in_flight`."""
    call = _call(call_id)
    if call.state != CallState.DISPATCHING:
        raise LostRace(f"call {call_id} is {call.state} now", state=call.state)
    try:
        is_running = store.get(job_id=call.job_id).state == JobState.RUNNING
    except NotFound:  # a direct invocation: no lease says whether its process is alive
        deadline = deadlines_of([call.tool]).get(call.tool, 0)
        is_running = not is_lost(call, deadline_seconds=deadline, now=clock.db_now())
    if is_running:
        raise Conflict(
            "The call is on its way; its answer may still come.",
            code="in_flight",
            next_action="Look again in a minute.",
        )
    return call.job_id


def _resolve_in_tx(call_id: str, *, outcome: str, note: str, actor: audit.Actor) -> None:
    row = locked_in_tx(call_id)
    state = CallState.DONE if outcome == DONE else CallState.FAILED
    code = "" if outcome == DONE else "resolved_not_done"
    # The status that said nothing must not look like an answer to the model.
    move_in_tx(row, state, by="resolve_call", error_code=code, note=note, http_status=None)
    audit.append_in_tx(
        actor=actor,
        action="call.resolve",
        kind="call",
        object_id=call_id,
        before={"state": row.state, "error_code": row.error_code, "http_status": row.http_status},
        after={"state": state, "outcome": outcome, "job_id": row.job_id, "tool": row.tool},
        reason=note,
    )
