"""The product in this process: a kernel on the run's database, its HTTP door, what a caller sends.

    async with running_kernel() as kernel, serving(kernel) as address: ...

Rows are read and written through `kernel.database`, because a test coroutine may not touch the ORM.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import uvicorn
from django.db import connection

from console.asgi import create_application
from kernel import audit, usage
from kernel.access import issue_token
from kernel.ids import new_id
from kernel.invariants import check_all
from kernel.kernel import Kernel
from kernel.models import Account, LedgerRow, Request, Service
from kernel.usage.admission import Submission
from kernel.usage.gateway import Ended, Flight, Streaming
from kernel.usage.submissions import submission

T = TypeVar("T")

OPERATOR = audit.Actor("user", "olga")
SHELL = audit.Actor("command", "root")  # what it issues is in no decider's hands
CHAT = "/v1/chat/completions"
BASIC_SCOPES = ("usage:write", "usage:read")


# --- rows -------------------------------------------------------------------------------------


def make_account(account_id: str = "acme", **fields: Any) -> Account:
    """An account; `fields` are those of create_account."""
    values = {"name": account_id[:120], **fields}
    return usage.create_account(account_id=account_id, actor=OPERATOR, **values)


def make_service(
    service_id: str = "gpt", *, base_url: str = "http://127.0.0.1:9/v1", **fields: Any
) -> Service:
    """A service on a loopback provider, priced as openai/gpt-4o (2.5 and 10 USD per million)."""
    values = {
        "base_url": base_url,
        "model": "upstream-model",
        "price_provider": "openai",
        "price_model": "gpt-4o",
        "allow_private": True,
        **fields,
    }
    return usage.add_service(service_id=service_id, actor=OPERATOR, **values)


def make_token(account_id: str = "acme", scopes: tuple[str, ...] = BASIC_SCOPES) -> str:
    """The secret of a new token."""
    return issue_token(account_id=account_id, name="test", scopes=scopes, actor=SHELL)[1]


def chat_body(*, marker: str = "", model: str = "gpt", **fields: Any) -> bytes:
    """A chat completion body; `marker` names the operation in the provider's file of calls."""
    value: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    if marker:
        value["user"] = marker
    return json.dumps({**value, **fields}).encode()


def ask(
    operation_id: str = "op-1", *, account_id: str = "acme", raw: bytes | None = None, **fields: Any
) -> Submission:
    """A submission as the HTTP door would make it; its marker is the operation id."""
    body = chat_body(marker=operation_id, **fields) if raw is None else raw
    return submission(account_id=account_id, operation_id=operation_id, path=CHAT, raw=body)


def again(item: Submission) -> Submission:
    """The same request of the same caller, once more."""
    return replace(item, request_id=new_id("req"))


def admitted(item: Submission) -> Request:
    """Admit one submission; raises what refused it."""
    (found,) = usage.admit(items=[item])
    if isinstance(found, Exception):
        raise found
    return found.request


def reread(row: Request) -> Request:
    return Request.objects.get(id=row.id)


def ledger_total(account_id: str = "acme") -> int:
    return sum(
        LedgerRow.objects.filter(account_id=account_id).values_list("amount_nano", flat=True)
    )


def assert_invariants() -> None:
    """Every numbered database invariant holds."""
    broken = [str(report) for report in check_all() if not report.holds]
    assert not broken, broken


# --- a running kernel -------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def running_kernel(
    *, owner: str = "", close_seconds: float = 20, worker: bool = False
) -> AsyncIterator[Kernel]:
    """A kernel that closes cleanly, or the test fails; the invariants hold at its end."""
    kernel = Kernel(owner=owner, worker=worker)
    await kernel.initialize()
    try:
        yield kernel
        await look_apart(assert_invariants)
    finally:
        report = await kernel.close(close_seconds)
        assert report.drained, report.left


async def look(kernel: Kernel, fact: Callable[[], T]) -> T:
    """Ask the database on a database thread."""
    return await kernel.database.in_tx(fact)


async def look_apart(fact: Callable[[], T]) -> T:
    """Ask the database on a thread and a connection of its own, whatever the kernel does."""

    def ask_and_close() -> T:
        try:
            return fact()
        finally:
            connection.close()

    return await asyncio.to_thread(ask_and_close)


async def generate(kernel: Kernel, item: Submission) -> Ended:
    """Submit and wait until the outcome is saved."""
    flight = await kernel.gateway.submit(item)
    assert isinstance(flight, Flight), "the submission repeats another one"
    return await flight.wait_ended()


async def stream_bytes(flight: Flight) -> bytes:
    """What a client that stays to the end of the stream gets."""
    opened = await flight.wait_opened()
    assert isinstance(opened, Streaming), opened
    return b"".join([piece async for piece in opened.live.read()])


async def settled(kernel: Kernel) -> None:
    """Wait until the background work of the kernel is done."""
    loop = asyncio.get_running_loop()
    assert await kernel.background.drain(loop.time() + 20), kernel.background.pending()


# --- its HTTP door ----------------------------------------------------------------------------


def client_of(kernel: Kernel, token: str = "", **headers: str) -> httpx.AsyncClient:
    """A client on the real ASGI application, without a socket. Bodies arrive whole."""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_application(kernel), raise_app_exceptions=False),
        base_url="http://product.test",
        headers=headers,
    )


@contextlib.asynccontextmanager
async def serving(kernel: Kernel) -> AsyncIterator[str]:
    """The application behind uvicorn on a free loopback port; yields its address."""
    config = uvicorn.Config(
        create_application(kernel), lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            server.force_exit = True
            await task
