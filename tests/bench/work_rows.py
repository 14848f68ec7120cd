"""Approvals, their jobs, calls and continuations: one of each by the product's verbs, then copies.

The n-th copies belong together: job_copy000000007 waits for apr_copy000000007.
"""

from kernel.models import Approval, Continuation, Job, ToolCall
from kernel.states import Owed
from tests.bench import rows
from tests.support import lives, work_data

ACCOUNTS = 19
NUMBER = "LPAD(n, 9, '0')"
JOB_ID, APPROVAL_ID = f"CONCAT('job_copy', {NUMBER})", f"CONCAT('apr_copy', {NUMBER})"
CALL_ID = f"CONCAT('job_copy', {NUMBER}, '.1.0')"
ACCOUNT_ID = f"CONCAT('account-', n % {ACCOUNTS})"
TOMORROW = "UTC_TIMESTAMP(6) + INTERVAL 1 DAY"
# Of twenty approvals one is open, one denied, one expired, one cancelled, one granted and not used.
STATES = ("open", "denied", "expired", "cancelled", "approved")
DECIDED = "n % 20 NOT IN (0, 3)"


def desk() -> None:
    """What approvals need on a fresh schema: an account, a service, tools and routes."""
    lives.open_account(work_data.ACCOUNT, cap_nano=None)
    lives.add_service("gpt-main")
    work_data.tools_and_routes()


def waiting(*, count: int) -> str:
    """`count` jobs, each waiting for one open question. Returns the digest of their arguments."""
    asked = work_data.refund("pattern")
    pattern = Approval.objects.get(id=asked.approval_ids[0])
    rows.copy(
        model=ToolCall,
        key=f"{asked.job_id}.1.0",
        rows=count,
        columns={**_call_ids(), "approval_id": APPROVAL_ID},
    )
    rows.copy(model=Job, key=asked.job_id, rows=count, columns=_job_ids())
    rows.copy(
        model=Approval,
        key=pattern.id,
        rows=count,
        columns={**_approval_ids(), "expires_at": TOMORROW},
    )
    return pattern.arguments_sha256


def queued(*, count: int) -> None:
    """`count` jobs that are due."""
    job = work_data.submit("pattern")
    columns = {**_job_ids(), "due_at": rows.rising(rows=count)}
    rows.copy(model=Job, key=job.id, rows=count, columns=columns)


def grown(*, count: int) -> None:
    """`count` approvals as a desk has them after 90 days, most of them decided and carried out."""
    asked = work_data.refund("pattern")
    approval_id = asked.approval_ids[0]
    work_data.decide(approval_id, "approved", reason="Checked in the shop.")
    work_data.answer(work_data.send(asked.job_id))
    at = rows.rising(rows=count)
    later = f"{at} + INTERVAL 90 SECOND"
    state = _by_state(*STATES, otherwise="consumed")
    decision = _by_state("", "denied", "expired", "", "approved", otherwise="approved")
    account = {"account_id": ACCOUNT_ID}
    rows.copy(
        model=Approval,
        key=approval_id,
        rows=count,
        columns={
            **_approval_ids(),
            **account,
            "state": state,
            "decision": decision,
            "decision_id": f"CASE WHEN {DECIDED} THEN CONCAT('dec_copy', {NUMBER}) END",
            "decided_at": f"CASE WHEN {DECIDED} THEN {later} END",
            "consumed_at": f"CASE WHEN n % 20 > 4 THEN {later} END",
            "created_at": at,
            "expires_at": f"CASE WHEN n % 20 = 0 THEN {TOMORROW} ELSE {at} + INTERVAL 1 DAY END",
            "updated_at": later,
        },
    )
    rows.copy(
        model=Continuation,
        key=approval_id,
        rows=count,
        where=DECIDED,
        columns={
            "approval_id": APPROVAL_ID,
            "job_id": JOB_ID,
            "decision_id": f"CONCAT('dec_copy', {NUMBER})",
            "decision": decision,
            "state": f"'{Owed.DONE}'",
            **dict.fromkeys(("created_at", "finished_at", "updated_at"), later),
        },
    )
    call_state = _by_state("proposed", "failed", "failed", "failed", "proposed", otherwise="done")
    rows.copy(
        model=ToolCall,
        key=f"{asked.job_id}.1.0",
        rows=count,
        columns={
            **_call_ids(),
            "approval_id": APPROVAL_ID,
            "state": call_state,
            **dict.fromkeys(("created_at", "finished_at", "updated_at"), later),
        },
    )
    job_state = _by_state("waiting", *["refused"] * 3, "queued", otherwise="done")
    times = dict.fromkeys(("due_at", "created_at", "finished_at", "updated_at"), later)
    columns = {**_job_ids(), **account, "state": job_state, **times}
    rows.copy(model=Job, key=asked.job_id, rows=count, columns=columns)


def _by_state(*values: str, otherwise: str) -> str:
    """SQL: the value of the copy's place among twenty."""
    cases = " ".join(f"WHEN {place} THEN '{value}'" for place, value in enumerate(values))
    return f"CASE n % 20 {cases} ELSE '{otherwise}' END"


def _job_ids() -> dict[str, str]:
    return {"id": JOB_ID, "request_id": "CONCAT('req-copy-', n)"}


def _call_ids() -> dict[str, str]:
    return {"id": CALL_ID, "job_id": JOB_ID, "idempotency_key": f"CONCAT('bz:', {CALL_ID})"}


def _approval_ids() -> dict[str, str]:
    request_id = "CONCAT('req-copy-', n)"
    return {
        "id": APPROVAL_ID,
        "job_id": JOB_ID,
        "tool_call_id": CALL_ID,
        "request_id": request_id,
    }
