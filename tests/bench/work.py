"""Decisions over HTTP and in the console, steps of an agent: on a private server."""

import asyncio
import itertools
import json
import re
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import uvloop
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.responses import new_form_key
from kernel import approvals
from kernel.access import ensure_roles, issue_token
from kernel.audit import Actor
from kernel.kernel import Kernel
from kernel.models import Approval, AuditRow, Continuation, Job, Request, ToolCall
from kernel.state import DatabaseStore
from kernel.state.pauses import GLOBAL, pause
from kernel.states import JobState
from tests.bench import instant, load, product, rows, work_rows
from tests.support import agent, lives
from tests.support.mariadb_server import Server
from tests.support.product import look_apart, running_kernel

STORE = DatabaseStore()
CLIENTS = (1, 8)
DECISION_MS_MAX, STEP_MS_MAX = 25, 8
PETRA = Actor("user", "petra")
AUDIT_ID = re.compile(r"aud_[0-9a-f]{32}")


@dataclass(slots=True)
class Timed:
    """One way to decide: milliseconds of each call, statements of one, processor time of all."""

    statements: int = 0
    cpu_seconds: float = 0.0
    spans_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions over HTTP with so many clients at once."""

    clients: int
    load: load.Load
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of one agent's job: milliseconds from one to the next, and what one costs."""

    spans_ms: list[float]
    model_ms: float
    tool_ms: float
    cpu_ms: float
    statements: float
    commits: float

    @property
    def own_ms(self) -> float:
        """The median step without what the provider and the tool take by themselves."""
        return statistics.median(self.spans_ms) - self.model_ms - self.tool_ms


@dataclass(frozen=True, slots=True)
class Result:
    """The whole part."""

    http: list[Decided]
    ways: dict[str, Timed]
    steps: Steps


def measure(server: Server, *, seconds: float, times: int, steps: int, waiting: int) -> Result:
    """Each on a schema of its own. `seconds` per load, `times` decisions in process per way."""
    return Result(
        http=_over_http(server, seconds=seconds, waiting=waiting),
        ways=_in_process(server, times=times),
        steps=_steps(server, count=steps),
    )


# --- decisions --------------------------------------------------------------------------------


def _over_http(server: Server, *, seconds: float, waiting: int) -> list[Decided]:
    """POST /v1/approvals/{id}/decision. A global pause keeps the worker from the jobs it frees."""
    found, numbers = [], itertools.count()
    with rows.migrated(server) as name:
        work_rows.desk()
        sha256 = work_rows.waiting(count=waiting)
        pause(scope=GLOBAL, reason="Only decisions are measured.", actor=PETRA)
        scopes = ("approvals:decide",)
        account = Approval.objects.values_list("account_id", flat=True)[0]
        secret = issue_token(account_id=account, name="bench", scopes=scopes, actor=PETRA)[1]
        with product.running(server.url(name)) as running:

            def decision() -> bytes:
                number = next(numbers)
                order = {"decision": "approved", "decision_id": f"dec_copy{number:09}"}
                return load.post(
                    f"/v1/approvals/apr_copy{number:09}/decision",
                    json.dumps({**order, "arguments_sha256": sha256}).encode(),
                    host=running.host,
                    headers={"Authorization": f"Bearer {secret}"},
                )

            def run(clients: int, seconds: float) -> load.Load:
                done = asyncio.run(
                    load.run(
                        host=running.host,
                        port=running.port,
                        clients=clients,
                        seconds=seconds,
                        message=decision,
                    )
                )
                if done.errors:
                    raise RuntimeError(f"{done.errors} errors at {clients} clients")
                return done

            for clients in CLIENTS:
                run(clients, seconds / 4)  # fills pools and caches
                before = running.cpu_seconds()
                done = run(clients, seconds)
                cpu = running.cpu_seconds() - before
                found.append(Decided(clients, done, cpu / len(done.calls) * 1000))
        _check_decided(next(numbers))
        connection.close()
    return found


def _in_process(server: Server, *, times: int) -> dict[str, Timed]:
    """The console's form, the verb behind it, and the verb's statements as plain SQL, in turns."""
    with rows.migrated(server):
        work_rows.desk()
        sha256 = work_rows.waiting(count=3 * (times + 2))
        numbers = itertools.count()
        ways = {"form": _form(sha256), "verb": _verb(sha256)}
        found = {name: Timed() for name in ("form", "verb", "plain")}
        for name, act in ways.items():
            act(next(numbers))
            number = next(numbers)
            with CaptureQueriesContext(connection) as captured:
                act(number)
            found[name].statements = len(captured)
        ways["plain"] = _plain([each["sql"] for each in captured], number)
        found["plain"].statements = found["verb"].statements
        for _ in range(times):
            for name, act in ways.items():
                number = next(numbers)
                cpu, started = time.process_time(), time.perf_counter()
                act(number)
                found[name].spans_ms.append((time.perf_counter() - started) * 1000)
                found[name].cpu_seconds += time.process_time() - cpu
        _check_decided(next(numbers))
        connection.close()
    return found


