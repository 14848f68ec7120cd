"""What the model wants, judged and written down once; and the questions about it (C1, D4)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kernel import clock, sql
from kernel.approvals.arguments import Canonical, effect_sentence, final_arguments
from kernel.approvals.policy import APPROVAL, FORBIDDEN, decide_policy
from kernel.approvals.requests import Question, open_in_tx, replace_in_tx
from kernel.conf import conf
from kernel.errors import Conflict, InvalidInput
from kernel.http import view_utf8
from kernel.ids import is_id
from kernel.jobs.calls import calls_of_step, id_of, locked_in_tx
from kernel.jobs.conversation import ModelCall
from kernel.models import Approval, Route, Tool, ToolCall
from kernel.state import Fence, JobRecord, RuntimeStateStore
from kernel.states import CallState
from kernel.transactions import requires_transaction

NO_TOOL = "unknown"
DRIFT = "The tool or its policy was changed after this was asked."


class Again(Exception):
    """What was to be asked is not to be asked any more: nothing was written, look again."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What today's tool and policy say about arguments; `error_code` set = the call fails."""

    action: str = FORBIDDEN
    risk: str = ""
    canonical: Canonical | None = None
    error_code: str = ""
    message: str = ""


def judge(*, tool: Tool | None, given_text: str) -> Judged:
    """Final arguments, validated, and the policy's word about them (C1, D4). Reads no rows."""
    if tool is None:
        return Judged(error_code="unknown_tool", message="This job has no tool of that name.")
    if not tool.active:
        return Judged(error_code="tool_inactive", message="The tool is not in use any more.")
    try:
        canonical = final_arguments(schema_text=tool.parameters_text, given_text=given_text)
    except InvalidInput as error:
        return Judged(error_code="invalid_arguments", message=f"{error.field}: {error.message}")
    verdict = decide_policy(policy_text=tool.policy_text, arguments_text=canonical.text)
    if verdict.action == FORBIDDEN:
        return Judged(FORBIDDEN, verdict.risk, canonical, FORBIDDEN, verdict.reason)
    return Judged(verdict.action, verdict.risk, canonical)


def propose(
    *,
    store: RuntimeStateStore,
    fence: Fence,
    step: int,
    calls: Sequence[ModelCall],
    tool_ids: Sequence[str],
) -> list[ToolCall]:
    """Write down what the model wants in one step, once; returns it. LostRace `lost_lease`.

    A call of another tool, with arguments that do not fit, or forbidden by its policy is written as
    failed at once: the model sees why.
    """
    return store.guard(
        fence=fence,
        act=lambda: propose_in_tx(job_id=fence.job_id, step=step, calls=calls, tool_ids=tool_ids),
    )


@requires_transaction
def propose_in_tx(
    *, job_id: str, step: int, calls: Sequence[ModelCall], tool_ids: Sequence[str]
) -> list[ToolCall]:
    """The same for `job_id`, or an invocation's id in its place; a repeat changes nothing."""
    if found := calls_of_step(job_id=job_id, step=step):
        return found
    tools = {tool.id: tool for tool in sql.rows(Tool, {"id": tool_ids})}
    now = clock.db_now()
    new = [
        _row(call, tool=tools.get(call.name), call_id=call_id, job_id=job_id, step=step, now=now)
        for index, call in enumerate(calls)
        for call_id in [id_of(job_id=job_id, step=step, index=index)]
    ]
    if new:
        sql.insert_new_rows_in_tx(new)
    return new


def _row(
    call: ModelCall, *, tool: Tool | None, call_id: str, job_id: str, step: int, now: datetime
) -> ToolCall:
    judged = judge(tool=tool, given_text=call.arguments_text)
    text, sha256 = _arguments_of(judged, call.arguments_text)
    return ToolCall(
        id=call_id,
        job_id=job_id,
        step=step,
        call_id=call.call_id,
        tool=call.name if is_id(call.name) else NO_TOOL,
        tool_version=tool.version if tool else 0,
        arguments_text=text,
        arguments_sha256=sha256,
        idempotency_key=f"bz:{call_id}",
        state=CallState.FAILED if judged.error_code else CallState.PROPOSED,
        error_code=judged.error_code,
        note=judged.message,
        created_at=now,
        finished_at=now if judged.error_code else None,
        updated_at=now,
    )


def _arguments_of(judged: Judged, given_text: str) -> tuple[str, str]:
    if judged.canonical is not None:
        return judged.canonical.text, judged.canonical.sha256
    # Nobody will ever run this text; it is kept as far as a person needs to see it.
    given = given_text.encode("utf-8", "surrogatepass")
    shown = view_utf8(given_text, conf.audit_view_bytes_max).text
    return shown, hashlib.sha256(given).hexdigest()


@requires_transaction
def ask_in_tx(*, job: JobRecord, route: Route, call_ids: Sequence[str], requested_by: str) -> None:
    """Open the questions of a step about proposed calls, all or none (C1, C8).

    A call that was asked about before gets a new question that replaces the old one (drift). Again
    when one of them is not to be asked; Conflict `too_many_questions`.
    """
    rows, questions = [], []
    tool_ids = json.loads(route.tools_text)
    for call_id in call_ids:
        row = locked_in_tx(call_id)
        tool = Tool.objects.filter(id=row.tool).first() if row.tool in tool_ids else None
        judged = judge(tool=tool, given_text=row.arguments_text)
        is_asked = judged.action == APPROVAL or bool(row.approval_id)
        if row.state != CallState.PROPOSED or judged.error_code or not is_asked:
            raise Again
        assert tool is not None and judged.canonical is not None, "it has no error"
        question = Question(
            tool=tool.id,
            tool_version=tool.version,
            canonical=judged.canonical,
            risk=judged.risk,
            effect=effect_sentence(tool.effect_text, judged.canonical.text),
            tool_call_id=row.id,
            expires_in_seconds=route.approval_seconds,
        )
        if row.approval_id:
            _asked(row, question, _replaced(row.approval_id, question))
        else:
            rows.append(row)
            questions.append(question)
    opened = open_in_tx(
        questions=questions,
        account_id=job.account_id,
        job_id=job.id,
        request_id=job.request_id,
        requested_by=requested_by,
    )
    for row, question, approval in zip(rows, questions, opened, strict=True):
        _asked(row, question, approval)


def _replaced(approval_id: str, question: Question) -> Approval:
    try:
        return replace_in_tx(approval_id=approval_id, question=question, reason=DRIFT)
    except Conflict as error:
        if error.error_code == "not_replaceable":
            raise Again from error
        raise


def _asked(row: ToolCall, question: Question, approval: Approval) -> None:
    """The call is bound to its question: the text that is asked about is the one that would run."""
    ToolCall.objects.filter(id=row.id, state=CallState.PROPOSED).update(
        approval_id=approval.id,
        asks=row.asks + 1,
        tool_version=question.tool_version,
        arguments_text=question.canonical.text,
        arguments_sha256=question.canonical.sha256,
        updated_at=clock.db_now(),
    )
