"""Claims: fair between destinations, in order within one, by one index, under a lease (F1)."""

import threading
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from kernel import clock
from kernel.conf import override
from kernel.delivery import claims, destinations
from kernel.delivery.claims import Claimed, claim
from kernel.ids import new_id
from kernel.models import Destination, Notification
from tests.delivery import post
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("kernel_db")

ROWS = 2000


def ids(claimed: list[Claimed]) -> list[str]:
    return [each.id for each in claimed]


def test_a_claim_takes_the_oldest_due_and_nothing_twice() -> None:
    post.destination()
    queued = post.queued(3)
    with override(destination_slots_count_max=2):
        first = post.take()
        assert ids(first) == queued[:2]
        assert ids(post.take(ops=1)) == queued[2:]
        assert post.take() == []
    row = post.reread(queued[0])
    assert (row.state, row.owner, row.fence_token) == ("sending", "snd_a", first[0].fence_token)
    assert first[0].number == 1 and first[0].secret_env == post.SECRET_ENV


def test_no_destination_takes_the_slots_of_another() -> None:
    for name in ("hanging", "healthy"):
        post.destination(name)
    post.queued(20, to="hanging")
    healthy = post.queued(3, to="healthy")
    taken = post.take(100)
    assert [each.destination_id for each in taken].count("hanging") == 4
    assert {each.id for each in taken if each.destination_id == "healthy"} == set(healthy)
    assert {each.destination_id for each in post.take(100, hanging=4)} == set()
    more = post.queued(1, to="healthy")
    assert ids(post.take(100, hanging=4, healthy=3)) == more


def test_the_limit_holds_over_all_destinations() -> None:
    for number in range(5):
        post.destination(f"d{number}")
        post.queued(2, to=f"d{number}")
    assert len(post.take(3)) == 3
    assert post.take(0) == []


def test_what_is_not_due_or_has_no_active_destination_stays() -> None:
    row = post.destination()
    later, now = post.queued(2)
    Notification.objects.filter(id=later).update(due_at=clock.db_now() + timedelta(hours=1))
    assert ids(post.take()) == [now]
    post.due_now(later)
    destinations.change_destination(
        destination_id="ops", seen_version=row.version, actor=post.ANN, active=False
    )
    assert post.take() == []
    assert post.reread(later).state == "queued"


def test_what_is_due_within_the_second_is_claimed_at_once() -> None:
    """Microseconds are kept: no rounding into the future."""
    post.destination()
    (one,) = post.queued()
    now = clock.db_now()
    Notification.objects.filter(id=one).update(due_at=now)
    assert post.reread(one).due_at == now
    assert ids(post.take()) == [one]


def test_a_message_whose_transaction_commits_later_is_not_skipped(server_db: None) -> None:
    """No watermark: what was inserted first and committed last is found by its state."""
    post.destination()
    inserted, let_go = threading.Event(), threading.Event()
    slow: list[str] = []

    def publish_slowly() -> None:
        def act() -> None:
            slow.extend(post.outbox.publish_in_tx(account_id="acme", event="message", data={}))
            inserted.set()
            assert let_go.wait(10)

        try:
            post.in_tx(act=act)
        finally:
            connection.close()

    thread = threading.Thread(target=publish_slowly)
    thread.start()
    assert inserted.wait(10)
    (quick,) = post.queued()
    assert ids(post.take()) == [quick]
    let_go.set()
    thread.join(10)
    assert ids(post.take()) == slow


# --- circuits ---------------------------------------------------------------------------------


def close() -> None:
    destinations.close_destination(
        destination_id="ops", actor=post.ANN, reason="maintenance", seconds=60
    )


def test_a_closed_destination_is_left_alone_and_loses_no_attempts() -> None:
    post.destination()
    (one,) = post.queued()
    close()
    for _ in range(5):
        assert post.take() == []
    row = post.reread(one)
    assert (row.state, row.attempts) == ("queued", 0)
    destinations.open_destination(destination_id="ops", actor=post.ANN)
    assert ids(post.take()) == [one]


def test_when_the_time_is_over_one_process_sends_one_probe() -> None:
    post.destination()
    queued = post.queued(5)
    close()
    post.let_reopen()
    probe = post.take(owner="snd_a")
    assert ids(probe) == queued[:1] and probe[0].is_probe
    assert post.take(owner="snd_b") == [], "the probe is under way elsewhere"
    post.delivered(probe[0])
    assert ids(post.take(owner="snd_b")) == queued[1:]


