"""The product's HTTP door in this process: a kernel, a provider, a token and a client on it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import httpx
import pytest

from kernel import clock
from kernel.access import SCOPES
from kernel.kernel import Kernel
from kernel.models import Request
from tests.api.agents import make_agents_tool, policy
from tests.support.fixtures import (
    provider,
    provider_process,
    server_db,
    shop,
    tool_process,
    tool_server,
)
from tests.support.product import (
    CHAT,
    chat_body,
    client_of,
    look,
    make_token,
    running_kernel,
    serving,
    settled,
)
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer

__all__ = ["provider", "provider_process", "server_db", "shop", "tool_process", "tool_server"]

T = TypeVar("T")


@dataclass
class Api:
    """One caller of the running product."""

    kernel: Kernel
    provider: ProviderProcess
    client: httpx.AsyncClient
    token: str

    async def look(self, fact: Callable[[], T]) -> T:
        return await look(self.kernel, fact)

    async def chat(self, operation_id: str = "op-1", **fields: Any) -> httpx.Response:
        """POST a chat completion; its marker at the provider is the operation id."""
        return await self.client.post(
            CHAT,
            content=chat_body(marker=operation_id, **fields),
            headers={"Idempotency-Key": operation_id, "Content-Type": "application/json"},
        )

    async def admit(self, operation_id: str = "op-1", **fields: Any) -> httpx.Response:
        """POST /usage/v1/requests without dispatching."""
        return await self.request(operation_id, dispatch=False, **fields)

    async def request(
        self, operation_id: str = "op-1", *, dispatch: bool = True, prefer: str = "", **fields: Any
    ) -> httpx.Response:
        body = chat_body(marker=operation_id, **fields).decode()
        text = f'{{"operation_id":"{operation_id}","request":{body},"dispatch":{dispatch!s}}}'
        return await self.client.post(
            "/usage/v1/requests",
            content=text.replace("True", "true").replace("False", "false"),
            headers={"Content-Type": "application/json", **({"Prefer": prefer} if prefer else {})},
        )

    async def state(self, operation_id: str = "op-1") -> dict[str, Any]:
        """The status document."""
        response = await self.client.get(f"/usage/v1/requests/{operation_id}")
        assert response.status_code == 200, response.text
        return response.json()

    async def row(self, operation_id: str = "op-1") -> Request:
        return await self.look(lambda: Request.objects.get(operation_id=operation_id))

    async def wait_for_call(self, operation_id: str = "op-1") -> None:
        await asyncio.to_thread(self.provider.wait_for_call, operation_id)

    async def settled(self) -> None:
        """Wait until the background work is done."""
        await settled(self.kernel)

    async def end_lease(self, operation_id: str = "op-1") -> None:
        """As if the owner had died an hour ago."""
        past = clock.now() - timedelta(hours=1)
        rows = Request.objects.filter(operation_id=operation_id)
        await self.look(lambda: rows.update(lease_expires_at=past))


@pytest.fixture
async def api(shop: ProviderProcess) -> AsyncIterator[Api]:
    async with running_kernel() as kernel:
        token = await look(kernel, make_token)
        async with client_of(kernel, token) as client:
            yield Api(kernel, shop, client, token)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer, after a look at its shape."""
    assert response.headers["content-type"] == "application/json"
    (name,) = response.json()
    assert name == "error"
    error = response.json()["error"]
    for key, kind in (("code", str), ("message", str), ("retryable", bool), ("next_action", str)):
        assert type(error[key]) is kind, key
    assert error["message"] and error["next_action"]
    if error["http_request_id"]:
        assert response.headers["x-request-id"] == error["http_request_id"]
    assert ("retry-after" in response.headers) == error["retryable"]
    if not error["retryable"]:
        assert response.headers["x-should-retry"] == "false"
    return error


def names_of(response: httpx.Response) -> dict[str, str]:
    """The Bailing-* headers, short."""
    return {
        name.removeprefix("bailing-"): value
        for name, value in response.headers.items()
        if name.startswith("bailing-") or name == "idempotent-replayed"
    }


@pytest.fixture
async def web(api: Api) -> AsyncIterator[Api]:
    """The same caller, through uvicorn on loopback."""
    async with (
        serving(api.kernel) as address,
        httpx.AsyncClient(
            base_url=address,
            headers={"Authorization": f"Bearer {api.token}"},
            limits=httpx.Limits(max_connections=200),
            timeout=30,
        ) as client,
    ):
        yield replace(api, client=client)


@contextlib.asynccontextmanager
async def streaming(web: Api, operation_id: str = "op-1", **fields: object):
    """An open answer whose body is not read yet."""
    async with web.client.stream(
        "POST",
        CHAT,
        content=chat_body(marker=operation_id, stream=True, **fields),
        headers={"Idempotency-Key": operation_id},
    ) as response:
        yield response


def events(body: bytes) -> list[object]:
    """The events of a stream; every one of them must be readable."""
    found = []
    for part in body.split(b"\n\n"):
        if part:
            assert part.startswith(b"data: "), part
            data = part[6:]
            found.append("[DONE]" if data == b"[DONE]" else json.loads(data))
    return found


async def states(web: Api, operation_id: str = "op-1") -> tuple[str, str]:
    row = await web.row(operation_id)
    return row.result_state, row.billing_state


@pytest.fixture
async def desk(shop: ProviderProcess) -> AsyncIterator[Api]:
    """A caller with every scope; no worker runs, so that jobs stay as a test puts them."""
    async with running_kernel() as kernel:
        token = await look(kernel, lambda: make_token(scopes=tuple(SCOPES)))
        async with client_of(kernel, token) as client:
            yield Api(kernel, shop, client, token)


@pytest.fixture
async def auto(desk: Api, tool_server: ToolServer) -> Api:
    """A tool that needs nobody."""
    await desk.look(
        lambda: make_agents_tool(url=tool_server.url + "/refund", policy_text=policy("auto"))
    )
    return desk


@pytest.fixture
async def asks(desk: Api, tool_server: ToolServer) -> Api:
    """A tool that asks a person."""
    await desk.look(lambda: make_agents_tool(url=tool_server.url + "/refund"))
    return desk
