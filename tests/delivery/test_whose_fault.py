"""Whose fault it is when everything fails: evidence is silence, fresh and unanswered (F2, F3)."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kernel import clock
from kernel.conf import conf, override
from kernel.delivery import recovery, schedule, sending
from kernel.delivery.claims import Claimed
from kernel.models import DeadLetter, DeliveryAttempt, Destination, Notification
from tests.delivery import post

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture
def hard() -> Iterator[None]:
    """One failure closes a destination; a message has two attempts."""
    with override(destination_failures_count_max=1, notification_attempts_max=2):
        yield


def fail_at_once(*names: str, outcome: str = "not_sent") -> list[str]:
    """Each of them has a message whose last attempt fails, one after the other: their states."""
    for name in names:
        post.destination(name)
        post.queued(1, to=name)
    status = 500 if outcome == "refused" else None
    for one in post.take():
        post.failed(one, outcome, http_status=status)
    for name in names:
        post.let_reopen(name)
    Notification.objects.filter(destination_id__in=names).update(due_at=clock.db_now())
    return [post.failed(one, outcome, http_status=status).state for one in post.take()]


def try_again(name: str, outcome: str = "not_sent") -> str:
    """One more attempt at the message of this destination: its state."""
    post.let_reopen(name)
    Notification.objects.filter(destination_id=name).update(due_at=clock.db_now())
    return post.failed(post.take_one(), outcome, http_status=None).state


def test_nothing_dies_while_everybody_who_is_tried_fails_at_once(hard: None) -> None:
    """Then it is our network, not their receivers. Who is idle does not testify against them."""
    post.destination("idle")
    assert fail_at_once("a", "b") == ["queued", "queued"]
    assert try_again("b", "unknown") == "queued"
    post.queued(1, to="idle")
    post.delivered(post.take_one())
    assert try_again("b") == "dead", "another one works"


def test_an_executor_that_comes_to_us_does_not_prove_our_way_out(hard: None) -> None:
    assert fail_at_once("a", "b") == ["queued", "queued"]
    deliver("a", channel="executor")
    assert try_again("b") == "queued"
    deliver("a", channel="webhook")
    assert try_again("b") == "dead", "and this one does"


def test_who_answers_is_at_fault_itself(hard: None) -> None:
    assert fail_at_once("a", "b", outcome="refused") == ["dead", "dead"]


def test_a_single_destination_has_nobody_to_be_compared_with(hard: None) -> None:
    post.destination("idle")
    assert fail_at_once("a") == ["dead"]


def test_a_lost_sender_waits_as_well_while_everybody_fails(hard: None) -> None:
    assert fail_at_once("a", "b") == ["queued", "queued"]
    post.let_reopen("b")
    Notification.objects.filter(destination_id="b").update(due_at=clock.db_now())
    one = post.take_one()
    post.let_lease_end(one.id)
    assert recovery.reclaim(notification_id=one.id)
    assert post.reread(one.id).state == "queued"


# --- evidence that is none -----------------------------------------------------------------------


def deliver(name: str, *, channel: str) -> None:
    """Something to this destination is delivered over this channel."""
    (one,) = post.queued(1, to=name)
    Notification.objects.filter(id=one).update(
        state="delivered", channel=channel, updated_at=clock.db_now()
    )
    DeliveryAttempt.objects.create(
        notification_id=one,
        number=1,
        outcome="delivered",
        started_at=clock.db_now(),
        ended_at=clock.db_now(),
    )


def age(name: str, **ago: float) -> None:
    """What was sent to this destination was sent that long ago; its closing is over."""
    past = clock.db_now() - timedelta(**ago)
    ids = Notification.objects.filter(destination_id=name).values_list("id", flat=True)
    rows = DeliveryAttempt.objects.filter(notification_id__in=list(ids))
    rows.update(started_at=past, ended_at=past)
    Destination.objects.filter(id=name).update(closed_until_at=past)


def silent_once(name: str) -> None:
    """A message to it gets no answer, and nothing is due there any more."""
    post.destination(name)
    post.queued(1, to=name)
    assert post.failed(post.take_one(), "not_sent", http_status=None).state == "queued"
    put_off(name)


def put_off(name: str) -> None:
    """What waits for this destination is not due today."""
    later = clock.db_now() + timedelta(days=1)
    Notification.objects.filter(destination_id=name, state="queued").update(due_at=later)


LONGEST = conf.notification_retry_max_seconds * (1 + schedule.JITTER)


@pytest.mark.parametrize(("seconds", "state"), [(LONGEST - 60, "queued"), (LONGEST + 1, "dead")])
def test_a_silence_counts_for_the_longest_wait_of_the_schedule(
    hard: None, seconds: float, state: str
) -> None:
    silent_once("b")
    age("b", seconds=seconds)
    assert fail_at_once("a") == [state]


def test_a_destination_that_failed_weeks_ago_is_no_evidence(hard: None) -> None:
    assert fail_at_once("b", outcome="refused") == ["dead"]
    age("b", days=60)
    assert fail_at_once("a") == ["dead"]


def test_who_answers_with_errors_all_the_time_proves_that_our_network_works(hard: None) -> None:
    post.destination("a")
    post.destination("b")
    post.queued(1, to="a")
    states = []
    for _ in range(2):
        post.queued(1, to="b")
        for name in ("a", "b"):
            post.let_reopen(name)
        Notification.objects.filter(state="queued").update(due_at=clock.db_now())
        for one in sorted(post.take(), key=lambda one: one.destination_id, reverse=True):
            if one.destination_id == "b":
                post.failed(one, "refused", http_status=500)
            else:
                states.append(post.failed(one, "not_sent", http_status=None).state)
    assert states == ["queued", "dead"]


@pytest.mark.parametrize(
    ("outcome", "http_status"), [("refused", None), ("unknown", 200), ("refused", 503)]
)
def test_an_answer_after_the_silence_takes_the_evidence_away(
    hard: None, outcome: str, http_status: int | None
) -> None:
    """A mail server refuses without an HTTP status; a broken answer began with one."""
    silent_once("b")
    post.destination("c")
    post.queued(1, to="c")
    post.failed(post.take_one(), outcome, http_status=http_status)
    put_off("c")
    assert fail_at_once("a") == ["dead"]


def test_an_answer_before_the_silence_takes_nothing_away(hard: None) -> None:
    post.destination("c")
    deliver("c", channel="webhook")
    silent_once("b")
    assert fail_at_once("a") == ["queued"]


def test_an_answer_since_the_last_attempt_counts_though_another_was_silent_after_it(
    hard: None,
) -> None:
    post.destination("a")
    post.destination("c")
    post.queued(1, to="a")
    post.failed(post.take_one(), "not_sent", http_status=None)
    deliver("c", channel="webhook")
    put_off("a")
    silent_once("b")
    Notification.objects.filter(destination_id="a").update(due_at=clock.db_now())
    post.let_reopen("a")
    assert post.failed(post.take_one(), "not_sent", http_status=None).state == "dead"


def test_an_answer_that_is_recorded_with_the_silence_counts(hard: None) -> None:
    assert fail_at_once("a", "b") == ["queued", "queued"]
    post.let_reopen("b")
    Notification.objects.filter(destination_id="b").update(due_at=clock.db_now())
    last: Claimed = post.take_one()
    post.destination("c")
    post.queued(1, to="c")
    found = sending.record_attempts(
        items=[
            sending.Report(last, "not_sent"),
            sending.Report(post.take_one(), "refused", http_status=500),
        ]
    )
    assert [one.state for one in found if isinstance(one, sending.Recorded)] == ["dead", "queued"]


def test_a_destination_that_is_switched_off_is_no_evidence(hard: None) -> None:
    silent_once("b")
    Destination.objects.filter(id="b").update(active=False)
    assert fail_at_once("a") == ["dead"]


# --- bounds --------------------------------------------------------------------------------------


def test_no_message_waits_longer_than_three_times_its_attempts(hard: None) -> None:
    assert fail_at_once("a", "b") == ["queued", "queued"]
    states = [try_again("b") for _ in range(3, 7)]
    assert states == ["queued", "queued", "queued", "dead"], "the sixth attempt is the last"
    assert DeadLetter.objects.get().error_text.startswith("circuit_open: ")


LARGE = frozenset({"bz_delivery_attempts", "bz_notifications"})
SEEN = 100


def test_evidence_is_found_by_ids_among_the_newest_attempts(
    hard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.db_now()
    for number in range(3000, 0, -1000):
        DeliveryAttempt.objects.bulk_create(
            DeliveryAttempt(
                notification_id=f"old_{number - one}",
                number=1,
                outcome="not_sent",
                started_at=now,
                ended_at=now,
            )
            for one in range(1000)
        )
    assert fail_at_once("a", "b") == ["queued", "queued"]
    with connection.cursor() as cursor:
        analyze = "ANALYZE" if connection.vendor == "sqlite" else "ANALYZE TABLE"
        cursor.execute(f"{analyze} bz_delivery_attempts")
        cursor.fetchall()
    monkeypatch.setattr(sending, "SEEN_ROWS_MAX", SEEN)
    row = Notification.objects.get(destination_id="b")
    with CaptureQueriesContext(connection) as seen:
        assert sending.is_fault_ours(notification_id=row.id)
        assert sending.is_fault_ours(notification_id="none")
    statements = [one["sql"] for one in seen.captured_queries if "delivery_att" in one["sql"]]
    assert len(statements) >= 8
    for statement in statements:
        for reads in plan_of(statement):
            if connection.vendor == "sqlite":
                assert not any(f"SCAN {name}" in reads["detail"] for name in LARGE), reads
            elif reads["table"] is not None:
                assert int(reads["rows"]) < 2 * SEEN, (statement, reads)


def plan_of(sql: str) -> list[dict[str, Any]]:
    """How the database runs this statement, step by step."""
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {sql}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
