"""Signing in: throttled by name and address, silent about who exists (L2; console case 86)."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import UserManager
from django.core.cache import cache
from django.test import Client

from console.throttle import Throttle
from kernel import clock
from kernel.conf import override
from kernel.models import AuditRow, SignInTry

WRONG = {"username": "olga", "password": "wrong"}
RIGHT = {"username": "olga", "password": "correct horse"}


@pytest.fixture(autouse=True)
def olga(person):
    return person("olga", "viewer")


def test_the_right_pair_signs_in_and_goes_where_the_person_was():
    response = Client().post("/sign-in", {**RIGHT, "next": "/requests?result=unknown"})
    assert response.status_code == 302
    assert response["Location"] == "/requests?result=unknown"


def test_the_way_on_stays_on_this_host():
    response = Client().post("/sign-in", {**RIGHT, "next": "https://evil.example/"})
    assert response["Location"] == "/"


def test_a_wrong_password_and_an_unknown_name_read_the_same():
    answers = [
        Client().post("/sign-in", {"username": name, "password": "wrong"})
        for name in ("olga", "nobody")
    ]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert all("Name and password do not match" in answer.text for answer in answers)


def test_the_throttle_refuses_even_the_right_password():
    with override(sign_in_tries_max=3):
        for _try in range(3):
            assert Client().post("/sign-in", WRONG).status_code == 422
        response = Client().post("/sign-in", RIGHT)
    assert response.status_code == 429
    assert response["Retry-After"] == "300"
    assert "Too many failed tries" in response.text


def test_the_throttle_counts_a_name_in_any_case_and_counts_unknown_names():
    with override(sign_in_tries_max=3):
        for name in ("Nobody", "NOBODY", "nobody"):
            Client().post("/sign-in", {"username": name, "password": "x"})
        response = Client().post("/sign-in", {"username": "nobody", "password": "x"})
    assert response.status_code == 429


def test_another_name_and_another_address_are_not_locked_out(person):
    person("marek", "viewer")
    with override(sign_in_tries_max=3):
        for _try in range(3):
            Client().post("/sign-in", WRONG)
        assert Client().post("/sign-in", {**RIGHT, "username": "marek"}).status_code == 302
        assert Client(REMOTE_ADDR="192.0.2.7").post("/sign-in", RIGHT).status_code == 302


def test_a_success_forgets_the_failures():
    with override(sign_in_tries_max=3):
        for _round in range(3):
            for _try in range(2):
                Client().post("/sign-in", WRONG)
            assert Client().post("/sign-in", RIGHT).status_code == 302


def test_no_two_pairs_share_a_count():
    first = Throttle(name="a1", address="27.0.0.1")
    second = Throttle(name="a", address="127.0.0.1")
    assert not set(first._limits) & set(second._limits)


def test_the_wait_is_said_in_seconds_and_kept_for_all_processes(monkeypatch):
    start = datetime(2026, 11, 29, 12, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: start)
    monkeypatch.setattr(clock, "db_now", lambda: start)
    with override(sign_in_tries_max=3, sign_in_window_seconds=45):
        for _try in range(3):
            Client().post("/sign-in", WRONG)
        cache.clear()  # as another process would find it
        monkeypatch.setattr(clock, "db_now", lambda: start + timedelta(seconds=25))
        response = Client().post("/sign-in", RIGHT)
        assert (response.status_code, response["Retry-After"]) == (429, "20")
        assert "Try again in 20 s" in response.text
        monkeypatch.setattr(clock, "db_now", lambda: start + timedelta(seconds=46))
        assert Client().post("/sign-in", RIGHT).status_code == 302


def test_an_ipv6_network_is_one_address():
    with override(sign_in_tries_max=3):
        for host in range(1, 4):
            Client(REMOTE_ADDR=f"2001:db8:1:2::{host}").post("/sign-in", WRONG)
        assert Client(REMOTE_ADDR="2001:db8:1:2::9").post("/sign-in", RIGHT).status_code == 429
        assert Client(REMOTE_ADDR="2001:db8:1:3::9").post("/sign-in", RIGHT).status_code == 302


def test_one_address_cannot_use_up_a_name_but_a_crowd_of_them_can():
    with override(sign_in_tries_max=3):
        for _try in range(40):
            Client(REMOTE_ADDR="192.0.2.1").post("/sign-in", WRONG)
        assert Client(REMOTE_ADDR="192.0.2.2").post("/sign-in", RIGHT).status_code == 302
        for host in range(10, 20):
            for _try in range(3):
                Client(REMOTE_ADDR=f"192.0.2.{host}").post("/sign-in", WRONG)
        assert Client(REMOTE_ADDR="192.0.2.99").post("/sign-in", RIGHT).status_code == 429


def test_being_stopped_is_in_the_trail_once_and_only_for_people_who_exist():
    with override(sign_in_tries_max=3):
        for _try in range(8):
            Client().post("/sign-in", WRONG)
            Client().post("/sign-in", {"username": "nobody", "password": "x"})
    (row,) = AuditRow.objects.filter(action="sign_in.throttled")
    assert "127.0.0.1" in row.after_text


def test_what_is_counted_is_stored_as_hashes():
    Client().post("/sign-in", WRONG)
    assert SignInTry.objects.count() == 3
    assert "olga" not in str(list(SignInTry.objects.values_list()))


def test_a_closed_account_reads_like_a_wrong_password(olga):
    olga.is_active = False
    olga.save()
    assert "Name and password do not match" in Client().post("/sign-in", RIGHT).text


def test_the_password_is_never_echoed():
    response = Client().post("/sign-in", {"username": "olga", "password": "s3cret-typed"})
    assert "s3cret-typed" not in response.text


def test_the_page_says_when_a_sign_in_ended():
    assert "You were signed out" in Client().get("/sign-in?ended=1").text
    assert "You were signed out" not in Client().get("/sign-in").text


def test_signing_out_is_a_post(signed_in):
    client = signed_in("viewer")
    assert client.get("/sign-out").status_code == 405
    assert client.post("/sign-out").status_code == 302
    assert client.get("/").status_code == 302


def test_a_spelling_that_the_database_takes_for_the_name_opens_nothing(monkeypatch):
    """Where a collation finds `olga` for other spellings, each would have tries of its own."""

    def lenient(self, username):
        return self.get(username__iexact=username)

    monkeypatch.setattr(UserManager, "get_by_natural_key", lenient)
    response = Client().post("/sign-in", {**RIGHT, "username": "OLGA"})
    assert response.status_code == 422
    assert "Name and password do not match" in response.text
    assert Client().post("/sign-in", RIGHT).status_code == 302


def test_a_stranger_cannot_use_up_the_tries_at_codes_and_confirmations():
    with override(sign_in_tries_max=3):
        for purpose in ("factor", "step-up", "own-password"):
            for _try in range(3):
                Client().post("/sign-in", {"username": f"{purpose}:olga", "password": "x"})
            throttle = Throttle(name="olga", address="127.0.0.1", purpose=purpose)
            assert throttle.wait_seconds() == 0
    assert not AuditRow.objects.filter(action="sign_in.throttled").exists()
