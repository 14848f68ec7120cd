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
    key: str = "id"  # the primary key of its table

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


class JobState:
    """Names of the states of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    PARKED = "parked"


class Waiting:
    """Names of what a waiting job waits for (`bz_jobs.waiting_reason`)."""

    APPROVAL = "approval"
    MODEL_UNKNOWN = "outcome_unknown"  # a model step whose outcome is unknown (D2)
    CALL_UNCERTAIN = "tool_uncertain"  # a tool call left in `dispatching` (D3)


class CallState:
    """Names of the states of a tool call."""

    PROPOSED = "proposed"
    DISPATCHING = "dispatching"
    DONE = "done"
    FAILED = "failed"


class ApprovalState:
    """Names of the states of an approval."""

    OPEN = "open"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CONSUMED = "consumed"


class NotificationState:
    """Names of the states of a notification."""

    QUEUED = "queued"
    SENDING = "sending"
    WITH_EXECUTOR = "with_executor"
    DELIVERED = "delivered"
    DEAD = "dead"


class Delivery:
    """The four outcomes of one attempt (F2)."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # the receiver said no
    NOT_SENT = "not_sent"  # proven: no byte left
    UNKNOWN = "unknown"  # it may have arrived; the next attempt may be a duplicate


class DeadLetterState:
    """Names of the states of a dead letter."""

    OPEN = "open"
    RESOLVED = "resolved"
    ARCHIVED = "archived"


class OperationState:
    """Names of the states of an operation."""

    PLANNING = "planning"
    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class Owed:
    """Names of the states of a continuation."""

    OWED = "owed"
    DONE = "done"


RESULT = Machine(
    name="Model request: result",
    column="bz_usage_requests.result_state",
    states=(
        State("admitted", "Durable, not sent. Survives restart.", "an explicit dispatch or cancel"),
        State("dispatched", "The decision to send is durable.", "the owner's fence, a lease's end"),
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
        State("not_charged", "Nothing is owed; `pending_reason` says why. Never changes.", ""),
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
        State("queued", "Waits for a worker.", "claim, or cancel"),
        State(
            "running",
            "Owned by a worker until its lease ends.",
            "the worker's fence; after the lease, reclaim",
        ),
        State(
            "waiting",
            "Waits for a person; `waiting_reason` says for what.",
            "a decision, an operator, or cancel",
        ),
        State("done", "Finished with a result.", ""),
        State(
            "failed",
            "Finished without a result; `error_code` says why.",
            "a replay, when it is a notification's child",
        ),
        State("refused", "A decision refused it, or nobody decided in time.", ""),
        State(
            "cancelled",
            "Cancelled by its caller or an operator.",
            "a replay, when it is a notification's child",
        ),
        State(
            "parked",
            "Set aside: it lost its workers too often.",
            "an operator; a replay, when it is a notification's child",
        ),
    ),
    moves=(
        Move("queued", "running", "claim", "D1"),
        Move("running", "queued", "release (nothing was lost), reclaim (the lease ended)", "D1"),
        Move("running", "parked", "reclaim, release (interrupted too often)", "D1"),
        Move("running", "waiting", "wait", "C1, D2, D3"),
        Move("running", "done", "finish", "D1"),
        Move("running", "failed", "finish", "D1"),
        Move("running", "refused", "finish", "C11"),
        Move("waiting", "queued", "requeue_approved_job_once, resume", "C5, D2, D3"),
        Move("waiting", "refused", "refuse", "C8"),
        Move("parked", "queued", "resume, requeue_delivery_job_once", "D1, F4"),
        Move("failed", "queued", "requeue_delivery_job_once", "F4"),
        Move("cancelled", "queued", "requeue_delivery_job_once", "F4"),
        *(Move(s, "cancelled", "cancel", "D1") for s in ("queued", "running", "waiting", "parked")),
    ),
)

TOOL_CALL = Machine(
    name="Tool call",
    column="bz_tool_calls.state",
    states=(
        State("proposed", "The model wants it; not sent.", "the job's worker, under its fence"),
        State(
            "dispatching",
            "The decision to send is durable; without an answer it is uncertain.",
            "the worker's fence or an operator",
        ),
        State("done", "The tool answered, or an operator found that it was done.", ""),
        State("failed", "Not executed: refused here, or an operator found so.", ""),
    ),
    moves=(
        Move("proposed", "dispatching", "begin_call", "D3, C12"),
        Move("proposed", "failed", "fail_call, cancel", "D4, C8"),
        Move("dispatching", "done", "finish_call, resolve_call", "D3"),
        Move("dispatching", "failed", "resolve_call", "D3"),
        Move("dispatching", "proposed", "give_back_call (proven not sent)", "C12"),
    ),
)

