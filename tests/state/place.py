"""A fresh state store and the world around it, and the jobs that its tests start from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel.audit import Actor
from kernel.state.protocol import (
    JobRecord,
    NewJob,
    RuntimeStateStore,
)

CALLER = Actor("token", "tok_1")
OPERATOR = Actor("user", "olga")
NOTHING: Callable[[], None] = lambda: None  # noqa: E731


@dataclass(frozen=True, slots=True)
class Place:
    """A fresh store, and what tests do to the world around it."""

    store: RuntimeStateStore
    let_lease_end: Callable[[str], None]  # the job's lease lies in the past
    pause: Callable[[str], None]
    unpause: Callable[[str], None]
    acts_of: Callable[[str], list[str]]  # the audited actions on a job, in order
    markers_of: Callable[[str], list[str]]


class Boom(Exception):
    """What a test's own act raises."""


class Counter:
    """An act that counts how often it ran, and may raise."""

    def __init__(self, *, answer: Any = None, error: Exception | None = None):
        self.calls = 0
        self._answer, self._error = answer, error

    def __call__(self) -> Any:
        self.calls += 1
        if self._error is not None:
            raise self._error
        return self._answer


def new_job(number: int = 1, **fields: Any) -> NewJob:
    values = {
        "account_id": "acme",
        "request_id": f"req-{number}",
        "route_id": "refunds",
        "target": "agent",
        "input_text": '{"prompt":"hi"}',
        **fields,
    }
    return NewJob(**values)


def submitted(store: RuntimeStateStore, number: int = 1, **fields: Any) -> JobRecord:
    return store.submit(job=new_job(number, **fields), actor=CALLER)[0]


def claimed(store: RuntimeStateStore, *, owner: str = "wrk_a") -> JobRecord:
    (job,) = store.claim(owner=owner, target="agent", limit=1)
    return job


def waiting(store: RuntimeStateStore, number: int = 1, *, reason: str = "approval") -> JobRecord:
    submitted(store, number)
    job = claimed(store)
    store.wait(fence=job.fence, reason=reason, also=NOTHING)
    return store.get(job_id=job.id)
