"""What racers do, in their own processes: a verb each, and what it came to. See racers.py."""

from collections.abc import Callable
from datetime import timedelta

from kernel import approvals, clock
from kernel.audit import Actor
from kernel.models import Approval, DeadLetter, Destination, Job
from kernel.state import DatabaseStore, Fence, JobRecord
from tests.delivery.letters import end_child
from tests.support import clerk, delivery_data, lives, work_data

STORE = DatabaseStore()
HOOKS, RELAY = "hooks", "relay"
GONE = delivery_data.End("refused", "HTTP 410: gone", 410, is_final=True)
Told = tuple[str, str]  # what it came to, and the name that goes with it


def _a_claimed_job(name: str, owner: str) -> JobRecord:
    """One more job, and one that this owner has claimed: others may claim at the same time."""
    work_data.submit(name, account=lives.ACCOUNT)
    (job,) = _claimed(owner, target="agent")
    return job


def ask(*, name: str) -> Told:
    """A job that waits for a decision; the id of its question."""
    job = _a_claimed_job(name, "worker-0")
    work_data.propose(job, [("refund_order", {"order_id": name, "amount": 40})])
    work_data.wait_for_approval(job, 1)
    return "asked", Approval.objects.get(job_id=job.id).id


def decide(*, approval_id: str, by: str) -> Told:
    """One approval by one person, carried through."""
    order = approvals.Decision(
        approval_id=approval_id,
        decision="approved",
        decision_id=f"d-{by}-{approval_id}",
        reason="looks right",
        actor=Actor("user", by),
    )
    approvals.decide_and_carry(order=order, store=STORE)
    return "decided", by


def hold(*, name: str, owner: str) -> Told:
    """A job that this owner has claimed, with a lease that lasts until its round; its id."""
    job = _a_claimed_job(name, owner)
    until = clock.db_now() + timedelta(hours=5)
    Job.objects.filter(id=job.id).update(lease_expires_at=until)
    return "held", job.id


def end_lease(*, job_id: str, **_: str) -> None:
    """Turn the clock of one lease: what waiting for its end would do."""
    Job.objects.filter(id=job_id).update(lease_expires_at=clock.db_now())


def take_over(*, job_id: str, by: str, lost: str) -> Told:
    """Reclaim what lost its lease and end it; who lost it comes with its own late end.

    One that is just looked at by another is skipped, so they look until it has ended.
    """
    if by == lost:
        STORE.finish(fence=Fence(job_id, lost, 1), state="done", result_text=by)
        return "finished", by
    while STORE.get(job_id=job_id).state != "done":
        STORE.reclaim(limit=5)
        for record in STORE.claim(owner=by, target="agent", limit=1):
            STORE.finish(fence=record.fence, state="done", result_text=by)
            return "finished", by
    return "found nothing", by


def admit(*, operation_id: str, account: str, service: str) -> Told:
    """One admission; the id of its request."""
    return "admitted", lives.admitted(operation_id, account=account, service=service).id


def give_up(*, number: int, executor: bool) -> Told:
    """A message that its receiver refused for good; the id of its dead letter."""
    # Destinations that failed often are closed, and nothing dies while they all are.
    Destination.objects.update(failures=0, closed_until_at=None)
    _, name = clerk.publish(
        account_id=lives.ACCOUNT,
        destination_id=RELAY if executor else HOOKS,
        event="message",
        data={"order": number},
    )
    if executor:
        name = _a_failed_child()
    else:
        delivery_data.attempt(name, GONE)
    return "dead", DeadLetter.objects.get(notification_id=name).id


def _a_failed_child() -> str:
    """An executor takes a child job and reports a failure; the notification that it was of."""
    (child,) = _claimed("tok_exec", target="executor")
    STORE.finish(
        fence=child.fence,
        state="failed",
        error_code="executor_failed",
        error_text="HTTP 410",
        also=lambda: end_child(child.id, delivered=False, error="HTTP 410"),
    )
    return child.request_id


def _claimed(owner: str, *, target: str) -> list[JobRecord]:
    """One job that is due, when there is one that nobody else is just taking."""
    while not (claimed := STORE.claim(owner=owner, target=target, limit=1)):
        pass
    return claimed


VERBS: dict[str, Callable[..., Told]] = {
    "ask": ask,
    "decide": decide,
    "hold": hold,
    "take_over": take_over,
    "admit": admit,
    "give_up": give_up,
    "replay": clerk.replay,
}
# What the first of a round does just before the barrier.
BEFORE: dict[str, Callable[..., None]] = {"take_over": end_lease}
