"""Notifications on screen: filters, attempts in words, bytes, links; constant queries (F1, F2)."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.migrated import is_migrated
from kernel import clock, outbox, schema
from kernel.access import ensure_roles
from kernel.conf import override
from kernel.models import Destination, Notification
from tests.support import delivery_data, lives

QUERIES_MAX = 14  # SQLite asks once per state, where the others have one UNION ALL
HOSTILE = "\\0 \ufffd 😀 \u202egnp.exe <script>alert(1)</script>"


@pytest.fixture
def post(db):
    """An account with its destinations."""
    ensure_roles()
    lives.open_account(delivery_data.ACCOUNT)
    delivery_data.make_destinations()


def test_the_list_costs_the_same_for_few_and_for_many(post, operator):
    delivery_data.publish()
    operator.get(reverse("notifications"))
    with CaptureQueriesContext(connection) as few:
        operator.get(reverse("notifications"))
    for number in range(8):
        delivery_data.dead_letter("HTTP 500", order=number)
    with CaptureQueriesContext(connection) as many:
        page = operator.get(reverse("notifications")).text
    assert len(many) == len(few) <= QUERIES_MAX
    assert not [one["sql"] for one in many if '"content"' in one["sql"]]
    assert page.count("notification_dead") == 0 and page.count("Dead") >= 8


def test_filters_narrow_the_list_and_a_bad_one_is_400(post, operator):
    queued = delivery_data.publish()
    mail = delivery_data.publish(delivery_data.MAIL, outbox.MESSAGE, text="hello")
    address = reverse("notifications")
    for query, shown in (
        ({"state": "queued"}, {queued, mail}),
        ({"state": "dead"}, set()),
        ({"kind": "callback"}, {queued}),
        ({"destination": delivery_data.MAIL}, {mail}),
        ({"destination": delivery_data.HOOKS, "account": delivery_data.ACCOUNT}, {queued}),
        ({"account": "another"}, set()),
    ):
        page = operator.get(address, query).text
        assert {one for one in (queued, mail) if reverse("notification", args=[one]) in page} == (
            shown
        ), query
    assert operator.get(address, {"state": "asleep"}).status_code == 400
    assert operator.get(address, {"kind": "pigeon"}).status_code == 400
    assert "No notification matches" in operator.get(address, {"account": "another"}).text


def test_pages_follow_each_other_without_gaps(post, operator):
    names = [delivery_data.publish(order=number) for number in range(7)]
    Notification.objects.update(updated_at=clock.db_now())  # all in the same instant
    seen, address = [], reverse("notifications")
    while address:
        with override(list_page_rows=3):
            response = operator.get(address)
        seen += [one["row"].id for one in response.context["rows"]]
        older = response.context["page"].older
        address = f"{reverse('notifications')}?after={older}" if older else ""
    assert sorted(seen) == sorted(names)


def test_attempts_are_a_timeline_and_an_unknown_one_is_a_possible_duplicate(post, operator):
    name = delivery_data.publish()
    delivery_data.attempt(name, delivery_data.End("not_sent", "connection refused"))
    delivery_data.attempt(name, delivery_data.End("unknown", "no answer"))
    page = operator.get(reverse("notification", args=[name])).text
    assert "Attempt 1: not sent" in page and "Attempt 2: unknown" in page
    assert "A possible duplicate" in page and "may have it already" in page
    assert "Next attempt" in page and "due" in page
    delivery_data.attempt(name, delivery_data.End("delivered", "", 204))
    page = operator.get(reverse("notification", args=[name])).text
    assert "Attempt 3: delivered" in page and "204" in page and "Next attempt" not in page


def test_hostile_evidence_is_shown_escaped_and_the_list_holds(post, operator):
    name = delivery_data.publish(note=HOSTILE)
    delivery_data.attempt(name, delivery_data.End("refused", HOSTILE + "\x00", 500))
    page = operator.get(reverse("notification", args=[name]))
    assert page.status_code == 200
    assert "<script>alert(1)" not in page.text and "U+202E" in page.text
    assert operator.get(reverse("notifications")).status_code == 200


def test_the_bytes_are_shown_within_a_budget_and_downloaded_whole(post, operator):
    name = delivery_data.publish(text="x" * 20_000)
    page = operator.get(reverse("notification", args=[name])).text
    assert "this page shows no more" in page and "x" * 10_000 not in page
    answer = operator.get(reverse("notification-content", args=[name]))
    assert answer.content == bytes(Notification.objects.get(id=name).content)
    assert answer["Content-Disposition"].startswith("attachment")


def test_a_dead_one_leads_to_its_dead_letter_and_a_replay_back(post, operator):
    letter = delivery_data.dead_letter("HTTP 500")
    newer = delivery_data.fail_again(letter)
    replayed = Notification.objects.get(replay_of_id=letter)
    page = operator.get(reverse("notification", args=[replayed.id])).text
    assert reverse("dead-letter", args=[letter]) in page
    assert reverse("dead-letter", args=[newer]) in page
    first = Notification.objects.exclude(id=replayed.id).get()
    assert first.id in page, "the receiver sees the id of the first one"


def test_what_is_due_and_not_sent_says_so_and_why(post, operator):
    name = delivery_data.publish()
    late = clock.db_now() - timedelta(minutes=5)
    Notification.objects.filter(id=name).update(due_at=late)
    assert "Overdue" in operator.get(reverse("notifications")).text
    assert "No sender has taken it" in operator.get(reverse("notification", args=[name])).text
    delivery_data.close()
    page = operator.get(reverse("notification", args=[name])).text
    assert "does not take anything" in page


def test_the_keys_of_a_chat_service_are_not_shown(post, operator):
    Destination.objects.filter(id=delivery_data.MAIL).update(
        channel="apprise", address="slack://T0SECRET/B0SECRET/xyz"
    )
    name = delivery_data.publish(delivery_data.MAIL, outbox.MESSAGE, text="hello")
    for address in (
        reverse("notifications"),
        reverse("notification", args=[name]),
        reverse("destinations"),
        reverse("destination", args=[delivery_data.MAIL]),
    ):
        page = operator.get(address).text
        assert "slack" in page and "T0SECRET" not in page, address


def test_a_poll_says_what_changed_and_never_moves_rows(post, operator):
    delivery_data.publish()
    address = operator.get(reverse("notifications")).context["news_address"]
    assert operator.get(reverse("notifications") + address).status_code == 204
    name = delivery_data.publish()
    news = operator.get(reverse("notifications") + address).text
    assert "1 notification changed" in news and name not in news
    detail = reverse("notification", args=[name])
    poll = {"poll": "1", "seen": operator.get(detail).context["version"]}
    assert operator.get(detail, poll).status_code == 204
    delivery_data.attempt(name, delivery_data.End("delivered", "", 200))
    answer = operator.get(detail, poll, headers={"HX-Request": "true"})
    assert answer.status_code == 200 and "<html" not in answer.text


def test_without_the_migration_the_screens_say_which_one(post, operator, monkeypatch):
    applied = MigrationRecorder.applied_migrations

    def all_but_delivery(recorder):
        return {key: row for key, row in applied(recorder).items() if key[1] != schema.DELIVERY}

    monkeypatch.setattr(schema, "_found", set())
    monkeypatch.setattr(MigrationRecorder, "applied_migrations", all_but_delivery)
    for name in ("notifications", "dead-letters", "operations", "destinations", "alert-rules"):
        answer = operator.get(reverse(name))
        assert answer.status_code == 503 and "006" in answer.text, name
    assert not is_migrated(schema.DELIVERY)
    assert operator.get(reverse("home")).status_code == 200
