"""A correction on the page of its request: its effect is shown first, then it is posted once."""

import pytest
from django.test import Client
from django.urls import reverse

from kernel import usage
from kernel.models import Account, AuditRow, LedgerRow
from tests.console.views.conftest import SignIn, rendered, send
from tests.support import lives
from tests.support.pages import PageForm, form_to, policy_faults

pytestmark = pytest.mark.usefixtures("acme")

WHY = "The provider took half of it back."
TYPED = {"amount_nano": "-0.00001", "reason": WHY}


@pytest.fixture
def charged(acme: None) -> str:
    return lives.settled("op-1").id


def shown_effect(client: Client, request_id: str) -> PageForm:
    """The second form: what was typed, with its effect."""
    response = send(client, rendered(client, "request-correct", request_id), **TYPED)
    assert response.status_code == 200
    assert "Post this correction?" in response.text
    address = reverse("request-correct", args=[request_id])
    return form_to(response.text, address)


def corrections() -> list[int]:
    return list(LedgerRow.objects.filter(kind="correction").values_list("amount_nano", flat=True))


def test_the_first_post_shows_the_effect_and_changes_nothing(
    operator: Client, charged: str
) -> None:
    form = shown_effect(operator, charged)
    assert form.fields["confirmed"] == "-10000"
    assert form.fields["amount_nano"] == "-0.00001"
    assert corrections() == []
    assert not AuditRow.objects.filter(action="request.correct").exists()


def test_the_second_post_posts_it_and_every_screen_shows_it(operator: Client, charged: str) -> None:
    response = send(operator, shown_effect(operator, charged), reason=WHY)
    assert response.status_code == 303
    assert corrections() == [-10_000]
    page = operator.get(reverse("request", args=[charged])).text
    assert WHY in page.replace("&#x27;", "'")
    assert "Charge and corrections" in page
    assert "Corrected the charge" in page
    assert "user:operator" in page
    ledger = operator.get(reverse("account", args=["acme"])).text
    assert '<span class="tag">correction</span>' in ledger
    assert policy_faults(page) == [] == policy_faults(ledger)
    assert Account.objects.get(id="acme").consumed_nano == lives.CHARGE_NANO - 10_000


def test_another_amount_than_the_one_shown_is_shown_again(operator: Client, charged: str) -> None:
    form = shown_effect(operator, charged)
    response = send(operator, form, amount_nano="-0.00002", reason=WHY)
    assert response.status_code == 200
    assert "Post this correction?" in response.text
    assert corrections() == []


def test_a_form_sent_twice_posts_once(operator: Client, charged: str) -> None:
    form = shown_effect(operator, charged)
    assert [send(operator, form, reason=WHY).status_code for _ in range(2)] == [303, 303]
    assert corrections() == [-10_000]


def test_a_total_that_changed_meanwhile_is_a_conflict_with_the_new_total(
    operator: Client, charged: str
) -> None:
    form = shown_effect(operator, charged)
    usage.post_correction(
        request_id=charged, amount_nano=-1_000, actor=lives.ACTOR, reason="a rounding"
    )
    response = send(operator, form, reason=WHY)
    assert response.status_code == 409
    again = form_to(response.text, form.action)
    assert again.fields["version"] == str(lives.CHARGE_NANO - 1_000)
    assert WHY in response.text
    assert corrections() == [-1_000]


@pytest.mark.parametrize(
    "values",
    [
        {"amount_nano": "0"},
        {"amount_nano": "-1"},
        {"amount_nano": "0,05"},
        {"amount_nano": "much"},
        {"amount_nano": "1", "reason": ""},
        {"amount_nano": "1", "reason": "x"},
    ],
)
def test_what_is_no_correction_is_said_at_its_field(
    operator: Client, charged: str, values: dict[str, str]
) -> None:
    form = rendered(operator, "request-correct", charged)
    response = send(operator, form, **{**TYPED, **values})
    assert "aria-invalid" in response.text
    assert "Post this correction?" not in response.text
    assert corrections() == []


def test_what_is_not_settled_offers_no_form(operator: Client) -> None:
    request_id = lives.complete("op-2").id
    page = operator.get(reverse("request-correct", args=[request_id])).text
    assert "Only a settled charge can be corrected." in page
    assert (
        reverse("request-correct", args=[request_id])
        not in operator.get(reverse("request", args=[request_id])).text
    )


def test_a_viewer_may_look_and_not_correct(
    signed_in: SignIn, operator: Client, charged: str
) -> None:
    form = shown_effect(operator, charged)
    viewer = signed_in("viewer")
    assert "may not" in viewer.get(reverse("request", args=[charged])).text
    assert send(viewer, form, reason=WHY).status_code == 403
    assert corrections() == []
