"""Dead letters on screen: groups, lineage, one replay, archive and restore, plans (F3-F6, F9)."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from kernel.access import ensure_roles
from kernel.models import AuditRow, DeadLetter, Notification, Operation, OperationItem
from tests.console.views.conftest import rendered, send
from tests.support import delivery_data, lives

QUERIES_MAX = 14
HTMX = {"HX-Request": "true"}


@pytest.fixture
def post(db):
    """An account with its destinations."""
    ensure_roles()
    lives.open_account(delivery_data.ACCOUNT)
    delivery_data.make_destinations()


def group_of(letter_id):
    return DeadLetter.objects.get(id=letter_id).error_fingerprint


@pytest.mark.parametrize("name", ["dead-letters", "dead-letters-groups", "dead-letters-list"])
def test_the_lists_cost_the_same_for_few_and_for_many(post, operator, name):
    delivery_data.dead_letter("HTTP 500 from shop-1")
    operator.get(reverse(name))
    with CaptureQueriesContext(connection) as few:
        operator.get(reverse(name))
    for number in range(6):
        delivery_data.dead_letter(f"HTTP 500 from shop-{number}")
        delivery_data.dead_letter("refused " + "abcdefg"[number] * 3)
    with CaptureQueriesContext(connection) as many:
        assert operator.get(reverse(name)).status_code == 200
    assert len(many) == len(few) <= QUERIES_MAX
    assert not [one["sql"] for one in many if '"content"' in one["sql"]]


def test_groups_say_how_many_since_when_and_what_may_be_a_duplicate(post, operator):
    one = delivery_data.dead_letter("HTTP 500 from shop-1", unknown=True, minutes=90)
    delivery_data.dead_letter("HTTP 500 from shop-2")
    archived = delivery_data.dead_letter("another error")
    form = rendered(operator, "dead-letter-archive", archived)
    assert send(operator, form, reason="Called.").status_code == 303
    response = operator.get(reverse("dead-letters"))
    (group,) = response.context["groups"]
    assert (group.row.open_count, group.row.total_count, group.doubtful) == (2, 2, 1)
    assert "1 of the newest 2 may have arrived already" in response.text
    assert f"?group={group_of(one)}" in response.text
    everything = operator.get(reverse("dead-letters-groups"))
    assert "another error" in everything.text and "another error" not in response.text


def test_filters_narrow_the_list_and_a_bad_one_is_400(post, operator):
    one = delivery_data.dead_letter("HTTP 500", minutes=60 * 48)
    two = delivery_data.dead_letter("refused", destination_id=delivery_data.MAIL)
    address = reverse("dead-letters-list")
    day = DeadLetter.objects.get(id=one).created_at.date().isoformat()
    for query, shown in (
        ({}, {one, two}),
        ({"group": group_of(one)}, {one}),
        ({"group": group_of(one), "state": "archived"}, set()),
        ({"destination": delivery_data.MAIL}, {two}),
        ({"account": delivery_data.ACCOUNT, "state": "open"}, {one, two}),
        ({"until": day}, {one}),
    ):
        page = operator.get(address, query).text
        assert {each for each in (one, two) if reverse("dead-letter", args=[each]) in page} == (
            shown
        ), query
    assert operator.get(address, {"state": "lost"}).status_code == 400
    assert operator.get(address, {"until": "tomorrow"}).status_code == 400


def test_one_replay_asks_first_admits_once_and_a_second_click_adds_nothing(post, operator):
    letter = delivery_data.dead_letter("HTTP 500", unknown=True)
    page = operator.get(reverse("dead-letter-replay", args=[letter])).text
    assert "Replay this dead letter?" in page and "may have it already" in page
    assert Notification.objects.filter(replay_of_id=letter).count() == 0
    form = rendered(operator, "dead-letter-replay", letter)
    assert send(operator, form, reason="The shop\nis back.").status_code == 303
    assert send(operator, form, reason="The shop\nis back.").status_code == 303
    row = DeadLetter.objects.get(id=letter)
    assert row.state == "resolved" and Notification.objects.get(replay_of_id=letter)
    act = AuditRow.objects.get(action="dead_letter.replay")
    assert (act.actor_id, act.reason) == ("operator", "The shop is back.")
    again = operator.post(form.action, {**form.fields, "form_key": "n" * 22, "reason": ""})
    assert again.status_code == 303
    assert "nothing was added" in operator.get(again["Location"]).text
    assert Notification.objects.filter(replay_of_id=letter).count() == 1


def test_one_that_is_still_being_sent_is_refused_with_reason_and_link(post, operator):
    letter = delivery_data.dead_letter("HTTP 500")
    row = DeadLetter.objects.get(id=letter)
    form = rendered(operator, "dead-letter-replay", letter)
    Notification.objects.filter(id=row.notification_id).update(state="sending")
    answer = send(operator, form, reason="Quick.")
    assert answer.status_code == 409
    assert "still being sent" in answer.text and "Quick." in answer.text
    assert reverse("notification", args=[row.notification_id]) in answer.text
    assert not Notification.objects.filter(replay_of_id=letter).exists()
    assert not AuditRow.objects.filter(action="dead_letter.replay").exists()


def test_a_replay_that_fails_again_shows_the_whole_lineage(post, operator):
    first = delivery_data.dead_letter("HTTP 500")
    second = delivery_data.fail_again(first)
    replayed = Notification.objects.get(replay_of_id=first)
    page = operator.get(reverse("dead-letter", args=[first])).text
    assert "Lineage" in page and reverse("notification", args=[replayed.id]) in page
    assert reverse("dead-letter", args=[second]) in page and "A replay that fails" not in page
    page = operator.get(reverse("dead-letter", args=[second])).text
    assert "The dead letter before" in page and reverse("dead-letter", args=[first]) in page
    assert DeadLetter.objects.get(id=first).state == "resolved"


@pytest.mark.parametrize("outcome", ["delivered", "dead"])
def test_after_a_replay_the_page_follows_its_notification_to_the_end(post, operator, outcome):
    letter = delivery_data.dead_letter("HTTP 500")
    address = reverse("dead-letter", args=[letter])
    assert "data-poll" not in operator.get(address).text
    send(operator, rendered(operator, "dead-letter-replay", letter))
    replayed = Notification.objects.get(replay_of_id=letter)
    page = operator.get(address).text
    (poll,) = re.findall(r'data-poll="3" hx-get="([^"]+poll=1[^"]+)"', page)
    poll = poll.replace("&amp;", "&")
    with CaptureQueriesContext(connection) as polled:
        assert operator.get(poll, headers=HTMX).status_code == 204
    letters = [one["sql"] for one in polled if "bz_dead_letters" in one["sql"]]
    assert not any('"content"' in sql for sql in letters), "a poll reads no content"
    if outcome == "dead":
        newer = delivery_data.die(replayed.id, "HTTP 500")
    else:
        delivery_data.attempt(replayed.id, delivery_data.End("delivered", "", 200))
    part = operator.get(poll, headers=HTMX)
    assert part.status_code == 200 and "<html" not in part.text and "data-poll" not in part.text
    shown = reverse("dead-letter", args=[newer]) if outcome == "dead" else "Delivered"
    assert shown in part.text
    assert operator.get(address + "?poll=1&seen=1-0", headers=HTMX).status_code == 200
    assert operator.get(reverse("dead-letter", args=["dlq_x"]) + "?poll=1").status_code == 404


def test_archiving_needs_a_reason_and_restoring_opens_it_again(post, operator):
    letter = delivery_data.dead_letter("HTTP 500")
    form = rendered(operator, "dead-letter-archive", letter)
    assert send(operator, form, reason="").status_code == 422
    assert send(operator, form, reason="Called\nthem.").status_code == 303
    assert DeadLetter.objects.get(id=letter).state == "archived"
    fields = {"form_key": "n" * 22, "reason": "again"}
    refused = operator.post(reverse("dead-letter-archive", args=[letter]), fields)
    assert refused.status_code == 409 and "operator" in refused.text
    replay = operator.post(reverse("dead-letter-replay", args=[letter]), fields)
    assert replay.status_code == 409 and not Notification.objects.filter(replay_of_id=letter)
    form = rendered(operator, "dead-letter-restore", letter)
    assert send(operator, form, reason="They changed their mind.").status_code == 303
    assert DeadLetter.objects.get(id=letter).state == "open"
    assert "They changed their mind." in operator.get(reverse("dead-letter", args=[letter])).text


def test_its_bytes_are_downloaded_whole(post, operator):
    letter = delivery_data.dead_letter("HTTP 500", text="y" * 20_000)
    answer = operator.get(reverse("dead-letter-content", args=[letter]))
    assert answer.content == bytes(DeadLetter.objects.get(id=letter).content)


def test_hostile_texts_stay_inside_and_are_found(post, operator):
    letter = delivery_data.dead_letter(delivery_data.HOSTILE + "x" * 100_000)
    for name, args in (
        ("dead-letters", []),
        ("dead-letters-list", []),
        ("dead-letter", [letter]),
        ("dead-letter-replay", [letter]),
    ):
        page = operator.get(reverse(name, args=args))
        assert page.status_code == 200 and "<script>alert(" not in page.text, name
        assert "U+202E" in page.text, name
    assert operator.get(reverse("go-to"), {"q": letter})["Location"].endswith(f"/{letter}/")


@pytest.mark.parametrize("name", ["dead-letters-replay", "dead-letters-archive"])
def test_a_plan_without_a_filter_is_refused_in_words(post, operator, name):
    delivery_data.dead_letter("HTTP 500")
    for query in ({}, {"state": "open"}, {"group": ""}):
        answer = operator.get(reverse(name), query)
        assert answer.status_code == 422 and "no filter is set" in answer.text
        assert "<textarea" not in answer.text
    data = {"form_key": "k" * 22, "reason": "all", "rate_per_second": "10"}
    assert operator.post(reverse(name), data).status_code == 422
    assert operator.get(reverse(name), {"group": "x", "state": "archived"}).status_code == 400
    assert not Operation.objects.exists() and not OperationItem.objects.exists()


def test_a_plan_freezes_the_set_and_newcomers_stay_apart(post, operator):
    letters = {delivery_data.dead_letter(f"HTTP 500 from shop-{number}") for number in range(3)}
    delivery_data.dead_letter("another error")
    address = f"{reverse('dead-letters-replay')}?group={group_of(next(iter(letters)))}"
    page = operator.get(address).text
    assert "3 open dead letters" in page and not Operation.objects.exists()
    data = {"form_key": "k" * 22, "reason": "", "rate_per_second": "10"}
    assert operator.post(address, data).status_code == 422
    answer = operator.post(address, data | {"reason": "It is back."})
    row = Operation.objects.get()
    assert (answer.status_code, answer["Location"]) == (303, reverse("operation", args=[row.id]))
    newcomer = delivery_data.dead_letter("HTTP 500 from shop-9")
    page = operator.get(answer["Location"])
    assert "Nothing was done yet" in page.text and row.digest in page.text
    assert page.context["set"].newcomers.value == 1
    frozen = set(OperationItem.objects.values_list("object_id", flat=True))
    assert frozen == letters and newcomer not in frozen
    assert DeadLetter.objects.filter(state="open").count() == 5
    nothing = f"{reverse('dead-letters-replay')}?group=nothing"
    assert operator.post(nothing, data | {"reason": "x"}).status_code == 409


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_who_may_not_operate_sees_everything_and_changes_nothing(post, signed_in, role):
    client, letter = signed_in(role), delivery_data.dead_letter("HTTP 500")
    page = client.get(reverse("dead-letter", args=[letter])).text
    assert "Your role" in page
    data = {"form_key": "k" * 22, "reason": "x", "rate_per_second": "1"}
    for name in ("dead-letter-replay", "dead-letter-archive", "dead-letter-restore"):
        address = reverse(name, args=[letter])
        assert client.get(address).status_code == 403
        assert client.post(address, data, headers=HTMX).status_code == 403
    group = f"?group={group_of(letter)}"
    assert client.post(reverse("dead-letters-replay") + group, data).status_code == 403
    assert DeadLetter.objects.get(id=letter).state == "open"
    assert not Operation.objects.exists() and not Notification.objects.exclude(replay_of_id="")


@pytest.mark.parametrize("path", ["dlq_nothing/", "%E2%80%AEx/replay/", f"{'x' * 200}/"])
def test_what_does_not_exist_is_404(post, operator, path):
    assert operator.get(f"/dead-letters/{path}").status_code == 404
