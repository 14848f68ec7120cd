"""Calls made from /v1/openapi.json: no answer is a defect, whatever fits or does not fit (E5)."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernel.access import SCOPES
from kernel.api.urls import api
from tests.support.fixtures import provider, provider_process, shop
from tests.support.product import client_of, look, make_token, running_kernel

__all__ = ["provider", "provider_process", "shop"]

EXAMPLES_PER_OPERATION = 2
SKIPPED = frozenset({"/v1/openapi.json"})


class Product:
    """A kernel on its own loop and thread, called in-process, one call after the other."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def called(shop) -> Iterator[Any]:
    """`called(method, path, **parts)` -> the answer, as a caller with every scope."""
    product = Product()
    opened = running_kernel()
    kernel = product.run(opened.__aenter__())
    token = product.run(look(kernel, lambda: make_token(scopes=tuple(SCOPES))))

    async def call(method: str, path: str, **parts: Any) -> Any:
        async with client_of(kernel, token) as client:
            return await client.request(method, path, **parts)

    yield lambda *words, **parts: product.run(call(*words, **parts))
    product.run(opened.__aexit__(None, None, None))
    product.close()


def operations() -> list[Any]:
    document = api.get_openapi_schema(path_prefix="")
    schema = schemathesis.openapi.from_dict(dict(document))
    found = [one.ok() for one in schema.get_all_operations()]
    return [one for one in found if one.path not in SKIPPED]


def test_no_call_made_from_the_schema_is_answered_with_a_defect(called) -> None:
    every = operations()
    assert len(every) >= 20, "the schema lists the doors"
    statuses: dict[str, set[int]] = {}

    @settings(
        max_examples=EXAMPLES_PER_OPERATION * len(every),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        operation = data.draw(st.sampled_from(every))
        case = data.draw(operation.as_strategy())
        parts = case.as_transport_kwargs(base_url="http://product.test")
        parts.pop("cookies", None)
        method, address = parts.pop("method"), parts.pop("url")
        headers = {**dict(parts.pop("headers", {}) or {})}
        headers.pop("Authorization", None)
        answer = called(method, address, headers=headers, **parts)
        statuses.setdefault(f"{method} {operation.path}", set()).add(answer.status_code)
        told = (method, address, parts, answer.status_code, answer.text[:300])
        assert answer.status_code < 500 or answer.status_code == 503, told
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert error["code"] not in ("", "internal"), told
            assert error["message"], told
            assert error["next_action"], told

    ask()
    assert len(statuses) >= len(every) // 2, "the calls reach most doors"


def test_what_the_schema_says_is_what_is_routed() -> None:
    addresses = {one.path for one in operations()}
    assert {"/v1/chat/completions", "/v1/jobs", "/v1/approvals/{approval_id}"} <= addresses
