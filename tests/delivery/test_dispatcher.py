"""The dispatcher of a running kernel: what is due is sent, fairly, and recorded (F1, F2, G3)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DataError, OperationalError

from kernel import clock, outbox
from kernel.conf import override
from kernel.delivery import dispatcher, signing
from kernel.delivery.ends import End
from kernel.delivery.mail import Mailer
from kernel.delivery.sending import Report
from kernel.kernel import Kernel
from kernel.models import DeliveryAttempt, Notification
from tests.delivery import post
from tests.support.product import look, look_apart, running_kernel
from tests.support.receiver import Receiver
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(post.SECRET_ENV, post.SECRET)


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    async with Receiver(tmp_path) as running:
        yield running


async def do(act: Callable[..., Any], *args: Any, **fields: Any) -> Any:
    """Touch rows on a thread of their own."""
    return await look_apart(partial(act, *args, **fields))


async def place(receiver: Receiver, *names: str, count: int = 0, **fields: Any) -> list[str]:
    """Destinations at the receiver, with messages for each."""
    ids: list[str] = []
    for name in names:
        await do(post.destination, name, address=receiver.url(name), **fields)
        ids += await do(post.queued, count, to=name)
    return ids


async def ended(ids: list[str], state: str = "delivered", deadline: float = 15.0) -> None:
    async def all_are() -> bool:
        found = await do(lambda: Notification.objects.filter(id__in=ids, state=state).count())
        return bool(found == len(ids))

    await wait_until_async(all_are, deadline=deadline, about=f"all are {state}")


def states(ids: list[str]) -> list[str]:
    return list(Notification.objects.filter(id__in=ids).values_list("state", flat=True))


async def test_what_was_published_arrives_signed_and_once(receiver: Receiver) -> None:
    ids = await place(receiver, "ops", count=5)
    async with running_kernel(worker=True):
        await ended(ids)
    got = receiver.messages("ops")
    assert [each.id for each in got] == ids, "each once, in order"
    for each in got:
        signing.verify(
            headers=each.headers,
            body=each.body,
            secrets=[post.SECRET],
            now=clock.now(),
            tolerance_seconds=60,
        )


async def test_a_kernel_without_workers_sends_nothing(receiver: Receiver) -> None:
    ids = await place(receiver, "ops", count=1)
    async with running_kernel() as kernel:
        assert not kernel.dispatcher.is_started
        await kernel.tick()
    assert await do(states, ids) == ["queued"]


async def test_a_second_attempt_has_the_same_id_and_bytes_and_a_new_signature(
    receiver: Receiver,
) -> None:
    receiver.answers["ops"] = [500, 200]
    (one,) = await place(receiver, "ops", count=1)
    with override(notification_retry_first_seconds=1):
        async with running_kernel(worker=True):
            await ended([one])
    first, second = receiver.messages("ops")
    assert first.id == second.id == one and first.body == second.body
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    numbers = await do(
        lambda: list(DeliveryAttempt.objects.order_by("number").values_list("outcome", flat=True))
    )
    assert numbers == ["refused", "delivered"]


async def arrive(receiver: Receiver, count: int) -> float:
    """Seconds until so many messages have arrived at the receiver in all."""
    started = time.monotonic()
    await wait_until_async(
        lambda: asyncio.sleep(0, receiver.count() >= count), about=f"{count} messages", deadline=20
    )
    return time.monotonic() - started


async def test_one_hanging_peer_holds_nobody_else_up(receiver: Receiver) -> None:
    """20 messages to a peer that sleeps for 15 s, 50 to a healthy one: those are done in 2 s."""
    await place(receiver, "alone", count=50)
    async with running_kernel(worker=True):
        alone = await arrive(receiver, 50)
    receiver.hold_seconds["hanging"] = 15.0
    hanging = await place(receiver, "hanging", count=20)
    healthy = await place(receiver, "healthy", count=50)
    async with running_kernel(worker=True):
        took = await arrive(receiver, 50 + 50 + 4)
        await ended(healthy)
        assert receiver.running["hanging"] == 4, "its own slots, no more; not one has ended"
        assert set(await do(states, hanging)) == {"queued", "sending"}
        receiver.hold_seconds["hanging"] = 0.0
        receiver.release()
        await ended(hanging)
    # A busy machine is slow with and without the peer that hangs.
    assert took < max(2.0, 3 * alone), (took, alone)
    assert receiver.most_at_once["hanging"] <= 4
    assert receiver.most_at_once["healthy"] <= 4
    order = [each.id for each in receiver.messages("healthy")]
    assert all(abs(order.index(one) - healthy.index(one)) < 4 for one in healthy), "in order"


async def test_more_hanging_peers_than_slots_hold_no_healthy_one_up(receiver: Receiver) -> None:
    """Thirty peers that hang could take all slots three times over."""
    names = [f"hanging-{number}" for number in range(30)]
    receiver.hold_seconds |= dict.fromkeys(names, 60.0)
    with override(notification_page_rows=10):
        await place(receiver, *names, count=1)
        healthy = await place(receiver, "one", "other", count=5)
        async with running_kernel(worker=True):
            began = time.monotonic()
            await ended(healthy)
            took = time.monotonic() - began
            assert sum(receiver.running[name] for name in names if name in receiver.running) > 10
            receiver.hold_seconds.clear()
            receiver.release()
    assert took < 20, "long before one of those that hang has ended"


async def test_what_is_slow_has_a_bound_of_its_own(receiver: Receiver) -> None:
    receiver.hold_seconds |= {"a": 15.0, "b": 15.0}
    await place(receiver, "a", "b", count=8)
    limits = {"notification_page_rows": 2, "notification_slow_count_max": 3}
    with override(**limits, notification_slow_seconds=0.1, notification_poll_seconds=0.05):
        async with running_kernel(worker=True) as kernel:
            await arrive(receiver, 5)
            await asyncio.sleep(0.5)  # time for one too many
            assert kernel.dispatcher.running == receiver.count() == 5
            receiver.hold_seconds.clear()
            receiver.release()


async def test_a_timeout_is_unknown_and_may_be_a_duplicate(receiver: Receiver) -> None:
    receiver.hold_seconds["ops"] = 30.0
    (one,) = await place(receiver, "ops", count=1)
    with override(notification_deadline_seconds=1):
        async with running_kernel(worker=True):

            async def attempted() -> bool:
                return bool(await do(DeliveryAttempt.objects.exists))

            await wait_until_async(attempted, about="the attempt is recorded")
    (attempt,) = await do(post.attempts_of, one)
    assert attempt.outcome == "unknown"
    assert (await do(post.reread, one)).unknown_attempts == 1


# --- recording ---------------------------------------------------------------------------------


async def meets(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Report], None]
) -> str:
    """One message is delivered while `fault` looks at each recording; returns its id."""
    real = dispatcher.record_attempts

    def faulty(*, items: Sequence[Report]) -> Any:
        for item in items:
            fault(item)
        return real(items=items)

    monkeypatch.setattr(dispatcher, "record_attempts", faulty)
    (one,) = await place(receiver, "ops", count=1)
    async with running_kernel(worker=True):
        await ended([one])
    return one


async def test_an_outcome_that_cannot_be_written_at_first_is_never_sent_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [OperationalError(2006, "gone away"), OperationalError(1205, "lock wait")]

    def fault(report: Report) -> None:
        if faults:
            raise faults.pop()

    one = await meets(receiver, monkeypatch, fault)
    assert len(receiver.messages("ops")) == 1
    assert len(await do(post.attempts_of, one)) == 1


async def test_words_that_the_database_refuses_do_not_change_the_outcome(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fault(report: Report) -> None:
        tried.append(report.evidence)
        if report.evidence:
            raise DataError(1366, "Incorrect string value")

    one = await meets(receiver, monkeypatch, fault)
    assert tried == ["HTTP 200 ok", ""]
    (attempt,) = await do(post.attempts_of, one)
    assert (attempt.outcome, attempt.evidence_text) == ("delivered", "")
    assert len(receiver.messages("ops")) == 1


async def test_a_message_that_cannot_be_formatted_is_an_attempt_that_says_so(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise KeyError("amount")

    monkeypatch.setattr("kernel.delivery.channels._headers", broken)
    (one,) = await place(receiver, "ops", count=1)
    async with running_kernel(worker=True):

        async def tried() -> bool:
            return bool(await do(post.attempts_of, one))

        await wait_until_async(tried, about="the attempt is a row")
    (attempt,) = await do(post.attempts_of, one)
    assert (attempt.outcome, attempt.evidence_text) == (
        "unknown",
        "internal error: KeyError: 'amount'",
    )
    assert attempt.next_due_at is not None, "it is tried again: a later version may format it"
    assert await do(states, [one]) == ["queued"] and receiver.messages() == []


def test_evidence_becomes_ascii_before_it_is_dropped() -> None:
    assert dispatcher.plainer("no 👨‍💻") == "no \\U0001f468\\u200d\\U0001f4bb"
    assert dispatcher.plainer("no") == ""


async def test_a_sender_that_was_held_up_past_its_lease_sends_nothing(receiver: Receiver) -> None:
    (one,) = await place(receiver, "ops", count=1)
    async with running_kernel() as kernel:
        (claimed,) = await look(kernel, post.take)
        await kernel.dispatcher._send(claimed, lease_until=clock.monotonic() + 1)
        assert receiver.messages() == []
        (attempt,) = await look(kernel, partial(post.attempts_of, one))
        assert attempt.outcome == "not_sent"


async def test_an_attempt_never_outlives_its_lease(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the settings say: else another sender would send the same at the same time."""
    await place(receiver, "ops", count=1)
    async with running_kernel() as kernel:
        (claimed,) = await look(kernel, post.take)
        given: list[float] = []

        async def send(message: Any, *, deadline_seconds: float) -> End:
            given.append(deadline_seconds)
            return End("delivered")

        monkeypatch.setattr(
            kernel.dispatcher, "_channels", SimpleNamespace(send=send, mailer=Mailer())
        )
        with override(notification_lease_seconds=10, notification_deadline_seconds=300):
            await kernel.dispatcher._send(claimed, lease_until=clock.monotonic() + 10)
    assert 7 < given[0] <= 8