def test_a_probe_that_fails_closes_it_again() -> None:
    post.destination()
    post.queued(3)
    close()
    post.let_reopen()
    post.failed(post.take_one())
    assert post.take() == []
    until = Destination.objects.get(id="ops").closed_until_at
    assert until is not None and until > clock.db_now()


# --- plans, locks, clocks ---------------------------------------------------------------------


@pytest.fixture
def many(server_db: None) -> None:
    """Most are delivered, as in real tables."""
    post.destination()
    start = clock.db_now() - timedelta(days=1)
    rows = []
    for number in range(ROWS):
        at = start + timedelta(seconds=number)
        rows.append(
            Notification(
                id=new_id("ntf"),
                account_id="acme",
                kind="delivery",
                channel="webhook",
                recipient="https://hooks.example",
                content=b"{}",
                state="queued" if number % 10 == 0 else "delivered",
                destination_id="ops" if number % 3 else "other",
                due_at=at,
                created_at=at,
                updated_at=at,
            )
        )
    Notification.objects.bulk_create(rows, batch_size=500)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE bz_notifications")
        cursor.fetchall()


def plans(sql_part: str) -> list[dict[str, Any]]:
    """How the server runs the statement of a claim that holds `sql_part`."""
    found: list[tuple[str, Any]] = []

    def keep(execute: Any, sql: str, params: Any, many: bool, ctx: Any) -> Any:
        if sql_part in sql:
            found.append((sql, params))
        return execute(sql, params, many, ctx)

    with connection.execute_wrapper(keep):
        assert post.take(4)
    ((sql, params),) = found
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}", params)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def test_candidates_are_picked_by_one_index_without_sorting(many: None) -> None:
    (plan,) = plans("SKIP LOCKED")
    assert plan["key"] == "bz_notification_dest", plan
    assert "filesort" not in (plan["Extra"] or ""), plan
    assert int(plan["rows"]) < ROWS / 5, plan


def test_looking_for_something_due_never_lists_all_that_is_due(many: None) -> None:
    _, inner = plans("FROM bz_destinations")
    assert inner["select_type"] == "DEPENDENT SUBQUERY", inner
    assert inner["key"] == "bz_notification_dest", inner
    assert "filesort" not in (inner["Extra"] or ""), inner


def test_two_senders_take_different_rows_and_no_publisher_waits(server_db: None) -> None:
    post.destination()
    queued = post.queued(50)
    reached, let_go = threading.Event(), threading.Event()
    taken: dict[str, list[str]] = {}

    def hold_a_claim() -> None:
        real = claims._claimed

        def slow(*args: Any, **fields: Any) -> Claimed:
            if threading.current_thread() is thread:
                reached.set()
                assert let_go.wait(10)
            return real(*args, **fields)

        try:
            with mock.patch.object(claims, "_claimed", slow):
                taken["a"] = ids(claim(owner="snd_a", limit=50, busy={}))
        finally:
            connection.close()

    thread = threading.Thread(target=hold_a_claim)
    thread.start()
    assert reached.wait(10)
    other = ids(_apart(lambda: claim(owner="snd_b", limit=50, busy={})))
    assert post.queued(1), "an insert waits for nobody"
    let_go.set()
    thread.join(10)
    assert len(other) == 4 and len(taken["a"]) == 4
    assert set(other) | set(taken["a"]) == set(queued[:8])


def _apart(act: Any) -> Any:
    """`act` on a connection of its own, in another thread."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(act())
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: not thread.is_alive(), about="a claim that nobody should hold up")
    return found[0]


@pytest.mark.parametrize("skew", [-90, 90])
def test_due_times_and_leases_are_judged_by_the_databases_clock(
    server_db: None, monkeypatch: pytest.MonkeyPatch, skew: int
) -> None:
    post.destination()
    real = clock.now
    monkeypatch.setattr("kernel.clock.now", lambda: real() + timedelta(seconds=skew))
    due, later = post.queued(2)
    in_a_minute = clock.db_now() + timedelta(seconds=60)
    Notification.objects.filter(id=later).update(due_at=in_a_minute)
    (claimed,) = post.take()
    assert claimed.id == due
    lease = post.reread(due).lease_expires_at
    assert lease is not None
    assert 85 < (lease - clock.db_now()).total_seconds() <= 90
