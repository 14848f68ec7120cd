"""Direct invocations: an agent outside asks for one tool call and resumes it itself (C9).

An approval starts nothing here. The call is journaled like every other; only nobody owns a lease:
what was dispatched and has no answer in time is uncertain, and stays so until an operator says.
"""

import asyncio
import logging

from django.db import DatabaseError, InterfaceError
from django.db.models import F

from kernel import audit, clock, schema
from kernel.approvals.arguments import canonical, effect_sentence
from kernel.approvals.requests import (
    Question,
    cancel_in_tx,
    expire_grant_in_tx,
    open_in_tx,
    replace_in_tx,
)
from kernel.conf import conf
from kernel.errors import (
    CommitOutcomeUnknown,
    Conflict,
    Forbidden,
    InvalidInput,
    KernelError,
    LostRace,
    NotFound,
    Refused,
    Unavailable,
)
from kernel.http import Door
from kernel.ids import check_id, new_id
from kernel.jobs import journal
from kernel.jobs.answers import gives_back, save_answer
from kernel.jobs.calls import ANSWER_SECONDS, move_in_tx
from kernel.jobs.conversation import ModelCall
from kernel.jobs.journal import Held, Permit
from kernel.jobs.proposals import APPROVAL, FORBIDDEN, Judged, judge, propose_in_tx
from kernel.jobs.receipts import (
    READY,
    RUNNING,
    UNCERTAIN,
    WAITING,
    Invoked,
    call_of,
    invocation_of,
    invoked,
    receipt,
)
from kernel.jobs.routes import may_call_in_tx
from kernel.jobs.tools import ToolAnswer, call_tool
from kernel.models import Account, Approval, Invocation, Tool, ToolCall
from kernel.runtime import Background, Database
from kernel.states import ApprovalState, CallState
from kernel.transactions import insert_new_in_tx, requires_transaction, transaction

log = logging.getLogger(__name__)

KIND = "invocation"
AGENT = audit.Actor("system", "agent")
SAVE_FIRST_SECONDS, SAVE_WAIT_SECONDS_MAX = 0.1, 5.0


def invoke(
    *, account_id: str, invocation_id: str, tool_id: str, arguments_text: str, actor: audit.Actor
) -> tuple[Invoked, bool]:
    """Write down one call, once per (account, invocation_id), and ask a person where needed (C9).

    Nothing is sent. Returns the invocation and whether it is new. Conflict `invocation_conflict`
    for other content under the same id; NotFound (no such tool in use); Forbidden `account_closed`,
    `tool_forbidden` (by its policy); InvalidInput (arguments), InvalidId. Unavailable without 0068.
    """
    schema.require(schema.AGENT_JOBS)
    check_id(invocation_id, field="invocation_id")
    check_id(tool_id, field="tool")
    given_sha256 = canonical(arguments_text).sha256
    return _invoke(
        account_id=account_id,
        invocation_id=invocation_id,
        tool_id=tool_id,
        arguments_text=arguments_text,
        given_sha256=given_sha256,
        actor=actor,
    )


@transaction
def _invoke(
    *,
    account_id: str,
    invocation_id: str,
    tool_id: str,
    arguments_text: str,
    given_sha256: str,
    actor: audit.Actor,
) -> tuple[Invoked, bool]:
    known = Invocation.objects.filter(account_id=account_id, invocation_id=invocation_id).first()
    if known is not None:
        if (known.tool, known.given_sha256) != (tool_id, given_sha256):
            raise Conflict(
                f"The invocation id {invocation_id} belongs to another call.",
                code="invocation_conflict",
                next_action="Repeat the first call unchanged, or choose another invocation id.",
            )
        return invoked(known), False
    if not Account.objects.filter(id=account_id, active=True).exists():
        raise Forbidden(f"account {account_id} is closed", code="account_closed")
    _check_allowed_in_tx(account_id=account_id, tool_id=tool_id)
    tool, judged = _judged(tool_id, arguments_text)
    row = Invocation(
        id=new_id("inv"),
        account_id=account_id,
        invocation_id=invocation_id,
        tool=tool.id,
        tool_version=tool.version,
        given_sha256=given_sha256,
        requested_by=f"{actor.kind}:{actor.id}"[:160],
        created_at=clock.db_now(),
    )
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor,
        action="invocation.proposed",
        kind=KIND,
        object_id=row.id,
        after={
            "account_id": account_id,
            "invocation_id": invocation_id,
            "tool": tool.id,
            "tool_version": tool.version,
        },
    )
    wanted = ModelCall(invocation_id, tool.id, arguments_text)
    propose_in_tx(job_id=row.id, step=1, calls=[wanted], tool_ids=[tool.id])
    if judged.action == APPROVAL:
        _ask_in_tx(row, call_of(row), tool, judged)
    return invoked(row), True


