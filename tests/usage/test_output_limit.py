"""A hold relies on a maximum output, so the provider is told it; the content stays the caller's."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from kernel import clock, usage
from kernel.models import Request
from kernel.usage.admission import content_sha256
from kernel.usage.bodies import read_body
from kernel.usage.request_body import output_limit_field
from tests.support.product import (
    CHAT,
    OPERATOR,
    admitted,
    ask,
    chat_body,
    generate,
    look,
    make_account,
    make_service,
    running_kernel,
    settled,
)
from tests.support.provider import ProviderProcess

LIMIT = 123
NAMED = {"max_tokens", "max_completion_tokens"}


def priced_as(provider: str) -> dict[str, Any]:
    """A service whose price is the operator's own, under this provider's name."""
    if provider != "openai":
        rates = {"input": "2.5", "output": "10"}
        since = clock.db_now() - timedelta(days=1)
        usage.add_price(
            provider=provider, model="m", rates=rates, valid_from_at=since, actor=OPERATOR
        )
        return {"price_provider": provider, "price_model": "m"}
    return {}


async def sent(
    provider: ProviderProcess, *, cap_nano: int | None, service: dict[str, Any], raw: bytes
) -> tuple[dict[str, Any], Request]:
    """What the provider received for this body, and the request's row."""
    async with running_kernel() as kernel:

        def set_up() -> None:
            make_account("capped", cap_nano=cap_nano)
            fields = {**service, **priced_as(service.get("price_provider", "openai"))}
            make_service("limited", base_url=provider.base_url, **fields)

        await look(kernel, set_up)
        await generate(kernel, ask("op-1", account_id="capped", raw=raw))
        await settled(kernel)
        row = await look(kernel, lambda: Request.objects.get(operation_id="op-1"))
    (call,) = provider.calls()
    return call.json, row


def body(**fields: Any) -> bytes:
    return chat_body(marker="op-1", model="limited", **fields)


@pytest.mark.parametrize(
    ("price_provider", "field"),
    [("openai", "max_completion_tokens"), ("acme", "max_tokens")],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_on_a_capped_account_the_services_maximum_is_sent_and_the_content_stays(
    shop: ProviderProcess, price_provider: str, field: str, stream: bool
) -> None:
    raw = body(stream=stream)
    received, row = await sent(
        shop,
        cap_nano=10**12,
        service={"max_output_tokens": LIMIT, "price_provider": price_provider},
        raw=raw,
    )
    assert {name: received[name] for name in NAMED & received.keys()} == {field: LIMIT}
    assert row.content_sha256 == content_sha256(account_id="capped", path=CHAT, body=raw)


async def test_the_stored_request_body_is_the_callers_own(kernel_db: None) -> None:
    raw = body()

    def stored() -> bytes | None:
        make_account("capped", cap_nano=10**12)
        make_service("limited", max_output_tokens=LIMIT)
        row = admitted(ask("op-1", account_id="capped", raw=raw))
        return read_body(request_id=row.id, kind="request")

    async with running_kernel() as kernel:
        found = await look(kernel, stored)
    assert found is not None
    assert hashlib.sha256(found).digest() == hashlib.sha256(raw).digest()


@pytest.mark.parametrize("name", sorted(NAMED))
async def test_a_maximum_of_the_caller_is_not_touched(shop: ProviderProcess, name: str) -> None:
    received, _ = await sent(
        shop, cap_nano=10**12, service={"max_output_tokens": LIMIT}, raw=body(**{name: 7})
    )
    assert {key: received[key] for key in NAMED & received.keys()} == {name: 7}


async def test_a_null_is_no_maximum_and_is_replaced(shop: ProviderProcess) -> None:
    received, _ = await sent(
        shop,
        cap_nano=10**12,
        service={"max_output_tokens": LIMIT},
        raw=body(max_completion_tokens=None),
    )
    assert received["max_completion_tokens"] == LIMIT


async def test_without_a_cap_nothing_is_added(shop: ProviderProcess) -> None:
    received, row = await sent(
        shop, cap_nano=None, service={"max_output_tokens": LIMIT}, raw=body()
    )
    assert not NAMED & received.keys()
    assert row.hold_nano == 0


def test_the_field_follows_from_the_name_of_the_price() -> None:
    names = {"openai": "max_completion_tokens", "azure": "max_completion_tokens"}
    for provider in ("openai", "azure", "mistral", "deepseek", "acme", ""):
        assert output_limit_field(provider) == names.get(provider, "max_tokens")
