"""A session ends when idle and at its age; polls never extend it (console case 44)."""

from datetime import UTC, datetime, timedelta

import pytest

from console import middleware
from kernel.conf import override
from kernel.models import ConsoleSession

START = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture
def at(monkeypatch):
    """Sets the time of the middleware, in seconds after the sign-in."""

    def set_time(seconds):
        monkeypatch.setattr(
            middleware.clock, "now", lambda: START + timedelta(seconds=seconds), raising=True
        )

    set_time(0)
    return set_time


@pytest.fixture
def client(at, signed_in):
    client = signed_in("viewer")
    with override(session_idle_seconds=3600):
        client.get("/")
        yield client


def test_navigation_keeps_the_session(client, at):
    for minute in range(0, 300, 50):
        at(minute * 60)
        assert client.get("/").status_code == 200


def test_a_session_without_navigation_ends(client, at):
    at(3600)
    assert client.get("/").status_code == 302
    assert client.get("/").status_code == 302


def test_a_session_ends_at_its_age_however_busy_it_is(client, at):
    with override(session_idle_seconds=3600, session_age_seconds_max=7200):
        for minute in range(0, 120, 10):
            at(minute * 60)
            assert client.get("/").status_code == 200
        at(7200)
        assert client.get("/").status_code == 302


@pytest.mark.parametrize(
    ("path", "headers"), [("/?poll=1", {}), ("/", {"HX-Polling": "true", "HX-Request": "true"})]
)
def test_polls_never_extend_a_session(client, at, path, headers):
    for second in range(5, 3600, 5 * 60):
        at(second)
        assert client.get(path, headers=headers).status_code == 200
    at(3600)
    assert client.get(path, headers=headers).status_code in (302, 401)
    assert client.get("/").status_code == 302


def test_polls_do_not_write_the_session(client, at, django_assert_num_queries):
    at(1800)
    before = ConsoleSession.objects.get().expire_date, ConsoleSession.objects.get().session_data
    client.get("/?poll=1")
    assert (
        ConsoleSession.objects.get().expire_date,
        ConsoleSession.objects.get().session_data,
    ) == before


def test_a_navigation_writes_the_session_at_most_once_a_minute(client, at):
    before = ConsoleSession.objects.get().session_data
    at(59)
    client.get("/")
    assert ConsoleSession.objects.get().session_data == before
    at(61)
    client.get("/")
    assert ConsoleSession.objects.get().session_data != before


def test_each_answer_names_its_request(client):
    first, second = client.get("/")["X-Request-Id"], client.get("/")["X-Request-Id"]
    assert first.startswith("web_")
    assert first != second


def test_every_answer_has_the_strict_policy_and_is_not_stored(client):
    for path in ("/", "/nothing-here", "/configure", "/requests?result=nope"):
        response = client.get(path)
        policy = response["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy and "style-src 'self'" in policy
        assert "unsafe" not in policy
        assert response["Cache-Control"] == "no-store"
        assert {"HX-Request", "Cookie"} <= {name.strip() for name in response["Vary"].split(",")}
        assert response["X-Frame-Options"] == "DENY"
