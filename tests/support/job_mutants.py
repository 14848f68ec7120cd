"""Seeded mutants of approvals, continuations, jobs and tool calls. See mutants.py.

The cases that kill them are in tests/crash/test_approvals_mutants.py.
"""

from collections.abc import Callable
from typing import Any

from kernel import audit, clock
from kernel import kernel as composition
from kernel.approvals import continuations, decisions, requests
from kernel.errors import Conflict, NotFound
from kernel.jobs import agent, journal
from kernel.models import Approval, Continuation, Job, JobMarkers, ToolCall
from kernel.runtime.maintenance import PageReport
from kernel.state import Fence, database, rows
from kernel.states import CallState, JobState
from kernel.transactions import transaction

MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(function: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[function.__name__] = function
    return function


@mutant
def grant_used_before_the_rate_limit() -> None:
    """Use the grant first, look at pause and rate limit afterwards (against C12)."""
    real = journal.begin_in_tx

    def begin_in_tx(*, call_id: str, **how: Any) -> Any:
        row = ToolCall.objects.select_for_update().get(id=call_id)
        if row.approval_id and row.state == CallState.PROPOSED:
            try:
                requests.consume_in_tx(
                    approval_id=row.approval_id,
                    sha256=row.arguments_sha256,
                    tool_version=row.tool_version,
                )
            except Conflict:
                return real(call_id=call_id, **how)
        journal._used_grant = lambda *_: None
        return real(call_id=call_id, **how)

    journal.begin_in_tx = begin_in_tx


@mutant
def blind_save_of_the_job() -> None:
    """Save the whole row of a job as it was read, markers included (against C5)."""
    real = rows.move_held_in_tx

    def move_held_in_tx(fence: Fence, **values: Any) -> None:
        JobMarkers.objects.filter(id=fence.job_id).update(approval_continuation_keys=None)
        real(fence, **values)

    rows.move_held_in_tx = move_held_in_tx


@mutant
def lease_without_owner() -> None:
    """Whoever finds the job running may write for it (against D1)."""

    def lock_held_in_tx(fence: Fence) -> Job:
        row = rows.lock_in_tx(fence.job_id)
        if row.state != JobState.RUNNING:
            raise rows.lost_lease(fence)
        return row

    def move_held_in_tx(fence: Fence, **values: Any) -> None:
        held = Job.objects.filter(id=fence.job_id, state=JobState.RUNNING)
        if held.update(updated_at=clock.db_now(), **values) != 1:
            raise rows.lost_lease(fence)

    rows.lock_held_in_tx = lock_held_in_tx
    rows.move_held_in_tx = move_held_in_tx


@mutant
def decision_that_reads_and_then_writes() -> None:
    """Look whether it is open, then write: no lock, no compare-and-set, no unique row (C2, C3)."""

    def unlocked(approval_id: str, *, account_id: str = "") -> Approval:
        row = Approval.objects.filter(id=approval_id).first()
        if row is None or (account_id and row.account_id != account_id):
            raise NotFound(f"no approval {approval_id}")
        return row

    def recorded(row: Approval, order: decisions.Decision, *, now: Any) -> Approval:
        row.state = decisions.STATE_OF[order.decision]
        row.decision, row.decision_id, row.reason = order.decision, order.decision_id, order.reason
        row.decided_by_kind, row.decided_by_id = order.actor.kind, order.actor.id
        row.decided_at = row.updated_at = now
        row.save()
        Continuation.objects.update_or_create(
            approval_id=row.id,
            defaults={
                "job_id": row.job_id,
                "request_id": row.request_id,
                "arguments_sha256": row.arguments_sha256,
                "decision_id": order.decision_id,
                "decision": order.decision,
                "next_attempt_at": now,
                "created_at": now,
                "updated_at": now,
            },
        )
        audit.append_in_tx(
            actor=order.actor, action="approval.decided", kind="approval", object_id=row.id
        )
        return row

    decisions._locked_in_tx = unlocked
    decisions._recorded_in_tx = recorded


@mutant
def admission_that_ignores_its_marker() -> None:
    """Carry through again without looking whether this decision admitted before (against C5)."""
    real = rows.markers_in_tx

    class Unseen(list[str]):
        def __contains__(self, marker: object) -> bool:
            return False

    rows.markers_in_tx = lambda *args, **how: Unseen(real(*args, **how))
    assert database.rows is rows


@mutant
def continuation_after_the_decision() -> None:
    """Commit the decision first and promise to carry it through afterwards (against C2)."""
    real_insert, real_decide = decisions.insert_new_row_in_tx, decisions.decide
    promised: dict[str, Continuation] = {}

    def insert(row: Any) -> None:
        if isinstance(row, Continuation):
            promised[row.decision_id] = row
        else:
            real_insert(row)

    @transaction
    def _promise(*, row: Continuation) -> None:
        real_insert(row)

    def decide(*, order: decisions.Decision) -> decisions.Decided:
        decided = real_decide(order=order)
        if row := promised.pop(order.decision_id, None):
            _promise(row=row)
        return decided

    decisions.insert_new_row_in_tx, decisions.decide = insert, decide
    assert continuations.decide_surely is decisions.decide_surely


@mutant
def uncertain_call_is_sent_again() -> None:
    """After a crash, make the call again whose answer nobody saved (against D3)."""
    agent.is_plain_read = lambda *_: True


@mutant
def on_commit_is_the_only_trigger() -> None:
    """Carry a decision through right behind its commit, and never look again (against C7)."""
    composition.continuation_page = lambda **_: lambda **_: PageReport()
