"""A case about approvals: a job that asks before it calls the shop, decisions about it, its end.

first = desk.kernel(stops=[("_decide", "after")])
asked = desk.ask(first)
posted = desk.decide_later(first, asked)
first.wait_stopped("_decide", "after")
house.kill(first)
desk.kernel()                          # maintenance carries the decision through
desk.ends(asked, "done")
"""

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kernel import jobs
from kernel.access import issue_token
from kernel.audit import Actor
from kernel.ids import new_id
from kernel.jobs.resolution import resolve_call
from kernel.state import DatabaseStore
from tests.support import lives
from tests.support.agent import AMOUNT, ASKS, completion
from tests.support.agent import call as model_call
from tests.support.client import Answer, Client
from tests.support.house import WAIT_SECONDS, House
from tests.support.kernel_process import KernelProcess, Place
from tests.support.mysql_rules import Rule
from tests.support.tool_server import ToolServer
from tests.support.wait import wait_until

STORE = DatabaseStore()
CALLER, OLGA = Actor("token", "tok-shop"), Actor("user", "olga")
TOOL, ROUTE = "refund", "refunds"
SCOPES = ("approvals:read", "approvals:decide")
# The statement by which a transaction is known to the proxy.
DECIDE = r"^INSERT INTO `?bz_approval_continuations\b"
ADMIT = r"^UPDATE `?bz_jobs\b.*`?approval_continuation_keys`? = "
CONSUME = r"^UPDATE `?bz_tool_calls\b.*'dispatching'"
FINISH = r"^UPDATE `?bz_jobs\b.*'done'"
# Short enough that no test waits long, and still inside the bounds of kernel/conf.py.
LIMITS = {
    "BAILING_JOB_LEASE_SECONDS": "5",
    "BAILING_JOB_HEARTBEAT_SECONDS": "1",
    "BAILING_JOB_RECOVERY_INTERVAL_SECONDS": "1",
    "BAILING_JOB_POLL_SECONDS": "0.2",
    "BAILING_JOB_RETRY_SECONDS": "1",
    "BAILING_CONTINUATION_INTERVAL_SECONDS": "1",
    "BAILING_APPROVAL_EXPIRY_INTERVAL_SECONDS": "1",
}
# A kernel that leaves continuations to others, so that a case kills it before its own pass.
NO_MAINTENANCE = {"BAILING_CONTINUATION_INTERVAL_SECONDS": "300"}
DEFAULT_PACE = {
    "BAILING_CONTINUATION_INTERVAL_SECONDS": "5",
    "BAILING_JOB_POLL_SECONDS": "1",
    "BAILING_JOB_RECOVERY_INTERVAL_SECONDS": "5",
}


@dataclass(frozen=True)
class Asked:
    """A job that waits, and the ids of its questions in order."""

    job_id: str
    approval_ids: list[str]

    @property
    def approval_id(self) -> str:
        return self.approval_ids[0]

    @property
    def call_id(self) -> str:
        return f"{self.job_id}.1.0"


