"""What one sent call came to, written down for whoever sent it: also when it comes late (D3, E2).

A call is answered by the dispatch that sent it, told by its number. Until another dispatch or an
operator has moved it, its answer counts, also when its job was cancelled meanwhile (compare A6 and
A16 for model requests).
"""

from collections.abc import Callable
from functools import partial

from kernel import audit
from kernel.errors import LostRace
from kernel.jobs import journal
from kernel.jobs.calls import locked_in_tx
from kernel.jobs.journal import Permit
from kernel.jobs.tools import ANSWERED, NOT_SENT, ToolAnswer
from kernel.states import CallState
from kernel.transactions import transaction


@transaction
def save_answer(
    *, permit: Permit, answer: ToolAnswer, actor: audit.Actor, give_up: bool = False
) -> None:
    """Write down what the call came to; what is not known stays `dispatching` (D3, E2).

    Proven not sent, or a tool without side effects: it may be made again and its grant is back;
    with `give_up` it is failed instead, and its grant cancelled. LostRace when the call is not the
    one that this permit sent any more: nothing is written.
    """
    row = locked_in_tx(permit.call_id)
    if row.tries != permit.tries or row.state not in (CallState.DISPATCHING, CallState.DONE):
        raise LostRace(f"call {row.id} is {row.state} now", state=row.state)
    if answer.outcome == ANSWERED and answer.http_status is not None:
        journal.finish_in_tx(
            call_id=permit.call_id,
            http_status=answer.http_status,
            response_text=answer.text,
            response_bytes=answer.body_bytes or 0,
            actor=actor,
        )
    elif gives_back(permit, answer):
        journal.give_back_call_in_tx(
            call_id=permit.call_id,
            code=answer.error_code,
            message=answer.error_text,
            give_up=give_up,
        )
    else:
        noted(permit, answer)()


def gives_back(permit: Permit, answer: ToolAnswer) -> bool:
    """Whether the call may be made again: nothing left, or making it again does no harm."""
    if answer.outcome == ANSWERED:
        return False
    return answer.outcome == NOT_SENT or not permit.tool.side_effect


def noted(permit: Permit, answer: ToolAnswer) -> Callable[[], None]:
    """Keeps what is known of a call whose effect is not, in the transaction of its caller."""
    return partial(
        journal.note_uncertain_in_tx,
        call_id=permit.call_id,
        code=answer.error_code,
        message=answer.error_text,
        http_status=answer.http_status,
        response_text=answer.text,
    )
