"""What must be true after every act, told by a model of its own: rows, calls and answers.

Nothing here asks kernel/states.py or a verb: what may follow what is written down once more, rows
are read with plain SQL, and calls come from the list of what lies outside.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernel import invariants
from tests.support import history_told as told
from tests.support.faults import Violation
from tests.support.history_outside import CUT, NO_USAGE, OK, PROVIDER, RECEIVER, SHOP, Call

if TYPE_CHECKING:
    from tests.support.history_world import World

Row = dict[str, Any]
Rows = dict[str, dict[Any, Row]]

# Table: its key, its columns of state with the states that may follow each, and what never changes
# once it is set.
NEXT: dict[str, dict[str, set[str]]] = {
    "result_state": told.LATER,
    "billing_state": {
        "open": {"pending", "settled", "not_charged"},
        "pending": {"settled", "not_charged"},
    },
    "job": {
        "queued": {"running", "waiting", "done", "failed", "refused", "cancelled", "parked"},
        "running": {"queued", "waiting", "done", "failed", "refused", "cancelled", "parked"},
        "waiting": {"queued", "running", "done", "failed", "refused", "cancelled", "parked"},
        "parked": {"queued", "running", "waiting", "done", "failed", "refused", "cancelled"},
    },
    "tool_call": {
        "proposed": {"dispatching", "done", "failed"},
        "dispatching": {"proposed", "done", "failed"},
    },
    "approval": {
        "open": {"approved", "denied", "expired", "cancelled", "consumed"},
        "approved": {"cancelled", "expired", "consumed"},
        "consumed": {"approved", "expired", "cancelled"},
    },
    "continuation": {"owed": {"done"}},
    "notification": {
        "queued": {"sending", "delivered", "dead"},
        "sending": {"queued", "delivered", "dead"},
    },
    "dead_letter": {"open": {"resolved"}},
}
FOR_AN_OPERATOR = ("tool_uncertain", "outcome_unknown")
TABLES: dict[str, tuple[str, str, dict[str, str], tuple[str, ...]]] = {
    "requests": (
        "SELECT * FROM bz_usage_requests",
        "id",
        {"result_state": "result_state", "billing_state": "billing_state"},
        (
            *("operation_id", "content_sha256", "price_text", "multiplier_millionths"),
            *("fence_token", "owner", "dispatched_at", "result_sha256", "billed_nano"),
        ),
    ),
    "ledger": ("SELECT * FROM bz_usage_ledger", "id", {}, ("request_id", "amount_nano")),
    "jobs": ("SELECT * FROM bz_jobs", "id", {"state": "job"}, ("request_id", "result_text")),
    "calls": (
        "SELECT * FROM bz_tool_calls",
        "id",
        {"state": "tool_call"},
        ("idempotency_key", "arguments_sha256", "finished_at"),
    ),
    "approvals": (
        "SELECT * FROM bz_approvals",
        "id",
        {"state": "approval"},
        ("arguments_sha256", "decision", "decision_id", "decided_by_id", "decided_at"),
    ),
    "continuations": (
        "SELECT * FROM bz_approval_continuations",
        "approval_id",
        {"state": "continuation"},
        ("decision_id", "decision", "job_id"),
    ),
    "notifications": (
        "SELECT * FROM bz_notifications",
        "id",
        {"state": "notification"},
        ("content", "recipient", "replay_of_id"),
    ),
    "attempts": (
        "SELECT * FROM bz_delivery_attempts",
        "id",
        {},
        ("notification_id", "number", "outcome"),
    ),
    "letters": (
        "SELECT * FROM bz_delivery_dlq",
        "id",
        {"state": "dead_letter"},
        ("notification_id", "content", "replay_identity", "resolved_at"),
    ),
}
UNSET = (None, "", b"")
# What retention takes, and only once its row ended so long ago (when this was first seen, that is:
# a little after it). Table: the table that says so, what an ended row's state is.
RETAINED_SECONDS = 89.9 * 24 * 3600
ENDED = {
    "jobs": {"done", "failed", "refused", "cancelled"},
    "notifications": {"delivered", "dead"},
    "letters": {"resolved"},
}
PURGED = {"jobs": "result_text", "letters": "content"}


class Facts:
    """Compares what is there with what was there, with what was called and with what was said."""

    def __init__(self, world: "World"):
        self._world = world
        self._ended_at: dict[str, float] = {}
        self.purged: set[str] = set()  # notifications whose attempts retention has taken
        self.now: Rows = self._read()

    def check(self) -> None:
        """After an act."""
        before, self.now = self.now, self._read()
        self._see_ends()
        self._raise(
            [
                *self._world.defects,
                *self._moves(before),
                *self._reasons(),
                *self._money(),
                *self._provider(),
                *self._shop(),
                *told.contradictions(self._world, self.now),
            ]
        )

    def check_end(self) -> None:
        """After everything came home: nothing moves, and every numbered invariant holds."""
        moving = [f"{what} never comes to rest" for what in self.on_its_way()]
        broken = [str(report) for report in invariants.check_all() if not report.holds]
        self._raise([*moving, *broken, *self._charges(), *self._messages()])

    def _see_ends(self) -> None:
        for table, states in ENDED.items():
            for key, row in self.now[table].items():
                if row["state"] in states:
                    self._ended_at.setdefault(key, self._world.clock.monotonic())

    def _is_old(self, key: str) -> bool:
        """Whether retention may take what belongs to this row."""
        ended_at = self._ended_at.get(key)
        return ended_at is not None and (
            self._world.clock.monotonic() - ended_at >= RETAINED_SECONDS
        )

    def _raise(self, found: list[str]) -> None:
        if found:
            raise Violation("; ".join(found))

    def _read(self) -> Rows:
        return {
            name: {row[key]: row for row in self._world.rows(statement)}
            for name, (statement, key, _, _) in TABLES.items()
        }

    def sorted(self, table: str) -> list[Row]:
        """The rows of a table as they were at the last look, in the order they came."""
        return [row for _, row in sorted(self.now[table].items())]

    def on_its_way(self) -> list[str]:
        """What a living process still has to do something about."""
        now = self.now
        found = [
            f"request {row['operation_id']} ({row['result_state']} / {row['billing_state']})"
            for row in now["requests"].values()
            if row["result_state"] == "dispatched"
            or (row["billing_state"] == "pending" and not row["pending_reason"])
        ]
        found += [
            f"job {row['request_id']} ({row['state']})"
            for row in now["jobs"].values()
            if row["state"] in ("queued", "running") or self._waits_for_nobody(row)
        ]
        found += [
            f"continuation of {key} ({now['jobs'][row['job_id']]['state']})"
            for key, row in now["continuations"].items()
            if row["state"] == "owed"
            # Owed until an operator says what became of another call of the same job.
            and now["jobs"][row["job_id"]]["waiting_reason"] not in FOR_AN_OPERATOR
        ]
        found += [
            f"notification {row['id']} ({row['state']})"
            for row in now["notifications"].values()
            if row["state"] in ("queued", "sending")
        ]
        return found

    def _waits_for_nobody(self, job: Row) -> bool:
        """It waits for an operator's word, which has been said: the next pass lets it go on."""
        if job["state"] != "waiting" or job["waiting_reason"] not in FOR_AN_OPERATOR:
            return False
        requests, calls = self.now["requests"].values(), self.now["calls"].values()
        unsaid = [row["operation_id"] for row in requests if row["result_state"] == "unknown"]
        unsaid += [row["job_id"] for row in calls if row["state"] == "dispatching"]
        return not any(job["id"] in each for each in unsaid)

    # --- rows ---------------------------------------------------------------------------------

    def _moves(self, before: Rows) -> Iterator[str]:
        """Nothing vanishes; states move forward only; what is set stays."""
        for table, old_rows in before.items():
            _, _, columns, constant = TABLES[table]
            for key, old in old_rows.items():
                new = self.now[table].get(key)
                if new is None and table == "attempts" and self._is_old(old["notification_id"]):
                    self.purged.add(old["notification_id"])
                    continue
                if new is None:
                    yield f"{table}: {key} is gone"
                    continue
                for column, machine in columns.items():
                    after = NEXT[machine].get(old[column], set())
                    if new[column] != old[column] and new[column] not in after:
                        yield f"{table}: {key} went from {old[column]} to {new[column]}"
                for column in constant:
                    if PURGED.get(table) == column and new[column] in UNSET and self._is_old(key):
                        continue
                    if old[column] not in UNSET and new[column] != old[column]:
                        yield f"{table}: {column} of {key} changed"
        for key, row in before.get("jobs", {}).items():
            kept = told.keys(row["approval_continuation_keys"])
            left = told.keys(self.now["jobs"].get(key, row)["approval_continuation_keys"])
            if not set(kept) <= set(left):
                yield f"jobs: {key} lost a marker"

    def _reasons(self) -> Iterator[str]:
        """What does not move by itself says why."""
        for row in self.now["requests"].values():
            pending = row["billing_state"] == "pending"
            if pending and not row["pending_reason"] and not row["usage_text"]:
                yield f"{row['operation_id']} is pending without a reason"
            if row["result_state"] == "failed" and not (row["error_code"] or row["http_status"]):
                yield f"{row['operation_id']} failed without a reason"
        for row in self.now["jobs"].values():
            if row["state"] == "waiting" and not row["waiting_reason"]:
                yield f"job {row['id']} waits without a reason"
            if row["state"] in ("failed", "parked") and not row["error_code"]:
                yield f"job {row['id']} is {row['state']} without a reason"

    def _money(self) -> Iterator[str]:
        """At most one charge per request; the account's sums are those of its rows."""
        ledger, requests = self.now["ledger"].values(), self.now["requests"].values()
        for request_id, count in Counter(row["request_id"] for row in ledger).items():
            if count > 1:
                yield f"{count} ledger rows of {request_id}"
        charged = {row["request_id"] for row in ledger}
        for row in requests:
            if (row["billing_state"] == "settled") != (row["id"] in charged):
                yield f"{row['operation_id']} is {row['billing_state']}, against the ledger"
        (account,) = self._world.rows("SELECT * FROM bz_usage_accounts")
        if account["consumed_nano"] != (total := sum(row["amount_nano"] for row in ledger)):
            yield f"consumed {account['consumed_nano']}, the ledger says {total}"
        holding = ("open", "pending")
        held = sum(row["hold_nano"] for row in requests if row["billing_state"] in holding)
        if account["held_nano"] != held:
            yield f"held {account['held_nano']}, the requests hold {held}"

    # --- calls --------------------------------------------------------------------------------

    def _provider(self) -> Iterator[str]:
        """One call per request, only after its durable dispatch, by its owner; results are its."""
        calls: dict[str, list[Call]] = {}
        for call in self._world.outside.of(PROVIDER):
            calls.setdefault(call.key, []).append(call)
        for key, made in calls.items():
            row = self.now["requests"].get(key)
            if row is None:
                yield f"the provider was called as {key}, which nobody asked for"
                continue
            if len(made) > 1:
                yield f"{len(made)} provider calls of {row['operation_id']}"
            state, owner = made[0].seen.get("result_state"), made[0].seen.get("owner")
            if state in (None, "admitted") or owner != f"krn_{made[0].process}":
                yield f"the provider was called for {row['operation_id']}: {state} of {owner}"
            if row["result_state"] == "complete":
                digest = hashlib.sha256(made[0].said).hexdigest()
                if digest != row["result_sha256"]:
                    yield f"the result of {row['operation_id']} is not what the provider said"
        for row in self.now["requests"].values():
            if row["result_state"] == "complete" and row["id"] not in calls:
                yield f"{row['operation_id']} is complete without a call"

    def _shop(self) -> Iterator[str]:
        """One call per key, only when dispatched, under a used grant, with the approved bytes."""
        made = self._world.outside.of(SHOP)
        for key, count in Counter(call.key for call in made).items():
            if count > 1:
                yield f"the shop was called {count} times as {key}"
        for call in made:
            seen = call.seen
            if seen.get("state") != "dispatching":
                yield f"the shop was called as {call.key}: {seen.get('state')}"
            elif seen["approval_id"] and seen["grant_state"] != "consumed":
                yield f"the shop was called as {call.key}, its grant {seen['grant_state']}"
            elif seen["approval_id"] and call.body.decode() != seen["approved"]:
                yield f"the shop got other bytes as {call.key} than were approved"

    def _charges(self) -> Iterator[str]:
        """The provider's list against the ledger: what it metered is charged, and nothing else."""
        resolved = {row["id"] for row in self.now["requests"].values() if row["resolved_at"]}
        metered = {
            call.key
            for call in self._world.outside.of(PROVIDER)
            if call.met in (OK, CUT, NO_USAGE) and b'"usage"' in call.said
        }
        for row in self.now["ledger"].values():
            key = row["request_id"]
            if key not in metered and key not in resolved:
                yield f"{key} is charged, the provider never metered it"
            if row["amount_nano"] != 62_500:
                yield f"{key} is charged {row['amount_nano']}"
        for row in self.now["requests"].values():
            is_metered = row["id"] in metered and row["result_state"] == "complete"
            if is_metered and row["billing_state"] != "settled" and row["id"] not in resolved:
                yield f"{row['operation_id']} was metered and is {row['billing_state']}"

    def _messages(self) -> Iterator[str]:
        """A message arrives as often as its attempts say, under the id of the first."""
        return told.messages(self._world.outside.of(RECEIVER), self.now, purged=self.purged)
