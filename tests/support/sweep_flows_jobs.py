"""Flows of a job: it asks, a person decides, it goes on, it calls its tool, it ends."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel import jobs
from kernel.approvals.decisions import Decision, decide_surely
from kernel.audit import Actor
from kernel.jobs.resolution import resolve_call
from kernel.models import Approval, Job, ToolCall
from kernel.state import DatabaseStore
from kernel.states import Waiting
from tests.support import lives
from tests.support.agent import AMOUNT, ASKS, AUTO, call, completion
from tests.support.sweep_flow import PROVIDER, SHOP, Flow, Said, prepare_account

if TYPE_CHECKING:
    from tests.support.sweep import Scene
    from tests.support.sweep_child import Hand

STORE = DatabaseStore()
CALLER, OLGA = Actor("token", "tok-shop"), Actor("user", "olga")
TOOL, ROUTE, REQUEST = "refund", "refunds", "req-sweep"
WANTS: Said = (
    PROVIDER,
    "raw",
    {"body": completion(calls=[call(TOOL, {"amount": 5}, "call-sweep")]).decode()},
)
UNSURE: Said = (SHOP, "status_503", {})


# --- what is prepared -----------------------------------------------------------------------------


async def with_a_tool(hand: "Hand", *, policy: Any) -> None:
    """A tool of the shop and a route with it."""
    await prepare_account(hand)

    def make() -> None:
        jobs.create_tool(
            tool_id=TOOL,
            actor=OLGA,
            url=hand.facts["shop_url"],
            allow_private=True,
            parameters=AMOUNT,
            effect="Refund {amount}.",
            policy=policy,
        )
        jobs.create_route(route_id=ROUTE, actor=OLGA, service_id=lives.SERVICE, tools=[TOOL])

    await hand.db(make)


async def with_asking_tool(hand: "Hand") -> None:
    """The tool asks a person."""
    await with_a_tool(hand, policy=ASKS)


async def with_plain_tool(hand: "Hand") -> None:
    """The tool asks nobody."""
    await with_a_tool(hand, policy=AUTO)


async def with_a_question(hand: "Hand") -> None:
    """A job that waits for a decision."""
    await with_asking_tool(hand)
    await submit(hand)
    await hand.quiet()
    hand.facts["approval"] = await hand.db(open_question)


def open_question() -> str:
    return str(Approval.objects.get(state="open").id)


async def with_a_decision(hand: "Hand") -> None:
    """A decision is recorded, and whoever recorded it ended at once."""
    await with_a_question(hand)
    approval = hand.facts["approval"]
    order = Decision(approval, "approved", f"d-{approval}", "because", OLGA)
    await hand.db(decide_surely, order=order)


async def with_an_uncertain_call(hand: "Hand") -> None:
    """A job whose tool answered 503: nobody knows whether it was done."""
    await with_plain_tool(hand)
    await submit(hand)
    await hand.quiet()


# --- what is done ---------------------------------------------------------------------------------


async def submit(hand: "Hand") -> None:
    """A job, and a worker that runs it. The repeat finds it."""
    hand.start_work()
    await hand.kernel.submit_job(
        account_id=lives.ACCOUNT,
        request_id=REQUEST,
        route_id=ROUTE,
        input={"prompt": "Refund it."},
        actor=CALLER,
    )


async def decide(hand: "Hand", decision: str) -> None:
    """The decision through the API, under its own id; the worker goes on."""
    hand.start_work()
    approval = hand.facts["approval"]
    value = {"decision": decision, "decision_id": f"d-{approval}", "reason": "because"}
    await hand.call(f"/v1/approvals/{approval}/decision", json.dumps(value).encode())


async def approve(hand: "Hand") -> None:
    await decide(hand, "approved")


async def deny(hand: "Hand") -> None:
    await decide(hand, "denied")


async def carry_through(hand: "Hand") -> None:
    """Maintenance finds what is owed; the worker goes on."""
    await hand.passes("continuations")
    hand.start_work()


async def resolve(hand: "Hand") -> None:
    """An operator found that the call was done; the worker goes on."""
    hand.start_work()
    call_id = await hand.db(lambda: ToolCall.objects.get().id)
    await hand.tried(
        partial(
            resolve_call,
            call_id=call_id,
            outcome="done",
            note="looked into the shop's books",
            actor=OLGA,
            store=STORE,
        )
    )


async def resolve_again(hand: "Hand") -> None:
    """The operator asks again, where the call is still uncertain."""
    if await hand.db(lambda: Job.objects.get().state == "waiting"):
        await resolve(hand)


# --- what must be true ----------------------------------------------------------------------------


def asks(scene: "Scene") -> Iterator[str]:
    """One job, one open question about it, nothing called."""
    yield from _job_is(scene, [("waiting", Waiting.APPROVAL)])
    count = len(scene.rows("SELECT id FROM bz_approvals WHERE state = 'open'"))
    if count != 1 and not scene.may_be("model"):
        yield f"there are {count} open questions"
    yield from _called(scene, 0)


def is_done(scene: "Scene") -> Iterator[str]:
    """The job is done and the tool was called once."""
    yield from _job_is(scene, [("done", "")])
    yield from _decided_once(scene)
    if not (scene.may_be("model") or scene.may_be("tool")):
        yield from _called(scene, 1)


def is_refused(scene: "Scene") -> Iterator[str]:
    """The job is refused, nothing was called."""
    yield from _job_is(scene, [("refused", "")])
    yield from _decided_once(scene)
    yield from _called(scene, 0)


def is_resolved(scene: "Scene") -> Iterator[str]:
    """The job is done; the call was not made again."""
    yield from _job_is(scene, [("done", "")])
    yield from _called(scene, 0)  # the one before is not in this case's file


def _job_is(scene: "Scene", expected: Sequence[tuple[str, str]]) -> Iterator[str]:
    allowed = set(expected)
    if scene.may_be("model"):
        allowed.add(("waiting", Waiting.MODEL_UNKNOWN))
    if scene.may_be("tool"):
        allowed.add(("waiting", Waiting.CALL_UNCERTAIN))
    rows = scene.rows("SELECT * FROM bz_jobs")
    found = [
        (row["state"], row["waiting_reason"] if row["state"] == "waiting" else "") for row in rows
    ]
    if len(found) != 1 or found[0] not in allowed:
        errors = [(row["error_code"], row["error_text"]) for row in rows]
        yield f"the jobs are {found} {errors}"


def _decided_once(scene: "Scene") -> Iterator[str]:
    """One decision, at most one admission for it."""
    acts = [row["action"] for row in scene.rows("SELECT action FROM bz_audit")]
    if acts.count("approval.decided") > 1:
        yield f"decided {acts.count('approval.decided')} times"
    for row in scene.rows("SELECT approval_continuation_keys AS marks FROM bz_jobs"):
        marks = json.loads(row["marks"] or "[]")
        if len(set(marks)) != len(marks) or len(marks) > 1:
            yield f"the marks of the job are {marks}"


def _called(scene: "Scene", times: int) -> Iterator[str]:
    calls = len(scene.shop.sent(scene.shop_path))  # type: ignore[attr-defined]
    if calls != times:
        yield f"the shop was called {calls} times, not {times}"


JOBS = (
    Flow(
        "job that asks",
        22,
        prepare=with_asking_tool,
        act=submit,
        again=submit,
        says=(WANTS,),
        check=asks,
    ),
    Flow(
        "job that calls its tool",
        38,
        prepare=with_plain_tool,
        act=submit,
        again=submit,
        says=(WANTS,),
        check=is_done,
    ),
    Flow(
        "approved",
        31,
        prepare=with_a_question,
        said_before=(WANTS,),
        act=approve,
        again=approve,
        check=is_done,
    ),
    Flow(
        "denied",
        9,
        prepare=with_a_question,
        said_before=(WANTS,),
        act=deny,
        again=deny,
        check=is_refused,
    ),
    Flow(
        "continued by maintenance",
        30,
        prepare=with_a_decision,
        said_before=(WANTS,),
        act=carry_through,
        again=approve,
        check=is_done,
    ),
    Flow(
        "uncertain call resolved",
        18,
        prepare=with_an_uncertain_call,
        said_before=(WANTS, UNSURE),
        act=resolve,
        again=resolve_again,
        check=is_resolved,
    ),
)
