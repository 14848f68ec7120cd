"""Flows of a message: published, sent, given up, replayed, and many replayed by an operation."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel import audit, operations, outbox
from kernel.audit import Actor
from kernel.delivery import destinations
from kernel.models import DeadLetter, Job, Operation
from kernel.operations import freezing
from kernel.operations.filters import Filter
from kernel.transactions import transaction
from tests.delivery.letters import run_child
from tests.support import clerk, lives
from tests.support.delivery_data import End, attempt
from tests.support.messages import SECRET_ENV
from tests.support.sweep_flow import RECEIVER, Flow, Said, prepare_account

if TYPE_CHECKING:
    from tests.support.sweep import Scene
    from tests.support.sweep_child import Hand

OLGA = Actor("user", "olga")
HOOKS, RELAY = "hooks", "relay"
GONE: Said = (RECEIVER, "status_410", {})
MANY, PAGE = 4, 2
LOOKS, LOOK_SECONDS = 100, 0.02


# --- what is prepared -----------------------------------------------------------------------------


async def with_destinations(hand: "Hand") -> None:
    """A webhook of the receiver, and an executor."""
    await prepare_account(hand)

    def make() -> None:
        for name, channel, to, secret in (
            (HOOKS, "webhook", hand.facts["receiver_url"], SECRET_ENV),
            (RELAY, "executor", "crm:updates", ""),
        ):
            destinations.create_destination(
                account_id=lives.ACCOUNT,
                destination_id=name,
                channel=channel,
                address=to,
                events=["message"],
                secret_env=secret,
                allow_private=channel == "webhook",
                actor=OLGA,
            )

    await hand.db(make)


def form(name: str) -> Actor:
    """Who sends one form, however often: its act happens once, by a key that is inserted."""
    return Actor("user", "olga", act_key=f"form-{name}")


@transaction
def publish(*, destination: str = HOOKS, number: int = 1) -> str:
    """A message and its cause, in one transaction; the message's id."""
    audit.append_in_tx(
        actor=form(f"order-{number}"), action="order.place", kind="order", object_id=str(number)
    )
    (name,) = outbox.publish_in_tx(
        account_id=lives.ACCOUNT,
        event="message",
        data={"order": number, "note": "déjà vu 👨‍💻"},
        destination_id=destination,
    )
    return name


def give_up(number: int = 1) -> None:
    """A dead letter of the webhook."""
    attempt(publish(number=number), End("refused", "HTTP 410: gone", 410, is_final=True))


async def with_a_dead_letter(hand: "Hand") -> None:
    """One message that was given up."""
    await with_destinations(hand)
    await hand.db(give_up)
    hand.facts["letter"] = await hand.db(lambda: DeadLetter.objects.get().id)


async def with_a_dead_child(hand: "Hand") -> None:
    """One message whose executor failed."""
    await with_destinations(hand)
    await hand.db(publish, destination=RELAY)
    await hand.db(executor_reports, delivered=False)
    hand.facts["letter"] = await hand.db(lambda: DeadLetter.objects.get().id)


async def with_dead_letters(hand: "Hand") -> None:
    """Some messages that were given up."""
    await with_destinations(hand)
    for number in range(MANY):
        await hand.db(give_up, number=number)


# --- what is done ---------------------------------------------------------------------------------


async def order(hand: "Hand", *, destination: str = HOOKS) -> None:
    """The cause, and the sender that sends what it entails. The repeat finds that it happened.

    One after the other: nothing is being sent while a process dies at the cause.
    """
    await hand.tried(publish, destination=destination)
    hand.start_work()


def executor_reports(*, delivered: bool) -> None:
    """The executor claims what waits for it, and says what came of it."""
    for job in Job.objects.filter(target="executor", state="queued"):
        for _ in range(LOOKS):
            with contextlib.suppress(ValueError):  # somebody else looks at the row just now
                run_child(job.id, delivered=delivered)
                break
            time.sleep(LOOK_SECONDS)


async def order_by_executor(hand: "Hand") -> None:
    """The executor fails at it."""
    await order(hand, destination=RELAY)
    await hand.tried(executor_reports, delivered=False)


async def replay(hand: "Hand") -> None:
    """An operator replays the dead letter; then the sender goes on."""
    await hand.tried(clerk.replay, dead_letter_id=hand.facts["letter"])
    hand.start_work()


async def replay_by_executor(hand: "Hand") -> None:
    """The same, and the executor does it this time."""
    await replay(hand)
    await hand.tried(executor_reports, delivered=True)


async def operate(hand: "Hand") -> None:
    """Plan, apply, work off: whichever step is due. What it queues is sent by the replacement."""
    if await hand.db(Operation.objects.first) is None:
        await hand.tried(
            partial(
                operations.plan_replay,
                filter=Filter(destination_id=HOOKS),
                actor=form("plan"),
                reason="it is back",
                rate_per_second=1000,
            )
        )
    await hand.passes("operations")  # a large set is frozen by whoever works operations off
    row = await hand.db(Operation.objects.first)
    if row is not None and row.state == "planned":
        await hand.tried(
            operations.apply, operation_id=row.id, actor=form("apply"), seen_digest=row.digest
        )
    await hand.passes("operations")


