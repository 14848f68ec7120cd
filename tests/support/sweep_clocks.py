"""Time, as the sweep turns it: the leases of dead processes end, what waits for its time is due."""

from datetime import timedelta

from kernel.clock import db_now
from kernel.models import Continuation, Job, Notification, Operation, Request
from kernel.transactions import reading, transaction

LONG_AGO = timedelta(days=1)
SENT_BY_US = ("webhook", "email", "apprise")


def let_leases_end() -> None:
    """What waiting for the end of every lease would do. Only while no owner lives."""
    ended = db_now() - timedelta(seconds=1)
    Request.objects.filter(result_state="dispatched").update(lease_expires_at=ended)
    Job.objects.filter(state="running").update(lease_expires_at=ended)
    Notification.objects.filter(state="sending").update(lease_expires_at=ended)
    Operation.objects.exclude(owner="").update(lease_expires_at=ended)


@transaction  # the worker lives: a deadlock with it is tried again
def let_waits_end() -> None:
    """What waiting for the next attempt would do."""
    past = db_now() - LONG_AGO
    Job.objects.filter(state="queued", due_at__gt=db_now()).update(due_at=past)
    Notification.objects.filter(state="queued", due_at__gt=db_now()).update(due_at=past)
    Continuation.objects.filter(state="owed", next_attempt_at__gt=db_now()).update(
        next_attempt_at=past
    )


@reading
def due() -> dict[str, int]:
    """What a worker or a sender still has to do, by state; {} when there is nothing."""
    jobs = Job.objects.filter(target="agent")
    messages = Notification.objects.filter(channel__in=SENT_BY_US)
    found = {
        "jobs queued": jobs.filter(state="queued", due_at__lte=db_now()).count(),
        "jobs running": jobs.filter(state="running").count(),
        "messages queued": messages.filter(state="queued", due_at__lte=db_now()).count(),
        "messages sending": messages.filter(state="sending").count(),
    }
    return {name: count for name, count in found.items() if count}
