"""Bodies that two readers read differently, or that are costly to read, are refused (E5)."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from kernel.conf import override
from kernel.models import Request
from tests.api.conftest import Api, error_of
from tests.support.product import CHAT

ADDRESSES = {
    CHAT: b'{"model":"gpt","messages":[{"role":"user","content":"hi"}],"x":%s}',
    "/usage/v1/requests": b'{"operation_id":"op-1","request":{"model":"gpt",'
    b'"messages":[{"role":"user","content":"hi"}],"x":%s}}',
}


async def post(api: Api, address: str, value: bytes) -> httpx.Response:
    return await api.client.post(
        address,
        content=ADDRESSES[address] % value,
        headers={"Idempotency-Key": "op-1", "Content-Type": "application/json"},
    )


async def nothing_is_admitted(api: Api) -> bool:
    return await api.look(Request.objects.count) == 0 and api.provider.count() == 0


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    ("value", "field"),
    [(b"NaN", "x"), (b"[0, -Infinity]", "x[1]"), (b'{"y":1e999}', "x.y")],
)
async def test_what_is_no_number_in_json_is_refused_by_its_place_and_nothing_is_admitted(
    api: Api, address: str, value: bytes, field: str
) -> None:
    response = await post(api, address, value)
    assert response.status_code == 422
    assert error_of(response)["field"] == field
    assert field in error_of(response)["message"]
    assert await nothing_is_admitted(api)


@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_body_of_too_many_values_is_refused_and_nothing_is_admitted(
    api: Api, address: str
) -> None:
    with override(request_values_count_max=1_000):
        response = await post(api, address, b"[" + b"[]," * 1_000 + b"0]")
        assert response.status_code == 422
        assert error_of(response)["code"] == "body_too_complex"
        assert error_of(response)["field"] == "body"
        assert await nothing_is_admitted(api)
        assert (await post(api, address, b"[" + b"0," * 900 + b"0]")).status_code == 200


@pytest.mark.parametrize("address", ADDRESSES)
async def test_millions_of_tiny_arrays_do_not_hold_up_everybody_else(
    api: Api, address: str
) -> None:
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    beating = asyncio.create_task(beat())
    response: Any = await post(api, address, b"[" + b"[]," * 3_300_000 + b"0]")
    beating.cancel()
    assert response.status_code == 422
    # Decoding it takes three seconds and more, during which nothing else happens.
    assert max(gaps) < 1.5
    assert await nothing_is_admitted(api)
