"""Jobs and workers as the screens read them: depth, lease holders, the list, one job's steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, Max, Min, QuerySet
from django.db.models.functions import Length, Substr
from django.utils.translation import gettext_lazy as _

from console.acting import version_of
from console.filters import Choice, Chosen, Id
from console.paging import Cursor, IdPage, page_ids, rows_by_id
from console.queries.home import Backlog, backlog
from console.queries.walks import walk
from console.statuses import status_of
from kernel.conf import conf
from kernel.models import Approval, Job, Request, ToolCall
from kernel.states import JOB, JobState
from kernel.usage.lookup import Found, find_in_accounts

JOB_STATES = tuple(state.name for state in JOB.states)
FILTERS = (
    Choice("state", _("State"), [(name, status_of(f"job_{name}").word) for name in JOB_STATES]),
    Id("account", _("Account")),
    Id("request", _("Request id")),
)
BY_DUE, BY_ACCOUNT = "bz_job_due", "bz_job_account"
# Long texts stay in the table: a list never loads them.
HEAVY = ("input_text", "result_text", "error_text")
CALL_HEAVY = ("arguments_text", "response_text", "note")
DEPTH_STATES = (JobState.QUEUED, JobState.RUNNING, JobState.WAITING, JobState.PARKED)
HOLDERS_MAX = 50
HELD_ROWS_MAX = 1_000
CALLS_SHOWN_MAX = 200
STEPS_SHOWN_MAX = 200
ERROR_CHARS_MAX = 2_000

_DEPTH = """
SELECT '{state}' AS name, COUNT(*) AS amount,
  (SELECT MIN(due_at) FROM bz_jobs WHERE state = '{state}') AS oldest_at
