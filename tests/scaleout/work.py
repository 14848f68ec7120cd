"""Many jobs at once, as clients, approvers and an operator meet them."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernel import usage
from kernel.access import issue_token
from kernel.delivery import destinations
from kernel.jobs.resolution import resolve_call
from kernel.models import Request
from kernel.states import Waiting
from tests.scaleout.fleet import Member
from tests.support import desk as desks
from tests.support import lives, messages
from tests.support.client import Client
from tests.support.desk import Asked, Desk
from tests.support.house import House

HOOK = "ends"
SCOPES = ("jobs:write", "jobs:read")
ENDED = ("done", "failed", "refused", "cancelled")


class Work:
    """What is asked of a fleet, and what became of it."""

    def __init__(self, desk: Desk, webs: Sequence[Member], *, model_ms: int = 0):
        self.desk, self.webs = desk, webs
        self.house: House = desk.house
        self.decided: set[str] = set()
        self._turns = itertools.count()
        self._threads = ThreadPoolExecutor(6, thread_name_prefix="clients")
        self.house.receiver = desk.shop
        with self.house.office():
            destinations.create_destination(
                account_id=lives.ACCOUNT,
                destination_id=HOOK,
                channel="webhook",
                address=f"{desk.shop.url}{self.house.receiver_path}",
                events=["job.finished"],
                secret_env=messages.SECRET_ENV,
                allow_private=True,
                actor=desks.OLGA,
            )
            self.token = issue_token(
                account_id=lives.ACCOUNT, name="jobs", scopes=SCOPES, actor=lives.ACTOR
            )[1]
        self.house.provider.next("agent_step", times=10**9, tool=desks.TOOL, latency_ms=model_ms)

    def a_web(self) -> Member:
        """The web servers in turns."""
        return self.webs[next(self._turns) % len(self.webs)]

    def submit(self, number: int) -> int:
        """POST one job; the HTTP status."""
        value = {"request_id": f"req-{number}", "route": desks.ROUTE, "input": {"prompt": "Go."}}
        client = Client(self.a_web().port, self.token, on_answer=lambda name, answer: None)
        return client.call("POST", "/v1/jobs", json.dumps(value).encode()).status

    def submit_all(self, count: int) -> list[Any]:
        """POST that many jobs; futures of the HTTP statuses."""
        return [self._threads.submit(self.submit, number) for number in range(count)]

    def decide_all(self) -> None:
        """Approve every open question, each at two web servers at once under one id."""
        rows = self.house.rows("SELECT id, job_id FROM bz_approvals WHERE state = 'open'")
        new = [row for row in rows if row["id"] not in self.decided]
        told = []
        for row in new:
            asked = Asked(row["job_id"], [row["id"]])
            for web in (self.a_web(), self.a_web())[: 2 if len(self.decided) % 10 == 0 else 1]:
                told.append(self._threads.submit(self.desk.decide, web, asked))
            self.decided.add(row["id"])
        for answer in (each.result() for each in told):
            assert answer.status in (200, 503), (answer.status, answer.body, answer.lost)

    def resolve_all(self) -> None:
        """What an operator does about the work of a killed process, by the books of the others."""
        calls = self.house.rows(
            "SELECT c.id, c.idempotency_key FROM bz_tool_calls c JOIN bz_jobs j ON j.id = c.job_id"
            " WHERE c.state = 'dispatching' AND j.waiting_reason = %s",
            Waiting.CALL_UNCERTAIN,
        )
        unknown = self.house.rows("SELECT id FROM bz_usage_requests WHERE result_state = 'unknown'")
        if not (calls or unknown):
            return
        shop = {call.headers.get("idempotency-key") for call in self.desk.shop.calls()}
        with self.house.office():
            for row in calls:
                resolve_call(
                    call_id=row["id"],
                    outcome="done" if row["idempotency_key"] in shop else "not_done",
                    note="looked into the shop's books",
                    actor=desks.OLGA,
                    store=desks.STORE,
                )
            for request in Request.objects.filter(id__in=[row["id"] for row in unknown]):
                usage.resolve_unknown(
                    request_id=request.id,
                    evidence=usage.Evidence(executed=False),
                    note="the provider's file was not asked",
                    actor=lives.ACTOR,
                    seen_updated_at=request.updated_at,
                )

    # --- what is really there -----------------------------------------------------------------

    def states(self) -> Counter[str]:
        """How many jobs are in each state."""
        rows = self.house.rows(
            "SELECT CONCAT_WS(' ', state, NULLIF(waiting_reason, '')) AS name, COUNT(*) AS n"
            " FROM bz_jobs GROUP BY name"
        )
        return Counter({row["name"]: row["n"] for row in rows})

    def ended(self) -> int:
        """How many jobs have ended."""
        states = self.states()
        return sum(states[name] for name in ENDED)

    def undelivered(self) -> int:
        """Notifications that are still owed."""
        (row,) = self.house.rows(
            "SELECT COUNT(*) AS n FROM bz_notifications WHERE state <> 'delivered'"
        )
        return int(row["n"])

    def unfinished(self) -> int:
        """Decisions that are still owed something."""
        (row,) = self.house.rows(
            "SELECT COUNT(*) AS n FROM bz_approval_continuations WHERE state <> 'done'"
        )
        return int(row["n"])