async def resume(
    *,
    database: Database,
    background: Background,
    door: Door,
    account_id: str,
    invocation_id: str,
) -> tuple[Invoked, bool]:
    """Send the call if it may be sent now, at most once; else say what it came to (C9, D3).

    Returns the invocation and whether it had ended before. Detached from its caller: who leaves
    changes nothing. Conflict `approval_open` (also when a change of the tool asks anew),
    `in_flight` or `tool_uncertain`; Unavailable `paused` or `rate_limited`: nothing was used.
    """
    work = _resume(database, door, account_id=account_id, invocation_id=invocation_id)
    came_to = await asyncio.shield(background.start("job", work))
    if isinstance(came_to, Refused):
        raise came_to
    found, begun = came_to
    _refuse_unless_ended(found, begun)
    return found, isinstance(begun, Held)


async def _resume(
    database: Database, door: Door, *, account_id: str, invocation_id: str
) -> tuple[Invoked, Permit | Held] | Refused:
    """The detached part. A refusal is an answer for the caller, no failure of this work (J1)."""
    names = {"account_id": account_id, "invocation_id": invocation_id}
    until = clock.monotonic() + ANSWER_SECONDS  # begun later, its answer could come too late
    try:
        # Without the commit's acknowledgement nobody can tell whose dispatch it is: it is not sent.
        begun = await database.in_tx(begin, **names)
    except Refused as error:
        return error
    if isinstance(begun, Permit):
        answer = await call_tool(
            door=door,
            tool=begun.tool,
            arguments_text=begun.arguments_text,
            idempotency_key=begun.idempotency_key,
            until=until,
        )
        await _save_surely(database, permit=begun, answer=answer)
    return await database.in_tx(receipt, **names), begun


@transaction
def begin(*, account_id: str, invocation_id: str) -> Permit | Held:
    """proposed -> dispatching where nothing speaks against it now; uses the grant (C12).

    A stricter policy or another version of the tool asks anew. NotFound, also while the tool is on
    no route of the account any more.
    """
    row = invocation_of(account_id, invocation_id)
    call = call_of(row)
    if call.state == CallState.PROPOSED:
        _check_allowed_in_tx(account_id=account_id, tool_id=call.tool)
    begun = journal.begin_in_tx(call_id=call.id)
    if isinstance(begun, Permit):
        return begun
    if begun.reason == journal.ASK:
        return _asked_again_in_tx(row, begun)
    if begun.reason in (journal.EXPIRED, journal.REFUSED):
        _refuse_in_tx(call, begun)
    return begun


async def _save_surely(database: Database, *, permit: Permit, answer: ToolAnswer) -> None:
    """Try until it is saved or `result_save_seconds_max` is over; then the call is uncertain.

    A call is given back at most once: the next resume may have dispatched it anew since.
    """
    until = clock.monotonic() + conf.result_save_seconds_max
    wait = SAVE_FIRST_SECONDS
    while True:
        try:
            await database.in_tx(save_answer, permit=permit, answer=answer, actor=AGENT)
            return
        except LostRace:  # an operator has resolved it meanwhile; that stays
            log.warning("the answer of call %s came too late", permit.call_id)
            return
        except (DatabaseError, InterfaceError, CommitOutcomeUnknown) as error:
            is_unclear = isinstance(error, CommitOutcomeUnknown)
            if is_unclear and gives_back(permit, answer):
                return
            if clock.monotonic() + wait > until:
                raise
        await asyncio.sleep(wait)
        wait = min(wait * 2, SAVE_WAIT_SECONDS_MAX)


def _refuse_unless_ended(found: Invoked, begun: Permit | Held) -> None:
    names = {"invocation_id": found.invocation.invocation_id, "state": found.state}
    if found.state == WAITING and found.approval is not None:
        raise Conflict(
            "A person has not decided yet; nothing was sent.",
            code="approval_open",
            next_action="Resume again when the approval is decided.",
            approval_id=found.approval.id,
            **names,
        )
    if found.state == RUNNING:
        raise InFlight("The call was sent; its outcome is not known yet.", **names)
    if found.state == UNCERTAIN:
        raise Conflict(
            "The call was sent and its outcome is not known. It is never sent again.",
            code="tool_uncertain",
            next_action="An operator resolves it; read the receipt to see how it ends.",
            **names,
        )
    if found.state == READY:
        raise _not_now(found, begun, names)


