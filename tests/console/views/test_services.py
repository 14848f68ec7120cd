"""Services and prices on screen: what a service lacks is said, with the way out (A12, I1, L4)."""

import pytest
from django.urls import reverse

from console.views.service_lacks import lacks_of
from kernel import clock, usage
from kernel.models import Service
from tests.console.views.conftest import rendered, send
from tests.support import lives

pytestmark = pytest.mark.usefixtures("acme")

NEW = {"service_id": "s2", "base_url": "https://api.example.com/v1", "model": "m"}


def lacks(service_id, environ):
    row = Service.objects.get(id=service_id)
    price = usage.prices_in_force(services=[row], at=clock.now())[row.id]
    return lacks_of(row, price, environ=environ)


def test_right_after_it_is_added_a_service_says_what_it_lacks(admin, monkeypatch):
    monkeypatch.delenv("ACME_API_KEY", raising=False)
    answer = send(admin, rendered(admin, "service-new"), **NEW, api_key_env="ACME_API_KEY")
    assert answer["Location"] == reverse("service", args=["s2"])
    page = admin.get(answer["Location"]).text
    assert "It has no price" in page and reverse("service-change", args=["s2"]) in page
    assert "ACME_API_KEY is not set in this server&#x27;s environment" in page
    assert "Then restart." in page
    monkeypatch.setenv("ACME_API_KEY", "k-1")
    assert "ACME_API_KEY is not set" not in admin.get(answer["Location"]).text


def test_a_named_price_that_nobody_knows_leads_to_the_form_that_adds_it(admin):
    send(admin, rendered(admin, "service-new"), **NEW, price="acme/m9")
    page = admin.get(reverse("service", args=["s2"])).text
    assert "No price is known for acme/m9" in page
    assert f"{reverse('price-new')}?provider=acme&amp;model=m9" in page


def test_what_has_all_or_is_retired_is_not_warned_about(admin):
    assert lacks("gpt", {}) == []
    lives.add_service("raw", price_provider="", price_model="", api_key_env="RAW_API_KEY")
    assert len(lacks("raw", {})) == 2
    (empty,) = lacks("raw", {"RAW_API_KEY": ""})[1:]
    assert "is empty, or may not be used as a key" in empty.title
    Service.objects.filter(id="raw").update(active=False)
    assert lacks("raw", {}) == []


@pytest.mark.parametrize("rate", ["2500000", "0.0000001", "-1", "x", "1,5", "1e3"])
def test_an_error_about_a_rate_ends_with_one_mark(admin, rate):
    values = {"provider": "acme", "model": "m1", "input": rate, "output": "10"}
    answer = send(admin, rendered(admin, "price-new"), **values)
    assert answer.status_code == 422
    for pair in ("..", "?.", "!.", ".?", " .", ",."):
        assert pair not in " ".join(answer.context["form"].errors["input"]), pair


def test_an_implausible_rate_says_how_to_confirm_it(admin):
    values = {"provider": "acme", "model": "m1", "input": "2500000", "output": "10"}
    answer = send(admin, rendered(admin, "price-new"), **values)
    assert "was it meant per one? Enter USD per million, or confirm this rate." in answer.text


def test_home_counts_the_charges_that_wait_for_a_price(admin):
    usage.create_account(account_id="free", name="free", actor=lives.ACTOR, allow_unpriced=True)
    lives.add_service("dated", price_provider="openai", price_model="new-2026-11-30")
    fences = [lives.dispatched(f"op-{n}", service="dated", account="free") for n in range(2)]
    assert "for a price" not in admin.get(reverse("home")).text
    for fence in fences:
        lives.save(lives.answer_of(fence))
        lives.settle(fence.request_id)
    page = admin.get(reverse("home")).text
    assert "2 charges wait for a price" in page and reverse("prices") in page
