"""Claims by eight workers at once: jobs from one queue, notifications of many destinations."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection

from kernel.delivery.claims import claim
from kernel.models import Job, Notification
from kernel.state import DatabaseStore
from tests.bench import post, rows, work_rows
from tests.support.mariadb_server import Server

CLAIMERS, ROWS = 8, (1, 8)
PER_SECOND_MIN = 400
PLACES = 50
JOBS, NOTIFICATIONS = "jobs", "notifications"
STORE = DatabaseStore()

Claim = Callable[[str, int], list[str]]  # owner, limit -> ids


@dataclass(frozen=True, slots=True)
class Result:
    """Claims of at most `limit` rows each, by CLAIMERS threads of one process."""

    what: str
    limit: int
    seconds: float
    spans_ms: list[float]
    rows: int
    cpu_ms: float

    @property
    def per_second(self) -> float:
        return len(self.spans_ms) / self.seconds


def measure(server: Server, *, seconds: float, queued: int) -> list[Result]:
    """Each on a schema of its own, with `queued` rows that are due."""
    found = []
    for limit in ROWS:
        with rows.migrated(server):
            work_rows.desk()
            work_rows.queued(count=queued)
            found.append(_together(JOBS, _jobs, limit=limit, seconds=seconds))
            _check(Job.objects.filter(state="running", attempts=1).count(), found[-1])
            connection.close()
    for limit in ROWS:
        with rows.migrated(server):
            post.due(count=queued, places=PLACES)
            found.append(_together(NOTIFICATIONS, _notifications, limit=limit, seconds=seconds))
            _check(Notification.objects.filter(state="sending").count(), found[-1])
            connection.close()
    return found


def _jobs(owner: str, limit: int) -> list[str]:
    return [job.id for job in STORE.claim(owner=owner, target="agent", limit=limit)]


def _notifications(owner: str, limit: int) -> list[str]:
    return [one.id for one in claim(owner=owner, limit=limit, busy={})]


def _together(what: str, act: Claim, *, limit: int, seconds: float) -> Result:
    """CLAIMERS threads claim until time is up; no row may be taken twice."""
    spans: list[float] = []
    taken: list[str] = []
    failures: list[BaseException] = []
    started = time.perf_counter()

    def work(owner: str) -> None:
        try:
            while (began := time.perf_counter()) < started + seconds:
                ids = act(owner, limit)
                if not ids:
                    raise RuntimeError("the queue is empty: nothing is measured any more")
                spans.append((time.perf_counter() - began) * 1000)
                taken.extend(ids)
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(f"wrk_{n}",)) for n in range(CLAIMERS)]
    cpu = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    if failures or len(set(taken)) != len(taken):
        raise RuntimeError(f"{len(taken)} claimed, {len(failures)} failed: {failures[:1]}")
    return Result(what, limit, took, spans, len(taken), cpu / len(spans) * 1000)


def _check(owned: int, result: Result) -> None:
    if owned != result.rows:
        raise RuntimeError(f"{result.rows} claimed, {owned} owned")
