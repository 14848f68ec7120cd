"""Theme, shortcuts and zone are kept in cookies and rendered by the server, so nothing flashes."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from kernel.access.preferences import taste_of


@pytest.fixture
def client(signed_in):
    return signed_in("viewer")


def test_the_theme_is_rendered_by_the_server(client):
    assert 'data-theme="auto"' in client.get("/act").text
    response = client.post(
        "/preferences", {"theme": "dark"}, headers={"Referer": "http://testserver/act"}
    )
    assert (response.status_code, response["Location"]) == (303, "/act")
    assert 'data-theme="dark"' in client.get("/act").text


def test_single_key_shortcuts_can_be_switched_off(client):
    client.post("/preferences", {"keys": "off", "zone": "UTC"})
    assert 'data-keys="off"' in client.get("/act").text


def test_all_times_of_a_page_are_in_the_chosen_zone(client):
    client.post("/preferences", {"zone": "Asia/Kathmandu"})
    text = client.get("/guide").text
    assert "+0545" in text
    assert " UTC</" not in text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"theme": "pink"},
        {"keys": "maybe"},
        {"zone": "Mars/Olympus"},
        {"theme": "dark", "zone": "x"},
    ],
)
def test_other_values_are_refused_and_change_nothing(client, fields):
    response = client.post("/preferences", fields)
    assert response.status_code == 400
    assert not {"bz_theme", "bz_keys"} & set(response.cookies)
    assert taste_of(person_id=int(client.session["_auth_user_id"])).zone == ""


def test_a_forged_cookie_counts_as_the_default(client):
    client.cookies["bz_theme"] = '"><script>'
    client.cookies["bz_zone"] = f"{client.session['_auth_user_id']}:../../etc/passwd"
    text = client.get("/act").text
    assert 'data-theme="auto"' in text
    assert '<script>"' not in text


def test_the_way_back_stays_on_this_host(client):
    response = client.post(
        "/preferences", {"theme": "dark"}, headers={"Referer": "https://evil.example/x"}
    )
    assert response["Location"] == "/"


def test_a_zone_belongs_to_the_person_not_to_the_browser(client, signed_in):
    client.post("/preferences", {"zone": "Asia/Kathmandu"})
    other_browser = Client()
    other_browser.force_login(User.objects.get(username="viewer"))
    assert "+0545" in other_browser.get("/guide").text
    somebody = signed_in("operator")
    somebody.cookies["bz_zone"] = client.cookies["bz_zone"].value
    assert "+0545" not in somebody.get("/guide").text


def test_a_page_asks_for_the_zone_once_per_browser(client):
    client.get("/act")
    with CaptureQueriesContext(connection) as second:
        client.get("/act")
    assert not [one for one in second.captured_queries if "bz_preferences" in one["sql"]]