class Desk:
    """What a case about approvals does, in a house."""

    def __init__(self, house: House, shop: ToolServer):
        self.house, self.shop = house, shop
        house.shop = shop
        self._threads = ThreadPoolExecutor(32, thread_name_prefix="deciders")
        self.token = ""

    def open(self, **fields: Any) -> None:
        """A tool of the shop that asks a person, a route with it, a token that decides."""
        self.shop.reset()
        with self.house.office():
            url = f"{self.shop.url}{self.house.shop_path}"
            values = {"parameters": AMOUNT, "effect": "Refund {amount}.", "policy": ASKS, **fields}
            jobs.create_tool(tool_id=TOOL, actor=OLGA, url=url, allow_private=True, **values)
            jobs.create_route(route_id=ROUTE, actor=OLGA, service_id=lives.SERVICE, tools=[TOOL])
            self.token = self.decider("tests")

    def decider(self, name: str) -> str:
        """The secret of one more token that may decide. Inside the office."""
        return issue_token(account_id=lives.ACCOUNT, name=name, scopes=SCOPES, actor=lives.ACTOR)[1]

    # --- what happens -------------------------------------------------------------------------

    def kernel(
        self, *, stops: Sequence[Place] = (), limits: dict[str, str] | None = None, **how: Any
    ) -> KernelProcess:
        """A kernel that runs jobs."""
        return self.house.kernel(
            stops=stops, limits={**LIMITS, **(limits or {})}, worker=True, **how
        )

    def submit(self, amounts: Sequence[int] = (5,)) -> str:
        """A queued job whose model will want these refunds; its id."""
        calls = [model_call(TOOL, {"amount": amount}) for amount in amounts]
        self.house.provider.next("raw", body=completion(calls=calls).decode())
        with self.house.office():
            job, _ = jobs.submit_job(
                store=STORE,
                account_id=lives.ACCOUNT,
                request_id=new_id("req"),
                route_id=ROUTE,
                input={"prompt": "Refund it."},
                actor=CALLER,
            )
        return job.id

    def ask(self, amounts: Sequence[int] = (5,)) -> Asked:
        """A job that waits for a decision about each of these refunds; some kernel runs it."""
        asked = self.asked(self.submit(amounts))
        assert len(asked.approval_ids) == len(amounts)
        return asked

    def asked(self, job_id: str) -> Asked:
        """The questions of a job, when it waits for decisions."""
        self.waits(job_id, "approval")
        rows = self.house.rows(
            "SELECT id FROM bz_approvals WHERE job_id = %s ORDER BY tool_call_id", job_id
        )
        return Asked(job_id, [row["id"] for row in rows])

    def decide(
        self,
        kernel: KernelProcess,
        asked: Asked,
        decision: str = "approved",
        *,
        decision_id: str = "",
        number: int = 0,
        token: str = "",
    ) -> Answer:
        """POST a decision about one question. The same call again carries the same id."""
        approval_id = asked.approval_ids[number]
        value = {"decision": decision, "decision_id": decision_id or f"d-{approval_id}"}
        client = Client(kernel.port, token or self.token, on_answer=lambda name, answer: None)
        path = f"/v1/approvals/{approval_id}/decision"
        return client.call("POST", path, json.dumps({**value, "reason": "because"}).encode())

    def decide_later(self, *args: Any, **how: Any) -> "Future[Answer]":
        """The same from a thread of its own."""
        return self._threads.submit(self.decide, *args, **how)

    def killed_at(
        self, name: str, when: str, nth: int = 1, *, decision: str = "approved"
    ) -> tuple[Asked, Answer]:
        """A first kernel whose job asked, which got the decision, and is killed where it stands."""
        first = self.kernel(stops=[(name, when, nth)], limits=NO_MAINTENANCE)
        asked = self.ask()
        posted = self.decide_later(first, asked, decision)
        first.wait_stopped(name, when)
        self.house.kill(first)
        self.house.let_leases_end()
        return asked, posted.result()

    def killed_awaiting_ok(self, containing: str) -> tuple[Asked, Answer]:
        """The same, killed while the proxy keeps the server's OK of a COMMIT back."""
        first = self.kernel(through_proxy=True, limits=NO_MAINTENANCE)
        asked = self.ask()
        rule = self.on_commit(containing, "hold_ok")
        posted = self.decide_later(first, asked)
        assert rule.wait_fired(WAIT_SECONDS).outcome == "committed"
        self.house.kill(first)
        self.house.let_leases_end()
        return asked, posted.result()

    def on_commit(self, containing: str, action: str) -> Rule:
        return self.house.on_commit(containing=containing, action=action)

    def resolve(self, asked: Asked, outcome: str) -> None:
        """An operator says what became of the uncertain call."""
        with self.house.office():
            resolve_call(
                call_id=asked.call_id,
                outcome=outcome,
                note="looked into the shop's books",
                actor=OLGA,
                store=STORE,
            )

    def write(self, statement: str) -> None:
        """Change rows behind the back of every verb: what time, or damage, would do."""
        self.house.rows(statement)
        self.house.rows("COMMIT")

    # --- what is really there -----------------------------------------------------------------

    def job(self, job_id: str) -> dict[str, Any]:
        (row,) = self.house.rows("SELECT * FROM bz_jobs WHERE id = %s", job_id)
        return row

    def states(self, asked: Asked) -> tuple[str, str, str]:
        """The job, its first question, and what is owed about it ('' = no decision is recorded)."""
        (row,) = self.house.rows(
            "SELECT j.state AS job, a.state AS question, c.state AS owed FROM bz_approvals a"
            " JOIN bz_jobs j ON j.id = a.job_id"
            " LEFT JOIN bz_approval_continuations c ON c.approval_id = a.id WHERE a.id = %s",
            asked.approval_id,
        )
        return row["job"], row["question"], row["owed"] or ""

    def call(self, asked: Asked) -> dict[str, Any]:
        (row,) = self.house.rows("SELECT * FROM bz_tool_calls WHERE id = %s", asked.call_id)
        return row

    def acts(self, asked: Asked, number: int = 0) -> list[str]:
        """The audit of one question, in order."""
        rows = self.house.rows(
            "SELECT action FROM bz_audit WHERE subject = %s ORDER BY sequence",
            f"approval:{asked.approval_ids[number]}",
        )
        return [row["action"].removeprefix("approval.") for row in rows]

    def markers(self, asked: Asked) -> list[str]:
        """The decisions that the job was admitted for."""
        text = self.job(asked.job_id)["approval_continuation_keys"]
        return list(json.loads(text or "[]"))

    def reached(self, count: int = 1) -> None:
        """Until the shop has received this many calls of the case."""
        wait_until(lambda: self.calls() >= count, WAIT_SECONDS, about=f"{count} calls at the shop")

    def calls(self) -> int:
        """How often the shop was really called in this case."""
        return len(self.shop.sent(self.house.shop_path))

    def waits(self, job_id: str, reason: str) -> None:
        """Until the job waits for this."""
        self._until(job_id, lambda row: row["waiting_reason"] == reason, f"waits for {reason}")

    def is_carried_through(self, asked: Asked, number: int = 0) -> None:
        """Until nothing is owed about a question any more."""
        wait_until(
            lambda: self.house.rows(
                "SELECT 1 FROM bz_approval_continuations WHERE approval_id = %s AND state = 'done'",
                asked.approval_ids[number],
            ),
            WAIT_SECONDS,
            about=f"{asked.approval_ids[number]} is carried through",
            look_every=0.05,
        )

    def ends(self, asked: Asked, state: str, *, calls: int) -> None:
        """Until the job has ended so; then: one decision, one admission at most, so many calls."""
        self._until(asked.job_id, lambda row: row["finished_at"] is not None, "has ended")
        row = self.job(asked.job_id)
        assert row["state"] == state, (row["state"], row["error_code"], row["error_text"])
        self.is_carried_through(asked)
        acts = self.acts(asked)
        assert (acts.count("decided"), acts.count("carried_through")) == (1, 1), acts
        assert len(set(self.markers(asked))) == len(self.markers(asked)) <= 1
        assert self.calls() == calls

    def _until(self, job_id: str, fits: Any, about: str) -> None:
        wait_until(
            lambda: fits(self.job(job_id)), WAIT_SECONDS, about=f"{job_id} {about}", look_every=0.05
        )