APPROVAL = Machine(
    name="Approval",
    column="bz_approvals.state",
    states=(
        State("open", "Waits for a decision.", "decide, expiry, cancel"),
        State(
            "approved",
            "Approved; the grant is usable once, until it expires.",
            "the call it is for",
        ),
        State("denied", "Denied.", ""),
        State("expired", "Nobody decided, or nobody used the grant, in time.", ""),
        State("cancelled", "Its job ended, or another question replaced it.", ""),
        State("consumed", "The grant was used by its tool call.", "a call that sent nothing"),
    ),
    moves=(
        Move("open", "approved", "decide", "C2"),
        Move("open", "denied", "decide", "C2"),
        Move("open", "expired", "decide (by timeout)", "C11"),
        Move("open", "cancelled", "void", "C8"),
        Move("approved", "cancelled", "void", "C8"),
        Move("approved", "expired", "begin_call", "C11"),
        Move("approved", "consumed", "begin_call", "C12"),
        Move("consumed", "approved", "give_back_call", "C12"),
    ),
)

CONTINUATION = Machine(
    name="Continuation",
    column="bz_approval_continuations.state",
    states=(
        State("owed", "A recorded decision is still to be carried through.", "carry_through"),
        State("done", "Carried through; the row stays.", ""),
    ),
    moves=(Move("owed", "done", "carry_through", "C4, C8"),),
    key="approval_id",
)

NOTIFICATION = Machine(
    name="Notification",
    column="bz_notifications.state",
    states=(
        State("queued", "Waits to be sent at its due time.", "claim"),
        State(
            "sending",
            "Owned by a sender until its lease ends.",
            "the sender's fence; after the lease, reclaim",
        ),
        State("with_executor", "Its child job is an executor's to send.", "the child's end"),
        State("delivered", "The receiver acknowledged it.", ""),
        State("dead", "Final failure; a dead letter holds it.", "replay of an executor's child"),
    ),
    moves=(
        Move("queued", "sending", "claim", "F1"),
        Move("sending", "delivered", "record_attempt", "F2"),
        Move("sending", "queued", "record_attempt (to be tried again), reclaim", "F2"),
        Move("sending", "dead", "record_attempt (final)", "F3"),
        Move("with_executor", "delivered", "end_child", "F7"),
        Move("with_executor", "dead", "end_child", "F3"),
        Move("dead", "with_executor", "replay (executor)", "F4"),
    ),
)

DEAD_LETTER = Machine(
    name="Dead letter",
    column="bz_delivery_dlq.state",
    states=(
        State("open", "Waits for an operator.", "replay or archive"),
        State("resolved", "Replayed; stays so for good.", ""),
        State("archived", "Set aside with a reason.", "restore"),
    ),
    moves=(
        Move("open", "resolved", "resolve (after the one admission)", "F5, F6"),
        Move("open", "archived", "archive", "F9"),
        Move("archived", "open", "restore", "F9"),
    ),
)

OPERATION = Machine(
    name="Operation",
    column="bz_operations.state",
    states=(
        State("planning", "A large set is being frozen.", "its last item, or cancel"),
        State("planned", "The set is frozen; nothing was done.", "apply or cancel"),
        State("running", "Items are worked off at its rate.", "its last item, pause or cancel"),
        State("paused", "Stopped by a person; what is done stays done.", "resume or cancel"),
        State("done", "Every item has its outcome.", ""),
        State("cancelled", "Ended by a person, or its set could not be frozen.", ""),
    ),
    moves=(
        Move("planning", "planned", "freeze", "F9"),
        Move("planning", "cancelled", "cancel, freeze (too many match, or none any more)", "F9"),
        Move("planned", "running", "apply", "F9"),
        Move("running", "paused", "pause", "F9"),
        Move("paused", "running", "resume", "F9"),
        Move("running", "done", "work (after the last item)", "F9"),
        *(Move(s, "cancelled", "cancel", "F9") for s in ("planned", "running", "paused")),
    ),
)

MACHINES = (
    RESULT,
    BILLING,
    JOB,
    TOOL_CALL,
    APPROVAL,
    CONTINUATION,
    NOTIFICATION,
    DEAD_LETTER,
    OPERATION,
)

RESULT_STATES = tuple(state.name for state in RESULT.states)
BILLING_STATES = tuple(state.name for state in BILLING.states)
