"""Error pages say what happened and the way out; a stale form keeps its note (console case 41)."""

import re

import pytest
from django.urls import reverse

from kernel.conf import override

HTMX = {"HX-Request": "true"}
OURS = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def strict(signed_in):
    """A client whose CSRF tokens are checked."""
    return signed_in("operator", enforce_csrf_checks=True)


def test_an_unknown_address_is_a_page_of_ours(signed_in):
    response = signed_in("viewer").get("/nothing-here")
    assert response.status_code == 404
    assert "There is nothing here" in response.text
    assert "web_" in response.text  # the request's id, for the log


def test_a_broken_view_is_500_without_its_error_text(signed_in):
    response = signed_in("viewer", raise_request_exception=False).get("/broken")
    assert response.status_code == 500
    assert "broken on purpose" not in response.text
    assert "look at the object before you repeat it" in response.text


def test_the_500_page_needs_no_database(signed_in, django_assert_num_queries, rf):
    from console.views.errors import server_error

    with django_assert_num_queries(0):
        assert server_error(rf.get("/")).status_code == 500


def test_a_stale_form_keeps_its_note_and_may_be_sent_again(strict):
    response = strict.post(
        "/act",
        {"outcome": "done", "note": "My <b>long</b> note", "form_key": "k" * 22, "version": "7"},
        headers=OURS,
    )
    assert response.status_code == 403
    assert "My &lt;b&gt;long&lt;/b&gt; note" in response.text
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', response.text))
    assert fields["form_key"] == "k" * 22
    again = {**fields, "outcome": "done", "note": "My <b>long</b> note"}
    assert strict.post("/act", again, headers=OURS).status_code == 303


def test_a_stale_htmx_form_stays_and_gets_a_fresh_token(strict):
    response = strict.post("/act", {"note": "x"}, headers={**OURS, **HTMX})
    assert response.status_code == 403
    assert response["HX-Reswap"] == "none"
    token = re.search(r'data-csrf="(\w+)"', response.text)[1]
    again = {"outcome": "done", "note": "x", "form_key": "k" * 22, "version": "7"}
    answer = strict.post("/act", {**again, "csrfmiddlewaretoken": token}, headers={**OURS, **HTMX})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}, {}],
)
def test_a_foreign_form_is_refused_without_a_way_to_send_it(strict, headers):
    response = strict.post("/act", {"note": "buy now"}, headers=headers)
    assert response.status_code == 403
    assert "buy now" not in response.text
    assert "<form" not in response.text


def test_every_refusal_of_a_form_names_the_request_for_the_log(strict, client):
    fields = {"note": "My note", "form_key": "k" * 22, "version": "7"}
    stale = strict.post("/act", fields, headers=OURS)
    signed_out = client.post("/act", fields)
    assert (stale.status_code, signed_out.status_code) == (403, 401)
    for response in (stale, signed_out):
        assert re.search(r"\bweb_[0-9a-f]{20,}", response.text), response.status_code


def test_a_throttled_sign_in_names_the_request_too(client, db):
    wrong = {"username": "olga", "password": "wrong"}
    with override(sign_in_tries_max=1):
        answers = [client.post(reverse("sign-in"), wrong) for _ in range(2)]
    assert [one.status_code for one in answers] == [422, 429]
    assert ["web_" in one.text for one in answers] == [False, True]