def _not_now(found: Invoked, begun: Permit | Held, names: dict[str, str]) -> KernelError:
    code = begun.reason if isinstance(begun, Held) else found.call.error_code or "not_sent"
    text = begun.message if isinstance(begun, Held) else found.call.note
    return Unavailable(
        f"Nothing was sent: {text}",
        code=code,
        next_action="Resume the same invocation again later.",
        **names,
    )


class InFlight(Conflict):
    """409 that may be repeated: the outcome is still to come."""

    code, retryable = "in_flight", True
    next_action = "Wait, then read the receipt or resume again."


@requires_transaction
def _check_allowed_in_tx(*, account_id: str, tool_id: str) -> None:
    """Deny by default: an agent calls what jobs of its account could call, nothing else (C9)."""
    if not may_call_in_tx(account_id=account_id, tool_id=tool_id):
        raise NotFound(
            f"no tool {tool_id} on a route that this account may use",
            field="tool",
            next_action="Ask an operator to put the tool on a route of this account.",
        )


def _judged(tool_id: str, arguments_text: str) -> tuple[Tool, Judged]:
    tool = Tool.objects.filter(id=tool_id).first()
    judged = judge(tool=tool, given_text=arguments_text)
    if tool is None or judged.error_code in ("unknown_tool", "tool_inactive"):
        raise NotFound(f"no tool {tool_id} in use", field="tool")
    if judged.error_code == FORBIDDEN:
        raise Forbidden(
            judged.message or "The tool's policy forbids this call.",
            code="tool_forbidden",
            next_action="Ask an operator whether the tool's policy should allow it.",
        )
    if judged.error_code:
        raise InvalidInput(judged.message, field="arguments")
    return tool, judged


@requires_transaction
def _ask_in_tx(row: Invocation, call: ToolCall, tool: Tool, judged: Judged) -> None:
    (approval,) = open_in_tx(
        questions=[_question(call, tool, judged)],
        account_id=row.account_id,
        invocation_id=row.id,
        request_id=row.invocation_id,
        requested_by=row.requested_by,
    )
    _bind_in_tx(call, approval)


@requires_transaction
def _asked_again_in_tx(row: Invocation, held: Held) -> Held:
    """The tool or its policy changed since: a new question, or the end of asking (C1)."""
    call = call_of(row)
    tool, judged = _judged(call.tool, call.arguments_text)
    if not call.approval_id:
        _ask_in_tx(row, call, tool, judged)
        return Held(journal.OPEN, held.message)
    # Counted here, before anything is written: a refusal must not undo the failure of the call.
    if call.asks >= conf.approval_asks_count_max:
        why = f"It was asked about {call.asks} times and the tool keeps changing."
        move_in_tx(
            call, CallState.FAILED, by="fail_call", error_code="too_many_questions", note=why
        )
        cancel_in_tx(approval_id=call.approval_id, actor=AGENT, reason=why)
        return Held(journal.FAILED, why)
    question = _question(call, tool, judged)
    approval = replace_in_tx(
        approval_id=call.approval_id, question=question, reason=held.message or "the tool changed"
    )
    _bind_in_tx(call, approval)
    return Held(journal.OPEN, held.message)


def _question(call: ToolCall, tool: Tool, judged: Judged) -> Question:
    assert judged.canonical is not None, "it was judged without an error"
    return Question(
        tool=tool.id,
        tool_version=tool.version,
        canonical=judged.canonical,
        risk=judged.risk,
        effect=effect_sentence(tool.effect_text, judged.canonical.text),
        tool_call_id=call.id,
        expires_in_seconds=conf.invocation_approval_seconds,
    )


@requires_transaction
def _bind_in_tx(call: ToolCall, approval: Approval) -> None:
    moved = ToolCall.objects.filter(id=call.id, state=CallState.PROPOSED).update(
        approval_id=approval.id,
        arguments_text=approval.arguments_text,
        arguments_sha256=approval.arguments_sha256,
        tool_version=approval.tool_version,
        asks=F("asks") + 1,
        updated_at=clock.db_now(),
    )
    assert moved == 1, "only a proposed call is asked about"


@requires_transaction
def _refuse_in_tx(call: ToolCall, held: Held) -> None:
    """A person refused it, or it is too late: the call ends, nothing was sent (C11)."""
    approval = Approval.objects.get(id=call.approval_id)
    if approval.state == ApprovalState.APPROVED:
        expire_grant_in_tx(approval_id=approval.id)
    code = journal.EXPIRED if held.reason == journal.EXPIRED else f"approval_{approval.state}"
    move_in_tx(call, CallState.FAILED, by="fail_call", error_code=code, note=held.message)
