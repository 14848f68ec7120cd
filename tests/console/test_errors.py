"""Error pages say what happened and the way out; a stale form keeps its note (console case 41)."""

import re

import pytest

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