FROM (SELECT 1 AS one FROM bz_jobs WHERE state = '{state}' LIMIT {limit}) AS {state}_rows
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """One worker that holds leases: how many, and when it was last heard of."""

    owner: str
    jobs: int
    heard_at: datetime
    ends_at: datetime
    state: str  # running | late


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of the list; `cut_at` as in Found, of a search by request id."""

    rows: Sequence[Job]
    page: IdPage
    cut_at: int = 0


@dataclass(slots=True)
class StepParts:
    """One step of a run: its model request (None until admitted), and its calls in order."""

    number: int
    request: Request | None = None
    calls: list[ToolCall] = field(default_factory=list)


def depth() -> dict[str, Backlog]:
    """How many jobs are queued, running, waiting and parked, and since when. One query."""
    limit = conf.count_cap + 1
    parts = [_DEPTH.format(state=state, limit=limit) for state in DEPTH_STATES]
    with connection.cursor() as cursor:
        cursor.execute("\nUNION ALL\n".join(parts))
        return {name: backlog(amount, oldest) for name, amount, oldest in cursor.fetchall()}


def holders(*, now: datetime) -> list[Holder]:
    """Who holds leases, latest heard of first. One query over at most HELD_ROWS_MAX of them."""
    held = Job.objects.filter(state=JobState.RUNNING).order_by("lease_expires_at", "id")
    ids = list(held.values_list("id", flat=True)[:HELD_ROWS_MAX])
    found = (
        Job.objects.filter(id__in=ids)
        .values("owner")
        .annotate(jobs=Count("id"), first=Min("lease_expires_at"), last=Max("lease_expires_at"))
        .order_by("-last")[:HOLDERS_MAX]
    )
    lease = timedelta(seconds=conf.job_lease_seconds)
    late = timedelta(seconds=2 * conf.job_heartbeat_seconds)
    return [
        Holder(
            each["owner"],
            each["jobs"],
            each["last"] - lease,
            each["first"],
            "late" if now - (each["last"] - lease) > late else "running",
        )
        for each in found
        if each["last"] is not None
    ]


def job_page(chosen: Chosen, cursor: Cursor | None) -> JobPage:
    """Two queries; by the caller's request id in all accounts, which is exact, one more.

    By account or request id the latest change comes first, else the latest due time.
    """
    cut_at = 0
    state, account = chosen.values.get("state"), chosen.values.get("account")
    if request_id := chosen.values.get("request"):
        if account:
            rows = Job.objects.filter(account_id=account, request_id=request_id)
        else:
            known = jobs_of_request(request_id)
            cut_at = known.cut_at
            rows = Job.objects.filter(id__in=[job_id for job_id, _account in known.rows])
        page = page_ids([rows.filter(state=state) if state else rows], cursor=cursor)
    elif account:
        rows = walk(Job.objects.filter(account_id=account), BY_ACCOUNT)
        branches = [rows.filter(state=state) if state else rows]
        page = page_ids(branches, cursor=cursor)
    else:
        branches = [_in_state(one) for one in ([state] if state else JOB_STATES)]
        page = page_ids(branches, cursor=cursor, order_by="due_at")
    found = rows_by_id(Job.objects.defer(*HEAVY), page.ids)
    return JobPage([row for row in found if isinstance(row, Job)], page, cut_at)


def jobs_of_request(request_id: str) -> Found:
    """The jobs with this request id, at most one of each account. One query."""
    return find_in_accounts(model=Job, column="request_id", value=request_id)


def _in_state(state: str) -> QuerySet[Job]:
    return walk(Job.objects.filter(state=state), BY_DUE)


def job_steps(job: Job) -> list[StepParts]:
    """The steps of a run with their requests and calls, by number. Three queries.

    Arguments and responses stay in the table; `size` and `response_size` say how long they are.
    """
    prefix = f"job:{job.id}:"
    requests = Request.objects.filter(
        account_id=job.account_id, operation_id__gte=prefix, operation_id__lt=f"{prefix}A"
    ).defer("price_text", "usage_text", "late_usage_text", "error_text")
    steps: dict[int, StepParts] = {}
    for request in requests.order_by("operation_id")[:STEPS_SHOWN_MAX]:
        text = request.operation_id.removeprefix(prefix)
        if text.isascii() and text.isdigit():
            number = int(text)
            steps.setdefault(number, StepParts(number)).request = request
    for call in calls_of_job(job.id):
        steps.setdefault(call.step, StepParts(call.step)).calls.append(call)
    return [steps[number] for number in sorted(steps)]


def calls_of_job(job_id: str) -> list[Any]:
    """The job's calls in the model's order, without their long texts. One query."""
    rows = (
        ToolCall.objects.filter(job_id=job_id)
        .defer(*CALL_HEAVY)
        .annotate(size=Length("arguments_text"), answer_head=Substr("response_text", 1, 400))
        .order_by("step", "id")[:CALLS_SHOWN_MAX]
    )
    return sorted(rows, key=lambda row: (row.step, _index_of(row.id)))


def _index_of(call_id: str) -> int:
    text = call_id.rpartition(".")[2]
    return int(text) if text.isascii() and text.isdigit() else 0


def approvals_by_call(job_id: str) -> dict[str, list[Approval]]:
    """The job's questions by the call they are about, without their arguments. One query."""
    found: dict[str, list[Approval]] = {}
    for row in Approval.objects.defer("arguments_text").filter(job_id=job_id).order_by("id"):
        found.setdefault(row.tool_call_id, []).append(row)
    return found


def job_version(job: Job) -> str:
    """What a poll compares: it moves with the job, its requests, calls and questions.

    Three looks into indexes; nothing of the page is read for it.
    """
    prefix = f"job:{job.id}:"
    asked = Approval.objects.filter(job_id=job.id).aggregate(at=Max("updated_at"))
    made = ToolCall.objects.filter(job_id=job.id).aggregate(at=Max("updated_at"), n=Count("id"))
    steps = Request.objects.filter(
        account_id=job.account_id, operation_id__gte=prefix, operation_id__lt=f"{prefix}A"
    ).count()
    moments = [at for at in (job.updated_at, asked["at"], made["at"]) if at is not None]
    return f"{version_of(max(moments))}-{steps}-{made['n']}"


def finished_seconds(job: Job) -> float | None:
    """How long the job took, None until it ended."""
    return (job.finished_at - job.created_at).total_seconds() if job.finished_at else None
