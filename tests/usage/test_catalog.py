"""Services and operator prices: what callers may name, and what it costs (A12, A11b)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kernel import clock, usage
from kernel.errors import Conflict, InvalidInput, LostRace, NotFound
from kernel.models import AuditRow, Price, Service
from kernel.usage import (
    add_price,
    change_service,
    get_service,
    list_prices,
    list_services,
    price_in_force,
)
from tests.support.product import OPERATOR, make_account, make_service
from tests.usage.flow import at_once


def price(output: str = "2", *, at: datetime | None = None, **more: Any) -> Price:
    values = {"provider": "house", "model": "m-1", **more}
    return add_price(
        rates={"input": "1", "output": output}, valid_from_at=at, actor=OPERATOR, **values
    )


def rate_now(at: datetime | None = None, model: str = "m-1") -> str | None:
    found = price_in_force(provider="house", model=model, at=at or clock.now())
    return None if found is None else found.rates["output"][0].usd_per_million


# --- services ---------------------------------------------------------------------------------


def test_a_service_is_added_once_and_audited_without_any_key(kernel_db: None) -> None:
    make_service(api_key_env="OPENAI_API_KEY")
    with pytest.raises(Conflict):
        make_service()
    (row,) = AuditRow.objects.filter(subject="service:gpt")
    assert '"api_key_env": "OPENAI_API_KEY"' in row.after_text


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"base_url": ""}, "base_url"),
        ({"base_url": "ftp://example.org"}, "base_url"),
        ({"base_url": "http://127.0.0.1:9/v1", "allow_private": False}, "base_url"),
        ({"base_url": "https://example.org/v1?key=1"}, "base_url"),
        ({"base_url": "https://user:pw@example.org/v1"}, "base_url"),
        ({"model": " "}, "model"),
        ({"api_key_env": "sk-proj-abc"}, "api_key_env"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"account_id": "ghost"}, "account_id"),
        ({"color": "red"}, "color"),
    ],
)
def test_a_wrong_field_of_a_service_is_named(
    kernel_db: None, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        make_service(**values)
    assert refusal.value.field == field
    assert not Service.objects.exists()


def test_a_change_makes_a_new_version_and_needs_the_old_one(kernel_db: None) -> None:
    make_service()
    row = change_service(service_id="gpt", version=1, actor=OPERATOR, model="newer")
    assert (row.version, row.model, row.base_url) == (2, "newer", "http://127.0.0.1:9/v1")
    with pytest.raises(LostRace):
        change_service(service_id="gpt", version=1, actor=OPERATOR, model="older")
    assert get_service(service_id="gpt").model == "newer"
    with pytest.raises(NotFound):
        change_service(service_id="none", version=1, actor=OPERATOR, model="x")


def test_an_account_sees_the_common_services_and_its_own(kernel_db: None) -> None:
    make_account("a")
    make_account("b")
    make_service("common")
    make_service("of-a", account_id="a")
    make_service("of-b", account_id="b")
    make_service("retired")
    change_service(service_id="retired", version=1, actor=OPERATOR, active=False)
    assert [row.id for row in list_services(account_id="a")] == ["common", "of-a"]
    assert len(list_services()) == 4


def test_service_ids_differ_by_case(kernel_db: None) -> None:
    make_service("gpt")
    make_service("GPT", model="other")
    assert get_service(service_id="GPT").model == "other"


# --- prices -----------------------------------------------------------------------------------


def test_each_price_is_a_new_version_and_earlier_ones_stay(kernel_db: None) -> None:
    first, second = price("2"), price("3")
    assert (first.version, second.version) == (1, 2)
    assert [row.version for row in list_prices(provider="house")] == [2, 1]
    assert rate_now() == "3"


def test_the_tenth_version_comes_after_the_ninth(kernel_db: None) -> None:
    start = clock.now() - timedelta(hours=1)
    for number in range(1, 12):
        price(str(number), at=start)
    assert rate_now() == "11", "of prices valid from the same time the newest counts"


def test_two_prices_at_once_get_two_versions(kernel_db: None) -> None:
    found = at_once(*(lambda n=number: price(str(n + 1)) for number in range(4)))
    assert sorted(row.version for row in found) == [1, 2, 3, 4]


def test_the_price_that_became_valid_last_counts(kernel_db: None) -> None:
    now = clock.now()
    price("5", at=now - timedelta(days=1))
    price("4", at=now - timedelta(days=2))
    price("9", at=now + timedelta(days=1))
    assert rate_now(now) == "5"
    assert rate_now(now - timedelta(days=1, microseconds=1)) == "4"
    assert rate_now(now + timedelta(days=1)) == "9"
    assert rate_now(now - timedelta(days=3)) is None


def test_a_price_ends_where_its_end_says(kernel_db: None) -> None:
    now = clock.now()
    price("5", at=now, valid_until_at=now + timedelta(hours=1))
    assert rate_now(now + timedelta(minutes=59)) == "5"
    assert rate_now(now + timedelta(hours=1)) is None


def test_names_are_exact_on_every_database(kernel_db: None) -> None:
    price("2")
    price("7", model="M-1")
    assert rate_now(model="m-1") == "2"
    assert rate_now(model="M-1") == "7"
    for near in ("m-1 ", "m-1-2024", "m", "house/m-1"):
        assert rate_now(model=near) is None


def test_the_operators_table_comes_before_the_bundled_data(kernel_db: None) -> None:
    at = clock.now()
    bundled = price_in_force(provider="openai", model="gpt-4o", at=at)
    assert bundled is not None
    assert bundled.source == "genai-prices"
    add_price(
        provider="openai",
        model="gpt-4o",
        rates={"input": "1", "output": "2"},
        valid_from_at=at,
        actor=OPERATOR,
    )
    own = price_in_force(provider="openai", model="gpt-4o", at=at)
    assert own is not None
    assert (own.source, own.version) == ("operator", "1")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"provider": ""}, "provider"),
        ({"provider": "a/b"}, "provider"),
        ({"model": ""}, "model"),
        ({"at": datetime(2026, 1, 1)}, "valid_from_at"),
    ],
)
def test_a_wrong_field_of_a_price_is_named(
    kernel_db: None, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        price(**values)
    assert refusal.value.field == field


def test_a_price_cannot_end_before_it_starts(kernel_db: None) -> None:
    now = clock.now()
    with pytest.raises(InvalidInput) as refusal:
        price(at=now, valid_until_at=now)
    assert refusal.value.field == "valid_until_at"


def test_a_rate_per_token_entered_per_million_must_be_confirmed(kernel_db: None) -> None:
    with pytest.raises(InvalidInput):
        price("0.000002")
    with pytest.raises(InvalidInput):
        price("8000000")
    assert price("8000000", confirm=True).version == 1
    assert usage.list_prices()[0].rates_text
