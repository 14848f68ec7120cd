"""The answers of an act, with and without htmx (console cases 11, 46, 49, 50, 52)."""

import re

import pytest

from console.responses import new_form_key
from tests.console.urls import acts

HTMX = {"HX-Request": "true"}


@pytest.fixture
def client(signed_in):
    return signed_in("operator")


def form(**fields):
    return {
        "outcome": "done",
        "note": "Looked up.",
        "form_key": new_form_key(),
        "version": "7",
    } | fields


def test_one_address_serves_page_and_part(client):
    page, part = client.get("/act"), client.get("/act", headers=HTMX)
    assert "<html" in page.text and ">page<" in page.text
    assert "<html" not in part.text and ">part<" in part.text


@pytest.mark.parametrize("header", ["HX-Boosted", "HX-History-Restore-Request"])
def test_a_boosted_link_and_a_history_restore_get_the_page(client, header):
    assert "<html" in client.get("/act", headers={**HTMX, header: "true"}).text


def test_every_form_carries_token_key_and_version(client):
    text = client.get("/act").text
    assert re.search(r'name="csrfmiddlewaretoken" value="\w{20,}"', text)
    assert re.search(r'name="form_key" value="[\w-]{22}"', text)
    assert 'name="version" value="7"' in text
    assert 'hx-sync="this:drop"' in text
    assert "data-once" in text


def test_each_rendering_has_its_own_key(client):
    keys = {
        re.search(r'name="form_key" value="([\w-]+)"', client.get("/act").text)[1] for _ in "12"
    }
    assert len(keys) == 2


def test_done_is_303_without_script(client):
    response = client.post("/act", form())
    assert (response.status_code, response["Location"]) == (303, "/act")
    assert "Recorded." in client.get("/act").text
    assert acts[0][1:] == (7, "Looked up.")


def test_done_is_a_part_with_the_message_with_htmx(client):
    response = client.post("/act?part", form(), headers=HTMX)
    assert response.status_code == 200
    assert ">part<" in response.text and "Recorded." in response.text
    assert 'hx-swap-oob="beforeend"' in response.text
    assert "Recorded." not in client.get("/act").text  # said once


def test_done_without_a_part_sends_htmx_to_the_page(client):
    response = client.post("/act", form(), headers=HTMX)
    assert (response.status_code, response["HX-Redirect"]) == (200, "/act")
    assert "Recorded." in client.get("/act").text


@pytest.mark.parametrize("headers", [{}, HTMX])
def test_an_invalid_form_is_422_with_the_errors_at_the_fields(client, headers):
    response = client.post("/act", form(note=""), headers=headers)
    assert response.status_code == 422
    assert 'aria-invalid="true"' in response.text
    assert "This field is required." in response.text
    assert ("<html" in response.text) == (not headers)
    assert not acts


@pytest.mark.parametrize("headers", [{}, HTMX])
def test_a_lost_race_is_409_says_who_and_keeps_the_note(client, headers):
    response = client.post("/act", form(outcome="race", note="My long note"), headers=headers)
    assert response.status_code == 409
    assert "marek" in response.text
    assert "Nothing was done" in response.text
    assert "My long note" in response.text
    assert not acts


def test_an_unavailable_database_is_503_with_retry_after(client):
    response = client.post("/act", form(outcome="away"), headers=HTMX)
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert "The database is away." in response.text


@pytest.mark.parametrize("fields", [{"form_key": ""}, {"form_key": "x" * 23}, {"version": "-1"}])
def test_a_form_without_key_or_version_is_400(client, fields):
    assert client.post("/act", form(**fields)).status_code == 400
    assert not acts


def test_get_never_acts(client):
    client.get("/act", form())
    assert not acts
