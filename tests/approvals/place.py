"""A job that asks, the decisions about it, and what the tables say afterwards."""

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from unittest import mock

from kernel import approvals, clock, schema
from kernel.approvals import Decision, Question
from kernel.audit import Actor
from kernel.errors import Unavailable
from kernel.models import Approval, AuditRow, Continuation, Job, JobMarkers
from kernel.state import Admission, DatabaseStore, JobRecord, NewJob
from kernel.states import Waiting
from kernel.transactions import transaction

STORE = DatabaseStore()
CALLER = Actor("token", "tok_app")
ANN, BEN = Actor("user", "ann"), Actor("user", "ben")
AGENT = Actor("system", "agent")


class Boom(Exception):
    """What a test's own fault raises."""


def question(number: int = 0, **fields: Any) -> Question:
    values = {
        "tool": "refund",
        "tool_version": 1,
        "canonical": approvals.canonical({"amount": 100, "order": f"o-{number}"}),
        "risk": "medium",
        "effect": "Refund 100.",
        "tool_call_id": f"call.1.{number}",
        "expires_in_seconds": 3600,
        **fields,
    }
    return Question(**values)


def running(request_id: str = "req-1", *, account_id: str = "acme") -> JobRecord:
    """A claimed job of a caller."""
    job = NewJob(account_id, request_id, "refunds", "agent", '{"prompt":"hi"}')
    submitted, _ = STORE.submit(job=job, actor=CALLER)
    claimed = STORE.claim(owner="wrk_a", target="agent", limit=50)
    return next(each for each in claimed if each.id == submitted.id)


def park(job: JobRecord, *questions: Question) -> list[Approval]:
    """Open the questions and let the job wait, in one transaction, as the agent does."""
    opened: list[Approval] = []

    def open_all() -> None:
        opened[:] = approvals.open_in_tx(
            questions=questions,
            account_id=job.account_id,
            job_id=job.id,
            request_id=job.request_id,
            requested_by=f"{CALLER.kind}:{CALLER.id}",
        )

    STORE.wait(fence=job.fence, reason=Waiting.APPROVAL, also=open_all)
    return opened


def asked(
    request_id: str = "req-1", *, count: int = 1, account_id: str = "acme", **fields: Any
) -> list[Approval]:
    """A waiting job with open questions."""
    job = running(request_id, account_id=account_id)
    return park(job, *(question(number, **fields) for number in range(count)))


def one(request_id: str = "req-1", **fields: Any) -> Approval:
    (approval,) = asked(request_id, **fields)
    return approval


def order(approval: Approval, decision: Any = "approved", **fields: Any) -> Decision:
    values = {
        "approval_id": approval.id,
        "decision": decision,
        "decision_id": f"dec-{approval.id}",
        "reason": "",
        "actor": ANN,
        **fields,
    }
    return Decision(**values)


def carried(approval: Approval, decision: str = "approved", **fields: Any) -> approvals.Answer:
    return approvals.decide_and_carry(order=order(approval, decision, **fields), store=STORE)


def voided(approval: Approval, *, reason: str = "stop") -> JobRecord:
    """The job is cancelled, its questions with it, as `cancel_job` does."""
    also = partial(approvals.void_in_tx, job_id=approval.job_id, actor=BEN, reason=reason)
    return STORE.cancel(job_id=approval.job_id, actor=BEN, reason=reason, also=also)  # type: ignore[arg-type]  # the count is not needed


@transaction
def in_tx(*, act: Callable[[], Any]) -> Any:
    """One transaction around verbs that join their caller's."""
    return act()


def consume(approval: Approval, **fields: Any) -> approvals.Grant:
    values = {
        "approval_id": approval.id,
        "sha256": approval.arguments_sha256,
        "tool_version": approval.tool_version,
        **fields,
    }
    return in_tx(act=partial(approvals.consume_in_tx, **values))


class Faulty(DatabaseStore):
    """The database store, failing for some jobs before or after the real verb."""

    def __init__(self, *, job_ids: tuple[str, ...] = (), after: bool = False, times: int = 10**6):
        self.job_ids, self.after, self.times, self.calls = job_ids, after, times, 0

    def _meet(self, job_id: str, verb: Callable[[], Any]) -> Any:
        fails = (not self.job_ids or job_id in self.job_ids) and self.calls < self.times
        self.calls += 1
        if fails and self.after:
            verb()
        if fails:
            raise Boom("out of order")
        return verb()

    def requeue_approved_job_once(self, *, job_id: str, **fields: Any) -> Admission:
        return self._meet(job_id, partial(STORE.requeue_approved_job_once, job_id=job_id, **fields))

    def refuse(self, *, job_id: str, **fields: Any) -> bool:
        return self._meet(job_id, partial(STORE.refuse, job_id=job_id, **fields))


def decided(row: Approval, decision: str = "approved", **fields: Any) -> Approval:
    """Decided, and the process died before it carried anything through."""
    return approvals.decide(order=order(row, decision, **fields)).approval


def carry(row: Approval, store: Any = STORE) -> approvals.Carried:
    return approvals.carry_through(approval_id=row.id, store=store)


# --- what the tables say --------------------------------------------------------------------


def reread(approval: Approval) -> Approval:
    return Approval.objects.get(id=approval.id)


def job_of(approval: Approval) -> Job:
    return Job.objects.get(id=approval.job_id)


def owed_of(approval: Approval) -> Continuation:
    return Continuation.objects.get(approval_id=approval.id)


def acts_of(approval: Approval) -> list[str]:
    rows = AuditRow.objects.filter(subject=f"approval:{approval.id}").order_by("sequence")
    return [action.removeprefix("approval.") for action in rows.values_list("action", flat=True)]


def markers_of(approval: Approval) -> list[str]:
    text = JobMarkers.objects.get(id=approval.job_id).approval_continuation_keys
    return json.loads(text) if text else []


def everything() -> tuple[list[Any], ...]:
    """Every row that a decision could touch, to show that nothing changed."""
    models = (Approval, Continuation, Job, JobMarkers, AuditRow)
    return tuple(list(model.objects.order_by("pk").values()) for model in models)


# --- the world around -----------------------------------------------------------------------


def let_expire(approval: Approval) -> None:
    """Its time is over by the database's clock."""
    past = clock.db_now() - timedelta(seconds=1)
    Approval.objects.filter(id=approval.id).update(expires_at=past)


def make_due(*found: Approval) -> None:
    past = clock.db_now() - timedelta(seconds=1)
    ids = [approval.id for approval in found]
    Continuation.objects.filter(approval_id__in=ids).update(next_attempt_at=past)


@contextlib.contextmanager
def without(migration: str) -> Iterator[None]:
    """The database lacks one migration, as far as the verbs can see."""
    real = schema.require

    def require(name: str) -> None:
        if name == migration:
            raise Unavailable("missing", code="migration_missing", migration=name)
        real(name)

    with mock.patch.object(schema, "require", require):
        yield


def sweep(limit: int = 50, store: Any = STORE) -> list[Any]:
    """One walk of the continuation pass: its page reports."""
    page, reports, cursor = approvals.continuation_page(store=store), [], None
    while True:
        reports.append(page(cursor=cursor, limit=limit))
        cursor = reports[-1].cursor
        if cursor is None:
            return reports
