"""The journal of tool calls: `dispatching` is committed before bytes leave, then the answer (D3).

Each verb runs under the job's fence, through the state store's `guard`. The `..._in_tx` functions
are the same moves for calls without a job; they join their caller's transaction.
"""

import json
from dataclasses import dataclass
from datetime import timedelta

from kernel import audit, clock, sql
from kernel.approvals.arguments import Canonical
from kernel.approvals.requests import (
    cancel_in_tx,
    consume_in_tx,
    expire_grant_in_tx,
    give_back_in_tx,
    void_in_tx,
)
from kernel.conf import conf
from kernel.errors import Conflict, LostRace
from kernel.jobs.calls import locked_in_tx, move_in_tx
from kernel.jobs.conversation import audit_view
from kernel.jobs.proposals import APPROVAL, judge
from kernel.models import Route, Tool, ToolCall
from kernel.state import Fence, RuntimeStateStore
from kernel.state.pauses import pause_of_in_tx
from kernel.states import ApprovalState, CallState
from kernel.transactions import requires_transaction

WORKER = audit.Actor("system", "worker")
RATE_SECONDS = 60
# Why a call is not sent now.
PAUSED, RATE_LIMITED, ROUTE_STOPPED = "paused", "rate_limited", "route_inactive"
ASK, OPEN, REFUSED, EXPIRED = "ask", "open", "refused", "approval_expired"
FAILED, ENDED = "failed", "ended"


@dataclass(frozen=True, slots=True)
class Permit:
    """The right to send one call, once: the journal says `dispatching`, the grant is used."""

    call_id: str
    tool: Tool
    arguments_text: str
    idempotency_key: str
    tries: int = 0  # earlier dispatches of this call, all proven not sent or harmless


@dataclass(frozen=True, slots=True)
class Held:
    """The call is not sent now; nothing was used. `reason` is one of this module's words."""

    reason: str
    message: str = ""


# --- dispatching ------------------------------------------------------------------------------


def begin_call(
    *,
    store: RuntimeStateStore,
    fence: Fence,
    call_id: str,
    confirm: bool = False,
    route_id: str | None = None,
) -> Permit | Held:
    """proposed -> dispatching, if nothing speaks against it now; uses the grant (C5, C12, D3).

    `confirm`: the commit of this very claim was not acknowledged; what it wrote is its own. A call
    that may never be sent again is failed here (Held `failed`). `route_id` is the job's, for good;
    it is looked up where the caller does not know it. LostRace `lost_lease`.
    """
    name = store.get(job_id=fence.job_id).route_id if route_id is None else route_id

    def act() -> Permit | Held:
        return begin_in_tx(call_id=call_id, route_id=name, confirm=confirm)

    return store.guard(fence=fence, act=act)


@requires_transaction
def begin_in_tx(*, call_id: str, route_id: str = "", confirm: bool = False) -> Permit | Held:
    """The same without a fence; `route_id` '' = no route, as for direct invocations (C9)."""
    row = locked_in_tx(call_id)
    tool = next(iter(sql.rows(Tool, {"id": row.tool})), None)
    if row.state == CallState.DISPATCHING and confirm and tool is not None:
        return _permit(row, tool)
    if row.state != CallState.PROPOSED:
        return Held(ENDED, f"the call is {row.state}")
    pause = pause_of_in_tx(route_id=route_id)
    if pause is not None:
        return Held(PAUSED, f"{pause.scope} is paused: {pause.reason}")
    if route_id:
        route = next(iter(sql.rows(Route, {"id": route_id})), None)
        if route is None or not route.active:
            return Held(ROUTE_STOPPED, f"the route {route_id} is not in use any more")
        if row.tool not in json.loads(route.tools_text):
            tool = None
    judged = judge(tool=tool, given_text=row.arguments_text)
    if judged.error_code or tool is None or judged.canonical is None:
        fail_call_in_tx(row, code=judged.error_code, note=judged.message)
        return Held(FAILED, judged.message)
    if not row.approval_id and judged.action == APPROVAL:
        return Held(ASK)
    if _is_over_rate(tool):
        return Held(
            RATE_LIMITED, f"{tool.id} was called {tool.calls_per_minute_max} times a minute"
        )
    if row.approval_id and (held := _used_grant(row, tool, judged.canonical)):
        return held
    moved = sql.update_where_in_tx(
        ToolCall,
        {
            "state": CallState.DISPATCHING,
            "tool_version": tool.version,
            "arguments_text": judged.canonical.text,
            "arguments_sha256": judged.canonical.sha256,
            "error_code": "",  # of an earlier try that sent nothing
            "note": "",
            "updated_at": clock.db_now(),
        },
        "id = %s AND state = %s",
        [row.id, CallState.PROPOSED],
    )
    if moved != 1:
        raise LostRace(f"call {call_id} changed meanwhile")
    row.arguments_text = judged.canonical.text
    return _permit(row, tool)


def _permit(row: ToolCall, tool: Tool) -> Permit:
    return Permit(row.id, tool, row.arguments_text, row.idempotency_key, row.tries)


def _used_grant(row: ToolCall, tool: Tool, canonical: Canonical) -> Held | None:
    """Use the grant of a call, or say why it cannot be used; nothing is written then."""
    try:
        consume_in_tx(
            approval_id=row.approval_id, sha256=canonical.sha256, tool_version=tool.version
        )
    except Conflict as error:
        if error.error_code == "expired":
            return Held(EXPIRED, "The approval was not used before it expired; nothing was sent.")
        if error.error_code == "changed":
            return Held(ASK, "The tool was changed after the approval.")
        state = str(error.details.get("state", ""))
        if state == ApprovalState.OPEN:
            return Held(OPEN)
        return Held(REFUSED, f"The approval of {row.tool} is {state}; nothing was sent.")
    return None