def in_small_chunks() -> None:
    """A set of some is a large one."""
    freezing.CHUNK_ROWS = PAGE


# --- what must be true ----------------------------------------------------------------------------


def is_delivered(scene: "Scene") -> Iterator[str]:
    """Every message arrived; twice only where the fault stood in the window, and is shown there."""
    for row in scene.rows(
        "SELECT * FROM bz_notifications WHERE replay_of_id <> '' OR state <> 'dead'"
    ):
        if row["state"] != "delivered":
            yield f"{row['id']} is {row['state']}: {row['error_text']}"
        if row["unknown_attempts"] and not scene.may_be("message"):
            yield f"{row['id']} may have arrived twice, though nothing was lost while it was sent"


def one_arrived(scene: "Scene") -> Iterator[str]:
    """One message, delivered."""
    yield from is_delivered(scene)
    count = len(scene.rows("SELECT id FROM bz_notifications"))
    if count != 1:
        yield f"there are {count} messages"


def is_given_up(scene: "Scene") -> Iterator[str]:
    """One dead letter; or it was sent again from the window, and was taken."""
    states = [row["state"] for row in scene.rows("SELECT state FROM bz_notifications")]
    letters = len(scene.rows("SELECT id FROM bz_delivery_dlq"))
    if (states, letters) != (["dead"], 1) and not (
        scene.may_be("message") and (states, letters) == (["delivered"], 0)
    ):
        yield f"the messages are {states}, with {letters} dead letters"


def is_replayed(scene: "Scene") -> Iterator[str]:
    """Every dead letter is resolved, admitted once, and what was admitted is delivered."""
    for row in scene.rows("SELECT * FROM bz_delivery_dlq"):
        if row["state"] != "resolved":
            yield f"{row['id']} is {row['state']}"
        admitted = scene.rows(
            "SELECT id FROM bz_audit WHERE subject = %s AND action = 'dead_letter.replay'",
            f"dead_letter:{row['id']}",
        )
        if len(admitted) != 1:
            yield f"{row['id']} was admitted {len(admitted)} times"
    yield from is_delivered(scene)


def is_replayed_by_executor(scene: "Scene") -> Iterator[str]:
    """Resolved, admitted once, done by the executor once more."""
    yield from is_replayed(scene)
    for row in scene.rows("SELECT * FROM bz_jobs WHERE target = 'executor'"):
        if row["state"] != "done":
            yield f"the child is {row['state']}"
    ends = [row["outcome"] for row in scene.rows("SELECT * FROM bz_delivery_attempts")]
    if sorted(ends) != ["delivered", "refused"]:
        yield f"the attempts are {ends}"


def is_worked_off(scene: "Scene") -> Iterator[str]:
    """One operation, done, each of its items once."""
    rows = scene.rows("SELECT * FROM bz_operations")
    found = [(row["state"], row["done_count"], row["skipped_count"]) for row in rows]
    if found != [("done", MANY, 0)]:
        yield f"the operations are {found}"
    yield from is_replayed(scene)
    calls = scene.receiver.sent(scene.receiver_path)  # type: ignore[attr-defined]
    ids = [one.headers.get("webhook-id") for one in calls]
    if len(set(ids)) != MANY:
        yield f"{len(set(ids))} of {MANY} messages arrived"


def operation(name: str, boundaries: int, arrange: Callable[[], Any]) -> Flow:
    """A bulk replay."""
    return Flow(
        name,
        boundaries,
        prepare=with_dead_letters,
        act=operate,
        again=operate,
        check=is_worked_off,
        arrange=arrange,
        limits={
            "BAILING_OPERATION_PAGE_ROWS": str(PAGE),
            "BAILING_DESTINATION_FAILURES_COUNT_MAX": "1000",
        },
    )


DELIVERY = (
    Flow("message sent", 8, prepare=with_destinations, act=order, again=order, check=one_arrived),
    Flow(
        "message given up",
        8,
        prepare=with_destinations,
        act=order,
        again=order,
        says=(GONE,),
        check=is_given_up,
    ),
    Flow(
        "executor gives up",
        6,
        prepare=with_destinations,
        act=order_by_executor,
        again=order_by_executor,
        check=is_given_up,
    ),
    Flow(
        "dead letter replayed",
        10,
        prepare=with_a_dead_letter,
        act=replay,
        again=replay,
        check=is_replayed,
    ),
    Flow(
        "executor's dead letter replayed",
        8,
        prepare=with_a_dead_child,
        act=replay_by_executor,
        again=replay_by_executor,
        check=is_replayed_by_executor,
    ),
    operation("bulk operation", 28, lambda: None),
    operation("large bulk operation", 40, in_small_chunks),
)
