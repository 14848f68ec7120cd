"""Polls say how much is new and never move a row (console cases 26, 28, 44)."""

import pytest
from django.urls import reverse

from kernel.conf import override
from tests.console.views.conftest import SignIn
from tests.support import lives
from tests.support.pages import forms_of

pytestmark = pytest.mark.usefixtures("acme")

POLL = {"HX-Request": "true", "HX-Polling": "true"}


def address_of_poll(client, page):
    """What the page asks for by itself."""
    text = client.get(page).text
    start = text.index('id="news"')
    query = text[start:].split('hx-get="', 1)[1].split('"', 1)[0].replace("&amp;", "&")
    return page.partition("?")[0] + query if query.startswith("?") else query


def poll(client, address):
    return client.get(address, headers=POLL)


def test_a_list_says_how_many_changed_and_shows_no_row(operator):
    lives.settled("op-1")
    address = address_of_poll(operator, reverse("requests"))
    assert poll(operator, address).status_code == 204
    for number in range(3):
        lives.admitted(f"new-{number}")
    answer = poll(operator, address)
    assert answer.status_code == 200
    assert "3 requests changed" in answer.text
    assert "<tr" not in answer.text and "<html" not in answer.text
    assert 'href="/requests/"' in answer.text


def test_only_what_the_filters_show_is_news(operator):
    lives.unknown("op-1")
    page = f"{reverse('requests')}?state=unknown"
    address = address_of_poll(operator, page)
    lives.settled("op-2")
    assert poll(operator, address).status_code == 204
    lives.unknown("op-3")
    answer = poll(operator, address)
    assert "1 request changed" in answer.text
    assert 'href="?state=unknown"' in answer.text


def test_an_empty_list_hears_of_the_first_row(operator):
    address = address_of_poll(operator, reverse("requests"))
    assert poll(operator, address).status_code == 204
    lives.admitted("op-1")
    assert "1 request changed" in poll(operator, address).text


def test_a_later_page_does_not_ask(operator):
    with override(list_page_rows=2):
        for number in range(5):
            lives.admitted(f"op-{number}")
        page = operator.get(reverse("requests")).text
        older = page.split('rel="next" href="', 1)[1].split('"', 1)[0].replace("&amp;", "&")
        assert 'id="news"' in page
        assert 'id="news"' not in operator.get(reverse("requests") + older).text


def test_the_count_of_news_is_capped(operator, monkeypatch):
    monkeypatch.setattr("console.queries.requests.NEWS_ROWS_MAX", 2)
    address = address_of_poll(operator, reverse("requests"))
    for number in range(4):
        lives.admitted(f"op-{number}")
    assert "2+ requests changed" in poll(operator, address).text


def test_home_says_first_that_more_is_unknown(operator):
    lives.unknown("op-1")
    address = address_of_poll(operator, reverse("home"))
    assert poll(operator, address).status_code == 204
    lives.unknown("op-2")
    answer = poll(operator, address)
    assert "1 more unknown outcome" in answer.text
    assert "1 request changed" in answer.text
    assert "<li" not in answer.text


def test_a_request_page_hears_that_its_request_changed(operator):
    fence = lives.dispatched("op-1")
    page = reverse("request", args=[fence.request_id])
    address = address_of_poll(operator, page)
    assert poll(operator, address).status_code == 204
    lives.save(lives.answer_of(fence))
    answer = poll(operator, address)
    assert "This changed:" in answer.text and "Complete" in answer.text
    assert f'href="{page}"' in answer.text


def test_a_request_that_cannot_change_is_not_asked_about(operator):
    page = operator.get(reverse("request", args=[lives.settled("op-1").id])).text
    assert "data-poll" not in page


@pytest.mark.parametrize("seen", ["", "x", "-1", "9" * 40, "9" * 18])
def test_a_poll_that_makes_no_sense_is_400(operator, seen):
    for name in ("requests", "home"):
        answer = poll(operator, f"{reverse(name)}?poll=1&seen={seen}")
        assert answer.status_code == 400


def test_a_poll_of_a_person_without_a_role_is_403_and_of_a_stranger_401(signed_in: SignIn, client):
    nobody = signed_in()
    for name in ("requests", "home", "reconciliation"):
        address = f"{reverse(name)}?poll=1&seen=1"
        assert poll(nobody, address).status_code == 403
        assert poll(client, address).status_code == 401


def test_polls_change_nothing(operator):
    lives.unknown("op-1")
    for name in ("home", "requests", "reconciliation"):
        text = operator.get(reverse(name)).text
        polled = [one for one in forms_of(text) if "poll" in one.action]
        assert not polled, "a poll is a GET of its own, never a form"