# --- closing -----------------------------------------------------------------------------------


async def test_close_waits_for_what_has_begun_and_leaves_the_rest_in_the_table(
    receiver: Receiver,
) -> None:
    receiver.hold_seconds["ops"] = 0.3
    ids = await place(receiver, "ops", count=30)
    kernel = Kernel(worker=True)
    await kernel.initialize()
    await wait_until_async(lambda: asyncio.sleep(0, receiver.running.get("ops")), about="a start")
    report = await kernel.close(10)
    assert report.drained, report.left
    found = await do(states, ids)
    assert set(found) <= {"delivered", "queued"} and "queued" in found
    assert found.count("delivered") == len(receiver.messages())


async def test_what_draining_work_publishes_is_still_sent(receiver: Receiver) -> None:
    await place(receiver, "ops", events=["message"])
    kernel = Kernel(worker=True)
    await kernel.initialize()
    reached, go_on = asyncio.Event(), asyncio.Event()

    def publish() -> None:
        post.in_tx(
            act=partial(
                outbox.publish_in_tx, account_id="acme", event="message", data={"late": True}
            )
        )

    async def monitor() -> None:
        reached.set()
        await go_on.wait()
        await kernel.database.in_tx(publish)

    kernel.background.start("maintenance", monitor())
    await reached.wait()
    closing = asyncio.create_task(kernel.close(10))
    await asyncio.sleep(0.05)
    assert not closing.done() and kernel.dispatcher.is_started
    go_on.set()
    report = await closing
    assert report.drained, report.left
    assert len(receiver.messages("ops")) == 1


async def test_a_close_that_runs_out_of_time_names_what_is_left_and_can_be_repeated(
    receiver: Receiver,
) -> None:
    receiver.hold_seconds["ops"] = 2.0
    ids = await place(receiver, "ops", count=1)
    kernel = Kernel(worker=True)
    await kernel.initialize()
    await wait_until_async(lambda: asyncio.sleep(0, receiver.running.get("ops")), about="a start")
    first = await kernel.close(0.2)
    assert not first.drained and first.left == {"delivery": 1}
    second = await kernel.close(10)
    assert second.drained, second.left
    assert await do(states, ids) == ["delivered"]


async def test_due_messages_that_piled_up_keep_to_the_slots(receiver: Receiver) -> None:
    receiver.hold_seconds["ops"] = 0.01
    ids = await place(receiver, "ops", count=100)
    past = timedelta(seconds=60)
    await do(lambda: Notification.objects.update(due_at=clock.db_now() - past))
    async with running_kernel(worker=True):
        await ended(ids, deadline=30)
    assert receiver.most_at_once["ops"] <= 4
    assert len({each.id for each in receiver.messages()}) == len(receiver.messages()) == 100
