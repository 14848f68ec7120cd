"""The outbox: intents in the transaction that causes them, alerts within their windows (F1)."""

import json
from datetime import timedelta
from functools import partial
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kernel import clock, outbox, schema
from kernel.delivery import alerts, destinations
from kernel.errors import Conflict, InvalidInput, NotFound, Unavailable
from kernel.models import AlertWindow, Job, Notification
from tests.delivery import post

pytestmark = pytest.mark.usefixtures("kernel_db")


class Boom(Exception):
    """What a test's own fault raises."""


@pytest.mark.parametrize(
    ("event", "prefixes", "fits"),
    [
        ("job.finished", ["job"], True),
        ("job.finished", ["job.finished"], True),
        ("job.finished", ["jo"], False),
        ("job.finished", ["job."], False),
        ("jobs", ["job"], False),
        ("job.finished", ["approval", "job"], True),
        ("job.finished", [], False),
    ],
)
def test_a_prefix_names_events_dot_by_dot(event: str, prefixes: list[str], fits: bool) -> None:
    assert outbox.matches(event, prefixes) is fits


def test_each_destination_that_asked_gets_its_own_row() -> None:
    for name, events in (("a", ["job"]), ("b", ["job.finished"]), ("c", ["approval"])):
        post.destination(name, events=events)
    post.destination("other", account_id="beta", events=["job"])
    ids = post.publish("job.finished", request_id="req-1", job_id="job_1")
    rows = Notification.objects.order_by("destination_id")
    assert [row.destination_id for row in rows] == ["a", "b"]
    assert {row.id for row in rows} == set(ids)
    assert {(row.kind, row.state, row.job_id, row.account_id) for row in rows} == {
        ("callback", "queued", "job_1", "acme")
    }


def test_the_bytes_are_made_once_and_name_event_time_and_data() -> None:
    post.destination()
    (one,) = post.publish(data={"text": "né 😀"})
    value = json.loads(bytes(post.reread(one).content))
    assert value["type"] == "message" and value["data"] == {"text": "né 😀"}
    assert value["timestamp"].endswith("Z")


def test_what_rolls_back_publishes_nothing() -> None:
    post.destination()

    def act() -> None:
        outbox.publish_in_tx(account_id="acme", event="message", data={})
        raise Boom

    with pytest.raises(Boom):
        post.in_tx(act=act)
    assert not Notification.objects.exists()


@pytest.mark.parametrize(
    "data", [{"x": float("nan")}, {"x": "\ud83d"}, {"x": b"bytes"}, {"x": "y" * 300_000}]
)
def test_what_could_not_be_delivered_is_refused_at_once(data: dict[str, object]) -> None:
    post.destination()
    with pytest.raises(InvalidInput) as refusal:
        post.publish(data=data)
    assert refusal.value.field == "data"
    assert not Notification.objects.exists()


def test_nobody_who_asked_costs_two_small_looks() -> None:
    post.account()
    post.publish()
    with CaptureQueriesContext(connection) as queries:
        assert post.publish("job.finished") == []
    looks = [one["sql"] for one in queries if "bz_" in one["sql"]]
    assert len(looks) == 2, looks


def test_an_inactive_destination_takes_nothing_new() -> None:
    row = post.destination()
    destinations.change_destination(
        destination_id="ops", seen_version=row.version, actor=post.ANN, active=False
    )
    assert post.publish() == []
    with pytest.raises(Conflict) as refusal:
        post.publish(destination_id="ops")
    assert refusal.value.error_code == "destination_inactive"


def test_a_named_destination_gets_it_whatever_it_asked_for_but_only_from_its_account() -> None:
    post.destination("a", events=["job"])
    post.destination("b", events=["job"])
    assert len(post.publish("message", destination_id="a")) == 1
    with pytest.raises(NotFound):
        post.publish("message", account_id="beta", destination_id="a")
    assert post.events() == [("message", "a", "queued")]


def test_an_executor_gets_a_child_job_in_the_same_transaction() -> None:
    post.destination(channel="executor", address="room-7", events=["job"])
    (one,) = post.publish("job.finished", job_id="job_parent", request_id="req-1")
    row = post.reread(one)
    child = Job.objects.get(id=row.child_job_id)
    assert (row.state, child.state, child.target) == ("with_executor", "queued", "executor")
    assert (child.parent_id, child.request_id, child.account_id) == ("job_parent", one, "acme")
    told = json.loads(child.input_text)
    assert told["recipient"] == "room-7" and told["notification_id"] == one
    assert told["content"].encode() == bytes(row.content)


def test_without_0069_nothing_is_published_and_nothing_fails() -> None:
    post.account()
    absent = Unavailable("absent", migration=schema.DELIVERY)
    with mock.patch.object(schema, "require", side_effect=absent):
        assert post.publish("job.finished") == []


# --- alerts -----------------------------------------------------------------------------------


def event(name: str = "dead_letter.created", account_id: str = "acme", number: int = 0):
    return outbox.Event(account_id, name, {"n": number})


def happen(*events: outbox.Event) -> list[str]:
    return post.in_tx(act=partial(outbox.publish_all_in_tx, events=events))


def test_a_thousand_events_make_one_alert_and_the_next_one_counts_them() -> None:
    post.destination()
    post.rule(cooldown_seconds=300)
    for start in range(0, 1000, 50):
        happen(*(event(number=start + n) for n in range(50)))
    (one,) = Notification.objects.all()
    assert (one.kind, one.event) == ("alert", "alert.dead_letter.created")
    assert AlertWindow.objects.get().suppressed == 999
    past = clock.db_now() - timedelta(seconds=301)
    AlertWindow.objects.update(fired_at=past)
    (second,) = happen(event(number=1000))
    assert post.data_of(second)["kept_back_since_the_last"] == 999
    assert AlertWindow.objects.get().suppressed == 0


def test_each_account_has_its_own_window_whatever_the_ids_are() -> None:
    post.destination()
    post.rule()
    assert len(happen(event(account_id="acme"), event(account_id="beta"))) == 2
    assert happen(event(account_id="acme"), event(account_id="beta")) == []
    told = [post.data_of(one.id)["account_id"] for one in Notification.objects.order_by("id")]
    assert sorted(told) == ["acme", "beta"]
    assert {row.account_id for row in Notification.objects.all()} == {"acme"}, "whose it goes to"


def test_rules_have_windows_of_their_own_and_an_inactive_one_is_silent() -> None:
    post.destination()
    post.rule(rule_id="r1")
    post.rule("request", rule_id="r2")
    post.rule(rule_id="r3", cooldown_seconds=1)
    alerts.change_rule(rule_id="r3", actor=post.ANN, active=False)
    assert len(happen(event(), event("request.unknown"))) == 2
    assert {row.rule_id for row in AlertWindow.objects.all()} == {"r1", "r2"}


def test_an_alert_is_no_event_and_a_message_is_none_either() -> None:
    post.destination()
    post.rule()
    assert happen(event("alert.dead_letter.created")) == []
    assert len(happen(event("message"))) == 1, "the message itself, and no alert"
    assert not AlertWindow.objects.exists()


def test_the_window_is_judged_by_the_databases_clock(
    server_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    post.destination()
    post.rule(cooldown_seconds=60)
    real = clock.now
    for skew in (-90, 90):
        monkeypatch.setattr("kernel.clock.now", lambda skew=skew: real() + timedelta(seconds=skew))
        happen(event())
    assert Notification.objects.count() == 1
