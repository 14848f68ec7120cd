"""Every state machine: the states, who moves a row out of each, the allowed moves. Read this first.

`docs/state-machines.md` is rendered from this file (`manage.py state_machines`); a test keeps it
true.
Rows move only by compare-and-set: `moves_to(...)` names the states a verb may start from.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """One state: its name, what it means, and who moves a row out of it ('' = final)."""

    name: str
    means: str
    left_by: str


@dataclass(frozen=True, slots=True)
class Move:
    """One allowed move, the verb that makes it and the requirement it serves."""

    source: str
    target: str
    verb: str  # names of verbs, separated by commas; a remark in brackets may follow a name
    requirement: str

    @property
    def verbs(self) -> tuple[str, ...]:
        """The names alone."""
        return tuple(name.split()[0] for name in self.verb.split(", "))


@dataclass(frozen=True, slots=True)
class Machine:
    """A state machine of one column."""

    name: str
    column: str
    states: tuple[State, ...]
    moves: tuple[Move, ...]

    def moves_to(self, target: str, *, by: str = "") -> frozenset[str]:
        """The states from which a row may move to `target`; with `by`, through that verb."""
        return frozenset(
            move.source
            for move in self.moves
            if move.target == target and (not by or by in move.verbs)
        )


class Result:
    """Names of the result states of a model request."""

    ADMITTED = "admitted"
    DISPATCHED = "dispatched"
    COMPLETE = "complete"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


class Billing:
    """Names of the billing states of a model request."""

    OPEN = "open"
    PENDING = "pending"
    SETTLED = "settled"
    NOT_CHARGED = "not_charged"


RESULT = Machine(
    name="Model request: result",
    column="bz_usage_requests.result_state",
    states=(
        State(
            "admitted", "Durable, not sent. Survives restart.", "dispatch or cancel, both explicit"
        ),
        State(
            "dispatched",
            "The decision to send is durable.",
            "the owner's fence, or an expired lease",
        ),
        State("complete", "The provider's bytes are saved.", ""),
        State("failed", "Refused, not sent, failed in stream, or resolved by an operator.", ""),
        State(
            "unknown",
            "Sent, outcome not known. Never sent again.",
            "the original fence or an operator",
        ),
        State("cancelled", "Cancelled by its caller or an operator.", ""),
    ),
    moves=(
        Move("admitted", "dispatched", "dispatch", "A4"),
        Move("admitted", "cancelled", "cancel", "A3, A16"),
        Move("dispatched", "complete", "save_results", "A6"),
        Move("dispatched", "failed", "save_results", "A7"),
        Move("dispatched", "unknown", "save_results, expire_leases", "A7, A9"),
        Move("dispatched", "cancelled", "cancel", "A16"),
        Move("unknown", "complete", "save_results (original fence)", "A6"),
        Move("unknown", "failed", "resolve_unknown", "A9"),
    ),
)

BILLING = Machine(
    name="Model request: billing",
    column="bz_usage_requests.billing_state",
    states=(
        State("open", "Nothing to charge yet; the hold stays.", "the result"),
        State(
            "pending",
            "Owed or not yet known; `pending_reason` says why.",
            "settlement or an operator",
        ),
        State("settled", "One ledger row exists. Never changes.", ""),
        State(
            "not_charged",
            "Nothing is owed; `pending_reason` says why. Never changes.",
            "",
        ),
    ),
    moves=(
        Move("open", "pending", "save_results, expire_leases, cancel", "A7"),
        Move("open", "not_charged", "save_results, cancel", "A7"),
        Move("pending", "settled", "settle", "A14"),
        Move(
            "pending",
            "not_charged",
            "write_off, resolve_unknown, save_results (a cancelled call that used nothing)",
            "A9, A11b, A16",
        ),
    ),
)

JOB = Machine(
    name="Job",
    column="bz_jobs.state",
    states=(
        State("queued", "Waits for a worker.", "claim"),
        State(
            "running", "Owned by a worker until its lease ends.", "the worker's fence, or reclaim"
        ),
        State("waiting", "Waits for a person; `waiting_reason` says for what.", "a decision"),
        State("done", "Finished with a result.", ""),
        State("failed", "Finished without a result.", ""),
        State("refused", "A decision refused it.", ""),
        State("cancelled", "Cancelled.", ""),
        State("parked", "Set aside, e.g. after it killed its workers.", "an operator"),
    ),
    moves=(),
)

APPROVAL = Machine(
    name="Approval",
    column="bz_approvals.state",
    states=(
        State("open", "Waits for a decision.", "decide, expiry, cancel"),
        State("approved", "Approved; the grant is usable once.", "consume"),
        State("denied", "Denied.", ""),
        State("expired", "Nobody decided in time.", ""),
        State("cancelled", "Its job was cancelled.", ""),
        State("consumed", "The grant was used by its tool call.", ""),
    ),
    moves=(),
)

NOTIFICATION = Machine(
    name="Notification",
    column="bz_notifications.state",
    states=(
        State("queued", "Waits to be sent.", "claim"),
        State("sending", "Owned by a sender until its lease ends.", "the sender's fence"),
        State("delivered", "The receiver acknowledged it.", ""),
        State("dead", "Final failure; a dead letter holds it.", "replay, as a new admission"),
    ),
    moves=(),
)

DEAD_LETTER = Machine(
    name="Dead letter",
    column="bz_delivery_dlq.state",
    states=(
        State("open", "Waits for an operator.", "replay or archive"),
        State("resolved", "Replayed; stays so for good.", ""),
        State("archived", "Set aside with a reason.", ""),
    ),
    moves=(),
)

MACHINES = (RESULT, BILLING)
LATER_MACHINES = (JOB, APPROVAL, NOTIFICATION, DEAD_LETTER)

RESULT_STATES = tuple(state.name for state in RESULT.states)
BILLING_STATES = tuple(state.name for state in BILLING.states)
