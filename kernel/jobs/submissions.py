"""Jobs from the outside: submitted once per request id, cancelled with their questions (D1, C8)."""

import json
from typing import Any

from kernel import audit, schema
from kernel.approvals.arguments import canonical_text
from kernel.conf import conf
from kernel.errors import Conflict, Forbidden, InvalidInput, NotFound, TooLarge
from kernel.ids import check_id
from kernel.jobs.journal import end_calls_in_tx
from kernel.jobs.routes import AGENT, get_route
from kernel.models import Account, Route, Service
from kernel.state import WORKER_LOST, JobRecord, NewJob, RuntimeStateStore
from kernel.states import JobState
from kernel.transactions import reading

INPUT_KINDS = ("prompt", "messages")
ROLES = ("system", "user", "assistant")
MESSAGE_KEYS = {"role", "content"}


def submit_job(
    *,
    store: RuntimeStateStore,
    account_id: str,
    request_id: str,
    route_id: str,
    input: Any,
    actor: audit.Actor,
    input_text: str = "",
) -> tuple[JobRecord, bool]:
    """The job of (account, request id), and whether it was made just now: queued, audited (D1).

    `input` is plain JSON: for agents {"prompt": text} or {"messages": [{"role", "content"}, ...]},
    for executors any object, whose numbers stay as they are in `input_text`, the caller's own text
    of the same value, where there is one. A repeat finds its job whatever became of the route
    since. A paused route takes jobs; they wait in the queue.

    InvalidId, InvalidInput (input), TooLarge; NotFound `route_not_found`; Forbidden
    `account_closed`; Conflict `route_inactive`, `job_conflict`; Unavailable without 0068.
    """
    schema.require(schema.AGENT_JOBS)
    check_id(request_id, field="request_id")
    route = get_route(route_id=route_id)
    text = canonical_input(input, target=route.target, given_text=input_text)
    try:
        store.find(account_id=account_id, request_id=request_id)
    except NotFound:
        _check_open(account_id, route)
    job = NewJob(
        account_id=account_id,
        request_id=request_id,
        route_id=route.id,
        target=route.target,
        input_text=text,
    )
    return store.submit(job=job, actor=actor)


def cancel_job(
    *,
    store: RuntimeStateStore,
    job_id: str,
    actor: audit.Actor,
    reason: str,
    account_id: str = "",
) -> JobRecord:
    """Cancel a job that has not ended, audited (D1).

    Its open questions, unused grants and unsent calls end in the same transaction (C8); a call that
    was sent stays uncertain until an operator resolves it. With `account_id`, another account's job
    is NotFound. Conflict `job_finished`. A cancelled job stays so. Unavailable without 0068.
    """
    schema.require(schema.AGENT_JOBS)
    if account_id and store.get(job_id=job_id).account_id != account_id:
        raise NotFound(f"no job {job_id}", job_id=job_id)
    return store.cancel(
        job_id=job_id,
        actor=actor,
        reason=reason,
        also=lambda: end_calls_in_tx(job_id=job_id, actor=actor, code="cancelled", reason=reason),
    )


def resume_parked_job(
    *, store: RuntimeStateStore, job_id: str, actor: audit.Actor, reason: str
) -> JobRecord:
    """Put a job that lost its workers too often back into the queue, audited (D1).

    Conflict `not_parked`, NotFound.
    """

    def note_in_tx() -> None:
        audit.append_in_tx(
            actor=actor,
            action="job.resume",
            kind="job",
            object_id=job_id,
            before={"state": JobState.PARKED},
            after={"state": JobState.QUEUED},
            reason=reason,
        )

    if not store.resume(job_id=job_id, reasons=[WORKER_LOST], also=note_in_tx):
        raise Conflict(
            f"Job {job_id} is not parked.",
            code="not_parked",
            next_action="Read the job: a decision or an operator resumes what waits.",
        )
    return store.get(job_id=job_id)


@reading
def _check_open(account_id: str, route: Route) -> None:
    """Whether this account may start a new job on this route now."""
    account = Account.objects.filter(id=account_id).first()
    if account is None:
        raise NotFound(f"no account {account_id}")
    if not account.active:
        raise Forbidden(f"account {account_id} is closed", code="account_closed")
    if not route.active:
        raise Conflict(
            f"The route {route.id} is out of use.",
            code="route_inactive",
            next_action="Use another route, or ask an operator.",
        )
    if route.target != AGENT:
        return
    service = Service.objects.filter(id=route.service_id).first()
    if service is None or service.account_id not in ("", account_id):
        raise NotFound("no such route for this account", code="route_not_found", field="route")
    if not service.active:
        raise Conflict(
            f"The service of the route {route.id} is out of use.",
            code="service_inactive",
            next_action="Ask an operator to change the route.",
        )


def canonical_input(value: Any, *, target: str, given_text: str = "") -> str:
    """The one text of a job's input: sorted keys, no spaces. InvalidInput names the place (D1).

    With `given_text` an executor's numbers stay as they were written.
    """
    if not isinstance(value, dict) or not value:
        raise InvalidInput("input must be a JSON object that is not empty", field="input")
    if target == AGENT:
        _check_agent_input(value)
    try:
        text = json.dumps(
            value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        if given_text and target != AGENT:
            room = conf.request_body_bytes_max
            text = canonical_text(given_text, field="input", bytes_max=room)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError):
        # A lone surrogate is a UnicodeEncodeError, hence a ValueError, too.
        raise InvalidInput("input cannot be written as strict JSON", field="input") from None
    if size > conf.job_input_bytes_max:
        raise TooLarge(
            f"the input of a job has at most {conf.job_input_bytes_max} bytes", field="input"
        )
    return text


def _check_agent_input(value: dict[str, Any]) -> None:
    (kind, *more) = value
    if more or kind not in INPUT_KINDS:
        raise InvalidInput("input holds either prompt or messages, nothing else", field="input")
    if kind == "prompt":
        _check_words(value["prompt"], field="input.prompt")
        return
    messages = value["messages"]
    if not isinstance(messages, list) or not messages:
        raise InvalidInput("messages is a list with at least one message", field="input.messages")
    for index, each in enumerate(messages):
        field = f"input.messages[{index}]"
        if not isinstance(each, dict) or set(each) != MESSAGE_KEYS:
            raise InvalidInput(f"{field} holds role and content, nothing else", field=field)
        if each["role"] not in ROLES:
            raise InvalidInput(f"role is one of {' '.join(ROLES)}", field=f"{field}.role")
        _check_words(each["content"], field=f"{field}.content")


def _check_words(value: Any, *, field: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{field} is a text that is not empty", field=field)
