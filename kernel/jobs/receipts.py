"""What a direct invocation came to: one word, its journaled call, its question. Only reads (C9)."""

from dataclasses import dataclass

from kernel import clock
from kernel.errors import NotFound
from kernel.ids import check_id
from kernel.jobs.calls import deadlines_of, id_of, is_lost
from kernel.models import Approval, Invocation, ToolCall
from kernel.states import ApprovalState, CallState
from kernel.transactions import reading

WAITING, READY, RUNNING = "waiting", "ready", "running"
DONE, FAILED, REFUSED, UNCERTAIN = "done", "failed", "refused", "uncertain"


@dataclass(frozen=True, slots=True)
class Invoked:
    """One invocation as it is saved: what was asked, its journaled call, its latest question.

    `state` is one word for all three: waiting (for a person), ready (resume sends it), running,
    done, failed (not executed), refused (by a person, or too late), uncertain (an operator says).
    """

    invocation: Invocation
    call: ToolCall
    approval: Approval | None
    state: str


@reading
def receipt(*, account_id: str, invocation_id: str) -> Invoked:
    """The saved result, approval and journal state. Executes, consumes and changes nothing (C9).

    NotFound also for another account's invocation.
    """
    return invoked(invocation_of(account_id, invocation_id))


def invocation_of(account_id: str, invocation_id: str) -> Invocation:
    """The row of an account's invocation id. NotFound, InvalidId."""
    check_id(invocation_id, field="invocation_id")
    row = Invocation.objects.filter(account_id=account_id, invocation_id=invocation_id).first()
    if row is None:
        raise NotFound(
            f"no invocation {invocation_id} in this account",
            next_action="Check the invocation id; it is case-sensitive.",
        )
    return row


def call_of(row: Invocation) -> ToolCall:
    """Its one journaled call."""
    return ToolCall.objects.get(id=id_of(job_id=row.id, step=1, index=0))


def invoked(row: Invocation) -> Invoked:
    """The row with its call, its latest question and the one word for all."""
    call = call_of(row)
    approval = Approval.objects.filter(id=call.approval_id).first() if call.approval_id else None
    return Invoked(row, call, approval, _state(call, approval))


def _state(call: ToolCall, approval: Approval | None) -> str:
    if call.state == CallState.DONE:
        return DONE
    if call.state == CallState.FAILED:
        # A person refused it, or its grant was used too late; every other failure is its own.
        return REFUSED if call.error_code.startswith("approval_") else FAILED
    if call.state == CallState.DISPATCHING:
        deadline = deadlines_of([call.tool]).get(call.tool, 0)
        is_over = is_lost(call, deadline_seconds=deadline, now=clock.db_now())
        return UNCERTAIN if is_over else RUNNING
    if approval is None or approval.state == ApprovalState.CONSUMED:
        return READY
    if approval.state == ApprovalState.OPEN:
        return WAITING
    usable = approval.state == ApprovalState.APPROVED and approval.expires_at > clock.db_now()
    return READY if usable else REFUSED