def _is_over_rate(tool: Tool) -> bool:
    """Whether the tool was called often enough in the last minute; calls count until then."""
    if tool.calls_per_minute_max is None:
        return False
    # Two workers must not count at the same time: both would find room.
    Tool.objects.select_for_update().get(id=tool.id)
    since = clock.db_now() - timedelta(seconds=RATE_SECONDS)
    most = tool.calls_per_minute_max
    sent = sum(
        ToolCall.objects.filter(state=state, updated_at__gte=since, tool=tool.id)[:most].count()
        for state in (CallState.DISPATCHING, CallState.DONE)
    )
    return sent >= most


# --- what became of it ------------------------------------------------------------------------


def finish_call(
    *,
    store: RuntimeStateStore,
    fence: Fence,
    call_id: str,
    http_status: int,
    response_text: str,
    response_bytes: int,
) -> None:
    """dispatching -> done with what the tool answered (D3). LostRace.

    After a lost acknowledgement the same call is fine. `response_text` is the model's view,
    `response_bytes` the true size of the body (E3).
    """
    store.guard(
        fence=fence,
        act=lambda: finish_in_tx(
            call_id=call_id,
            http_status=http_status,
            response_text=response_text,
            response_bytes=response_bytes,
        ),
    )


@requires_transaction
def finish_in_tx(
    *,
    call_id: str,
    http_status: int,
    response_text: str,
    response_bytes: int,
    actor: audit.Actor = WORKER,
) -> None:
    """The same without a fence."""
    row = locked_in_tx(call_id)
    if (row.state, row.http_status) == (CallState.DONE, http_status):
        return
    row.http_status, row.response_text, row.response_bytes = (
        http_status,
        response_text,
        response_bytes,
    )
    at = move_in_tx(
        row,
        CallState.DONE,
        by="finish_call",
        http_status=http_status,
        response_text=response_text,
        response_bytes=response_bytes,
        error_code="",
        note="",
    )
    view = audit_view(row)
    audit.append_in_tx(
        actor=actor,
        action="call.done",
        kind="call",
        object_id=row.id,
        after={
            "state": CallState.DONE,
            "tool": row.tool,
            "tool_version": row.tool_version,
            "arguments_sha256": row.arguments_sha256,
            "http_status": http_status,
            "body": view.text,
            "body_bytes": view.true_bytes,
            "body_was_cut": view.cut,
        },
        at=at,
    )


def give_back_call(
    *,
    store: RuntimeStateStore,
    fence: Fence,
    call_id: str,
    code: str,
    message: str,
    give_up: bool = False,
) -> bool:
    """dispatching -> proposed: proven not sent, or a read that may be repeated; the grant is back.

    True when it is to be tried again. After `tool_tries_max` dispatches, or with `give_up`, the
    call is failed and its grant cancelled (C12). LostRace.
    """
    return store.guard(
        fence=fence,
        act=lambda: give_back_call_in_tx(
            call_id=call_id, code=code, message=message, give_up=give_up
        ),
    )


@requires_transaction
def give_back_call_in_tx(*, call_id: str, code: str, message: str, give_up: bool = False) -> bool:
    """The same without a fence."""
    row = locked_in_tx(call_id)
    if row.state == CallState.DISPATCHING:
        row.tries += 1
        move_in_tx(
            row,
            CallState.PROPOSED,
            by="give_back_call",
            tries=row.tries,
            error_code=code,
            note=message,
        )
        if row.approval_id:
            give_back_in_tx(approval_id=row.approval_id)
        row.state = CallState.PROPOSED
        if give_up or row.tries >= conf.tool_tries_max:
            fail_call_in_tx(row, code=code if give_up else "tool_unreachable", note=message)
            return False
    return row.state == CallState.PROPOSED


def note_uncertain_in_tx(
    *, call_id: str, code: str, message: str, http_status: int | None, response_text: str = ""
) -> None:
    """Keep what is known of a call whose effect is not: for the operator who resolves it (D3)."""
    ToolCall.objects.filter(id=call_id, state=CallState.DISPATCHING).update(
        error_code=code,
        note=message,
        http_status=http_status,
        response_text=response_text,
        updated_at=clock.db_now(),
    )


@requires_transaction
def fail_call_in_tx(row: ToolCall, *, code: str, note: str) -> None:
    """proposed -> failed, its unused grant cancelled; the model sees the note. LostRace."""
    move_in_tx(row, CallState.FAILED, by="fail_call", error_code=code, note=note)
    if row.approval_id:
        cancel_in_tx(approval_id=row.approval_id, actor=WORKER, reason=note or code)


@requires_transaction
def end_calls_in_tx(
    *, job_id: str, actor: audit.Actor, code: str, reason: str, late_approval_id: str = ""
) -> None:
    """A job ends: its open questions and unused grants are void, its proposed calls fail (C8).

    `late_approval_id` names the grant whose time was over: it expires, the others are cancelled.
    What is dispatching stays so: uncertain, for an operator.
    """
    if late_approval_id:
        expire_grant_in_tx(approval_id=late_approval_id)
    void_in_tx(job_id=job_id, actor=actor, reason=reason)
    now = clock.db_now()
    ToolCall.objects.filter(job_id=job_id, state=CallState.PROPOSED).update(
        state=CallState.FAILED, error_code=code, note=reason, finished_at=now, updated_at=now
    )
