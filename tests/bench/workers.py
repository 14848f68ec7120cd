"""Jobs per second with one, two and three Celery workers: real processes, a broker, a beat."""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from kernel.delivery import destinations
from kernel.models import Job, Notification
from kernel.state.pauses import GLOBAL, pause, unpause
from tests.bench import instant, rows, work_rows
from tests.scaleout.fleet import Fleet, Member
from tests.support import agent, lives, messages, work_data
from tests.support.mariadb_server import Server
from tests.support.redis_server import private_redis

WORKERS = (1, 2, 3)
LOOK_SECONDS = 0.05
SECONDS_MAX = 600.0
# As an installation has them, but for a line that says when a worker is ready.
LIMITS = {"BAILING_LOG_LEVEL": "INFO", messages.SECRET_ENV: messages.SECRET}


@dataclass(frozen=True, slots=True)
class Row:
    """So many workers: jobs per second of each round, processor time of all workers per job."""

    workers: int
    jobs: int
    rates: list[float]
    cpu_ms: float

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def measure(server: Server, *, jobs: int, rounds: int) -> list[Row]:
    """`jobs` due jobs of one model step and one notification each, on a fresh schema each time."""
    found = []
    says = agent.completion("Done.")
    with instant.running(says) as port, private_redis() as redis:
        for workers in WORKERS:
            measured = []
            for _ in range(rounds):
                redis.restart()
                measured.append(_round(server, redis.url, port=port, workers=workers, jobs=jobs))
            rates = [jobs / seconds for seconds, _ in measured]
            cpu = statistics.median(cpu for _, cpu in measured)
            found.append(Row(workers, jobs, rates, cpu / jobs * 1000))
    return found


def _round(
    server: Server, broker_url: str, *, port: int, workers: int, jobs: int
) -> tuple[float, float]:
    """Seconds from the first moment a job may run to the last delivery; the workers' CPU."""
    with rows.migrated(server) as name, tempfile.TemporaryDirectory(prefix="bz-bench-") as place:
        _open(port)
        work_rows.queued(count=jobs)
        pause(scope=GLOBAL, reason="Until every worker is ready.", actor=work_data.OLGA)
        fleet = Fleet(
            database_url=server.url(name),
            broker_url=broker_url,
            directory=Path(place),
            limits=LIMITS,
        )
        try:
            members = [fleet.worker() for _ in range(workers)]
            fleet.beat()
            fleet.wait_ready()
            before = sum(map(Member.cpu_seconds, members))
            unpause(scope=GLOBAL, actor=work_data.OLGA)
            seconds = _until_done(jobs)
            cpu = sum(map(Member.cpu_seconds, members)) - before
        finally:
            fleet.close()
            connection.close()
    return seconds, cpu


def _open(port: int) -> None:
    """An account, a model that is done at once, and somebody who is told of each end."""
    url = f"http://127.0.0.1:{port}"
    lives.open_account(work_data.ACCOUNT, cap_nano=None)
    lives.add_service("gpt-main", base_url=f"{url}/v1")
    work_data.tools_and_routes()
    destinations.create_destination(
        account_id=work_data.ACCOUNT,
        destination_id="ends",
        channel="webhook",
        address=f"{url}/hooks",
        events=["job.finished"],
        secret_env=messages.SECRET_ENV,
        allow_private=True,
        actor=work_data.OLGA,
    )


def _until_done(jobs: int) -> float:
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS_MAX:
        if Notification.objects.filter(state="delivered").count() == jobs:
            seconds = time.perf_counter() - started
            if (done := Job.objects.filter(state="done").count()) != jobs:
                raise RuntimeError(f"{done} of {jobs} jobs are done")
            return seconds
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"{Job.objects.filter(state='done').count()} of {jobs} jobs were done")


def text(found: list[Row]) -> str:
    """The section of the document."""
    lines = [
        "## Workers",
        "",
        "Celery workers on one database and one private Redis, with a beat; each worker runs up to",
        "8 jobs at once. A job is one model step at a provider that answers at once, and one",
        "webhook about its end; the time runs from the first claim to the last delivery. The",
        "database, the broker and the provider share the machine's cores with the workers, so the",
        "gain ends where the cores do. *CPU* is what all workers together used per job.",
        "",
        "| workers | jobs | jobs/s | lowest to highest | against one | CPU per job |",
        "|---|---|---|---|---|---|",
    ]
    one = found[0].rate
    for row in found:
        lines.append(
            f"| {row.workers} | {row.jobs:,} | {row.rate:.0f}"
            f" | {min(row.rates):.0f}-{max(row.rates):.0f} | {row.rate / one:.2f}"
            f" | {row.cpu_ms:.0f} ms |"
        )
    return "\n".join(lines) + "\n"
