"""Nothing is lost from sight: after a replacement, each accepted thing is in a state with a reason.

The screens list by state and show the reason that is asked for here; what is under way when no
process lives, and what waits without a word, would be seen by nobody.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kernel.states import Waiting

Row = dict[str, Any]
Rows = Callable[..., list[Row]]


def lost(rows: Rows) -> Iterator[str]:
    """What is not in sight, as sentences."""
    yield from _requests(rows)
    yield from _jobs(rows)
    yield from _questions(rows)
    yield from _messages(rows)
    for row in rows("SELECT id, state FROM bz_operations"):
        if row["state"] in ("planning", "running"):
            yield f"operation {row['id']} is {row['state']} and nobody works on it"


def _requests(rows: Rows) -> Iterator[str]:
    for row in rows("SELECT * FROM bz_usage_requests"):
        states = row["result_state"], row["billing_state"]
        name = f"request {row['operation_id']}"
        if row["result_state"] == "dispatched":
            yield f"{name} is dispatched and nobody owns it"
        elif row["billing_state"] == "pending" and not row["pending_reason"]:
            yield f"{name} is {states} without a reason"
        elif row["billing_state"] == "open" and row["result_state"] != "admitted":
            yield f"{name} is {states}"
        elif row["result_state"] == "failed" and not row["error_code"]:
            yield f"{name} is failed without a word"


def _jobs(rows: Rows) -> Iterator[str]:
    jobs = {row["id"]: row for row in rows("SELECT * FROM bz_jobs")}
    for row in jobs.values():
        name = f"job {row['id']}"
        if row["target"] == "agent" and row["state"] in ("queued", "running"):
            yield f"{name} is {row['state']} and nobody runs it"
        if row["state"] == "waiting" and not row["waiting_reason"]:
            yield f"{name} waits for nothing"
        if row["state"] in ("failed", "refused", "parked") and not row["error_code"]:
            yield f"{name} is {row['state']} without a word"
    for row in rows("SELECT * FROM bz_tool_calls WHERE state = 'dispatching'"):
        job = jobs.get(row["job_id"], {})
        if job.get("state") == "waiting" and job["waiting_reason"] != Waiting.CALL_UNCERTAIN:
            yield f"call {row['id']} is uncertain and its job waits for {job['waiting_reason']}"


def _questions(rows: Rows) -> Iterator[str]:
    for row in rows(
        "SELECT a.id, a.state, j.state AS job FROM bz_approvals a"
        " JOIN bz_jobs j ON j.id = a.job_id WHERE a.state = 'open'"
    ):
        if row["job"] != "waiting":
            yield f"approval {row['id']} is open and its job is {row['job']}"
    for row in rows("SELECT * FROM bz_approval_continuations WHERE state = 'owed'"):
        yield f"the decision about {row['approval_id']} is owed: {row['error_text']}"


def _messages(rows: Rows) -> Iterator[str]:
    letters = {
        row["notification_id"] for row in rows("SELECT notification_id FROM bz_delivery_dlq")
    }
    children = {row["id"] for row in rows("SELECT id FROM bz_jobs WHERE target = 'executor'")}
    for row in rows("SELECT * FROM bz_notifications"):
        name = f"message {row['id']}"
        if row["state"] == "dead" and row["id"] not in letters:
            yield f"{name} is dead without a dead letter"
        if row["state"] == "with_executor" and row["child_job_id"] not in children:
            yield f"{name} is with an executor that has no job for it"
        if row["state"] in ("queued", "sending") and row["channel"] != "executor":
            yield f"{name} is {row['state']} and nobody sends it"