def _form(sha256: str) -> Callable[[int], None]:
    ensure_roles()
    user = User.objects.create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)

    def send(number: int) -> None:
        address = f"/approvals/apr_copy{number:09}/approve/"
        values = {"decision_id": f"dec_copy{number:09}", "sha256": sha256, "reason": ""}
        answer = client.post(address, {**values, "form_key": new_form_key()})
        if answer.status_code not in (302, 303):
            raise RuntimeError(f"{address} answered {answer.status_code}")

    return send


def _verb(sha256: str) -> Callable[[int], None]:
    def decide(number: int) -> None:
        order = approvals.Decision(
            f"apr_copy{number:09}", "approved", f"dec_copy{number:09}", "", PETRA, sha256
        )
        answer = approvals.decide_and_carry(order=order, store=STORE)
        if answer.http_status != 200:
            raise RuntimeError(answer.error)

    return decide


def _plain(statements: list[str], number: int) -> Callable[[int], None]:
    """The very statements of one decision, transactions included, sent for another approval."""

    def send(other: int) -> None:
        raw = connection.connection.cursor()
        for statement in statements:
            text = statement.replace(f"{number:09}", f"{other:09}")
            raw.execute(AUDIT_ID.sub(f"aud_{secrets.token_hex(16)}", text))
            if raw.description:
                raw.fetchall()

    return send


def _check_decided(count: int) -> None:
    """The numbers below `count`: approved, carried through, their jobs queued, two audit rows."""
    last = f"{count:09}"
    copies = {"id__gte": "apr_copy", "id__lt": f"apr_copy{last}"}
    approved = Approval.objects.filter(state="approved", **copies).count()
    carried = Continuation.objects.filter(state="done", approval_id__gte="apr_copy").count()
    copies = {"id__gte": "job_copy", "id__lt": f"job_copy{last}"}
    freed = Job.objects.filter(state=JobState.QUEUED, **copies).count()
    told = AuditRow.objects.filter(subject__startswith="approval:apr_copy").count()
    if (approved, carried, freed, told) != (count, count, count, 2 * count):
        raise RuntimeError(f"{count} decided: {approved}, {carried}, {freed}, {told}")


# --- steps ------------------------------------------------------------------------------------


def _steps(server: Server, *, count: int) -> Steps:
    """One job that calls a read-only tool `count` times and ends at its route's limit."""
    with rows.migrated(server), instant.running(_says()) as port:
        lives.open_account("acme", cap_nano=None)
        lives.add_service("gpt", base_url=f"http://127.0.0.1:{port}/v1")
        connection.close()
        before = _status(server)
        spans, cpu = uvloop.run(_run_job(port=port, count=count))
        after = _status(server)
        alone = {
            path: asyncio.run(_alone(port, path))
            for path in (instant.MODEL_PATH, instant.TOOL_PATH)
        }
        called = ToolCall.objects.filter(state="done").count()
        if called != count:
            raise RuntimeError(f"{called} of {count} calls were made")
        connection.close()
    return Steps(
        spans_ms=spans,
        model_ms=alone[instant.MODEL_PATH],
        tool_ms=alone[instant.TOOL_PATH],
        cpu_ms=cpu * 1000 / count,
        statements=(after["Questions"] - before["Questions"]) / count,
        commits=(after["Com_commit"] - before["Com_commit"]) / count,
    )


def _says() -> bytes:
    return agent.completion(calls=[agent.call("look", {"amount": 1})])


async def _run_job(*, port: int, count: int) -> tuple[list[float], float]:
    """Milliseconds from one admitted step to the next, and the processor seconds of all."""
    url = f"http://127.0.0.1:{port}{instant.TOOL_PATH}"
    await agent.make_tool("look", url=url, side_effect=False)
    await agent.make_route("look", steps_max=count)
    async with running_kernel(worker=True) as kernel:
        started = time.process_time()
        job = await agent.submitted(kernel)
        await _ended(kernel, job.id)
        cpu = time.process_time() - started
    found = await look_apart(
        lambda: list(Request.objects.order_by("admitted_at").values_list("admitted_at", flat=True))
    )
    pairs = itertools.pairwise(found)
    return [(later - earlier).total_seconds() * 1000 for earlier, later in pairs], cpu


async def _ended(kernel: Kernel, job_id: str) -> None:
    while (job := await kernel.database.in_tx(STORE.get, job_id=job_id)).state in (
        "queued",
        "running",
    ):
        await asyncio.sleep(0.25)
    if job.error_code != "steps_exceeded":
        raise RuntimeError(f"the job is {job.state}: {job.error_code}")


async def _alone(port: int, path: str) -> float:
    """The median of calling the instant server directly."""
    message = load.post(path, b"{}", host="127.0.0.1", headers={})
    done = await load.run(
        host="127.0.0.1", port=port, clients=1, seconds=0.5, message=lambda: message
    )
    return done.percentile(0.5)


def _status(server: Server) -> dict[str, int]:
    """The server's counters, all connections together."""
    one = server.connect()
    cursor = one.cursor()
    cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_commit')")
    found = {name: int(value) for name, value in cursor.fetchall()}
    one.close()
    return found
