"""The model steps of a job: their requests, what they used, and the next one's submission (D2)."""

import json
from dataclasses import dataclass
from datetime import datetime

from kernel import sql
from kernel.ids import RESERVED_PREFIX, new_id
from kernel.models import AuditRow, Request, Route, Tool
from kernel.states import Billing, Result
from kernel.transactions import reading
from kernel.usage import pricing
from kernel.usage.admission import Submission, content_sha256
from kernel.usage.bodies import read_body
from kernel.usage.metering import Metering
from kernel.usage.request_body import read_request

PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job runs, as its route says now: the tools that may be offered are those in use."""

    route: Route
    tool_ids: tuple[str, ...]
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class ModelStep:
    """The one model request of a step, and its saved answer: None when there is none (any more)."""

    request: Request
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a job's model steps used: tokens, and nano-USD as charged or as it will be charged."""

    tokens: int
    cost_nano: int


def operation_id(*, job_id: str, step: int) -> str:
    """The id of a step's one model request; `job:` is the kernel's own prefix (A1)."""
    return f"{RESERVED_PREFIX}{job_id}:{step}"


@reading
def plan_of(*, route_id: str) -> Plan | None:
    """The job's route and tools now; None without such a route."""
    found = sql.rows(Route, {"id": route_id})
    if not found:
        return None
    (route,) = found
    ids = json.loads(route.tools_text)
    known = {tool.id: tool for tool in sql.rows(Tool, {"id": ids}) if tool.active}
    return Plan(route, tuple(ids), tuple(known[name] for name in ids if name in known))


@reading
def model_step(*, account_id: str, job_id: str, step: int) -> ModelStep | None:
    """How far a step's model request is, None before it is admitted."""
    name = operation_id(job_id=job_id, step=step)
    found = sql.rows(Request, {"account_id": account_id, "operation_id": name})
    if not found:
        return None
    (row,) = found
    is_complete = row.result_state == Result.COMPLETE
    return ModelStep(row, read_body(request_id=row.id, kind="result") if is_complete else None)


@reading
def has_unknown_step(*, account_id: str, job_id: str) -> bool:
    """Whether the outcome of one of the job's model requests is unknown."""
    return _requests(account_id, job_id).filter(result_state=Result.UNKNOWN).exists()


@reading
def changed_since(*, account_id: str, job_id: str, at: datetime) -> bool:
    """Whether one of the job's model requests changed at `at` or later."""
    return _requests(account_id, job_id).filter(updated_at__gte=at).exists()


@reading
def spent(*, account_id: str, job_id: str) -> Spent:
    """Tokens and money of all steps so far."""
    tokens = cost = 0
    for row in _requests(account_id, job_id):
        if row.usage_text:
            metering = Metering.from_text(row.usage_text)
            tokens += metering.input_tokens + metering.output_tokens
        if row.billing_state == Billing.SETTLED:
            cost += row.billed_nano or 0
        elif row.billing_state != Billing.NOT_CHARGED:
            cost += _owed_nano(row)
    return Spent(tokens, cost)


def _owed_nano(row: Request) -> int:
    """What settlement will charge; the hold where nobody can say yet (0 without a cap)."""
    if row.usage_text and row.price_text:
        snapshot = pricing.PriceSnapshot.from_text(row.price_text)
        charge = pricing.price(snapshot, Metering.from_text(row.usage_text))
        if charge.reference_usd is not None and not charge.reason:
            return pricing.charge_nano(charge.reference_usd, row.multiplier_millionths)
    return row.hold_nano


@reading
def requester_of(*, job_id: str) -> str:
    """`<kind>:<id>` of who submitted the job: that one cannot decide about it (C11).

    '' when nothing says so.
    """
    first = AuditRow.objects.filter(subject=f"job:{job_id}", sequence=1).first()
    return f"{first.actor_kind}:{first.actor_id}" if first else ""


def submission_of_step(*, account_id: str, job_id: str, step: int, body: bytes) -> Submission:
    """The one model request of a step."""
    request = read_request(body)
    return Submission(
        account_id=account_id,
        operation_id=operation_id(job_id=job_id, step=step),
        service_id=request.model,
        path=PATH,
        body=body,
        content_sha256=content_sha256(account_id=account_id, path=PATH, body=body),
        streamed=False,
        hide_usage=False,
        max_output_tokens=request.max_output_tokens,
        request_id=new_id("req"),
    )


def _requests(account_id: str, job_id: str):  # type: ignore[no-untyped-def]  # a queryset
    """The job's requests by a range of the identity's index; LIKE would read the whole account."""
    first, last = (operation_id(job_id=job_id, step=step) for step in (0, 9_999_999_999))
    return Request.objects.filter(
        account_id=account_id, operation_id__gte=first, operation_id__lte=last
    )
