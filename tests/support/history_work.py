"""Acts about jobs, decisions, tool calls, messages and dead letters."""

from typing import TYPE_CHECKING, Any

from kernel.jobs.resolution import resolve_call
from kernel.state import DatabaseStore
from tests.support.history_acts import MET, PICK, act_of_a_process, picked
from tests.support.history_outside import PROVIDER, RECEIVER, SHOP
from tests.support.history_requests import OLGA

if TYPE_CHECKING:
    from tests.support.history_world import World

STORE = DatabaseStore()
# What the model is asked: the refunds that it wants, step by step.
PROMPTS = ("hello", "refund 5", "refund 5 6", "refund 5, 7")


def open_questions(world: "World") -> list[dict[str, Any]]:
    return [row for row in world.facts.sorted("approvals") if row["state"] == "open"]


def agent_jobs(world: "World") -> list[dict[str, Any]]:
    return world.facts.sorted("jobs")


def letters(world: "World") -> list[dict[str, Any]]:
    return world.facts.sorted("letters")


def uncertain_calls(world: "World") -> list[dict[str, Any]]:
    jobs = world.facts.now["jobs"]
    return [
        row
        for row in world.facts.sorted("calls")
        if row["state"] == "dispatching" and jobs[row["job_id"]]["state"] != "running"
    ]


# --- jobs and decisions ---------------------------------------------------------------------------


@act_of_a_process(prompt=PROMPTS, provider=MET[PROVIDER])
def job(world: "World", *, at: int, prompt: str, provider: str) -> None:
    """A new job of an agent, and what its first model step meets."""
    world.outside.plan(PROVIDER, provider)
    world.jobs[f"job-{len(world.jobs)}"] = prompt
    _submit(world, at, f"job-{len(world.jobs) - 1}")


@act_of_a_process(lambda world: bool(world.jobs), pick=PICK)
def job_again(world: "World", *, at: int, pick: int) -> None:
    """The same job again."""
    _submit(world, at, picked(list(world.jobs), pick))


def _submit(world: "World", at: int, name: str) -> None:
    value = {"request_id": name, "route": "refunds", "input": {"prompt": world.jobs[name]}}
    world.call(world.process(at), "POST", "/v1/jobs", value, job=name)


@act_of_a_process(agent_jobs, pick=PICK)
def cancel_job(world: "World", *, at: int, pick: int) -> None:
    """Cancel a job."""
    row = picked(agent_jobs(world), pick)
    path = f"/v1/jobs/{row['id']}/cancel"
    world.call(world.process(at), "POST", path, {"reason": "x"}, job=row["request_id"])


@act_of_a_process(
    open_questions, pick=PICK, word=("approved", "approved", "denied"), shop=MET[SHOP]
)
def decide(world: "World", *, at: int, pick: int, word: str, shop: str) -> None:
    """A person decides an open question; what the call meets that it permits."""
    if word == "approved":
        world.outside.plan(SHOP, shop)
    row = picked(open_questions(world), pick)
    decision = (row["id"], word, f"d-{len(world.decisions)}")
    world.decisions.append(decision)
    _decide(world, at, decision)


@act_of_a_process(lambda world: bool(world.decisions), pick=PICK)
def decide_again(world: "World", *, at: int, pick: int) -> None:
    """The same decision again, under its id."""
    _decide(world, at, picked(world.decisions, pick))


@act_of_a_process(lambda world: bool(world.decisions), pick=PICK, word=("approved", "denied"))
def decide_otherwise(world: "World", *, at: int, pick: int, word: str) -> None:
    """Somebody else decides the same question, under an id of their own."""
    approval_id = picked(world.decisions, pick)[0]
    decision = (approval_id, word, f"d-{len(world.decisions)}")
    world.decisions.append(decision)
    _decide(world, at, decision)


def _decide(world: "World", at: int, decision: tuple[str, str, str]) -> None:
    approval_id, word, decision_id = decision
    value = {"decision": word, "decision_id": decision_id, "reason": "because"}
    path = f"/v1/approvals/{approval_id}/decision"
    world.call(world.process(at), "POST", path, value, decision=decision)


@act_of_a_process(uncertain_calls, pick=PICK, outcome=("done", "not_done"))
def say_of_a_call(world: "World", *, at: int, pick: int, outcome: str) -> None:
    """An operator says what became of an uncertain tool call."""
    row = picked(uncertain_calls(world), pick)
    values = {"call_id": row["id"], "outcome": outcome, "note": "asked the shop"}
    world.verb(world.process(at), resolve_call, actor=OLGA, store=STORE, **values)


# --- messages and dead letters --------------------------------------------------------------------


@act_of_a_process(receiver=MET[RECEIVER])
def message(world: "World", *, at: int, receiver: str) -> None:
    """A new message to the receiver, and what its first attempt meets."""
    world.outside.plan(RECEIVER, receiver)
    world.messages.append(f"m-{len(world.messages)}")
    _send(world, at, world.messages[-1])


@act_of_a_process(lambda world: bool(world.messages), pick=PICK)
def message_again(world: "World", *, at: int, pick: int) -> None:
    """The same message again."""
    _send(world, at, picked(world.messages, pick))


def _send(world: "World", at: int, name: str) -> None:
    value = {"message_id": name, "destination": "hooks", "data": {"name": name}}
    world.call(world.process(at), "POST", "/v1/notifications", value, message=name)


@act_of_a_process(letters, pick=PICK)
def replay(world: "World", *, at: int, pick: int) -> None:
    """A dead letter is queued again."""
    letter_id = picked(letters(world), pick)["id"]
    path = f"/v1/dead-letters/{letter_id}/replay"
    world.call(world.process(at), "POST", path, {"reason": "x"}, letter=letter_id)
