"""Clients that leave or are slow: nothing that is saved or charged changes, nothing leaks (A10)."""

import asyncio
import threading
import time

import httpx
import psutil
import pytest
from django.db import connection

from kernel.conf import override
from kernel.models import LedgerRow, Request
from tests.api.conftest import Api, events, states, streaming
from tests.support.product import CHAT, chat_body
from tests.support.wait import NotInTime, wait_until_async

LEAVING = 50


# --- clients that leave -----------------------------------------------------------------------


def footprint(web: Api) -> dict[str, int]:
    """What this process has open, but for provider connections kept for reuse.

    The pool of database threads is bounded and starts them on demand.
    """
    threads = [one for one in threading.enumerate() if not one.name.startswith("bailing-db")]
    return {
        "threads": len(threads),
        "tasks": len(asyncio.all_tasks()),
        "sockets": len(psutil.Process().net_connections()) - web.kernel.door.idle,
    }


async def back_to(before: dict[str, int], web: Api) -> None:
    def is_back() -> bool:
        now.update(footprint(web))
        return all(now[name] <= before[name] for name in before)

    now: dict[str, int] = {}
    try:
        await wait_until_async(is_back, look_every=0.1)
    except NotInTime:
        pytest.fail(f"{now} is more than {before}")


async def leave(web: Api, *operation_ids: str, stream: bool) -> None:
    """Connect, ask, and hang up while the provider is at it."""
    async with httpx.AsyncClient(
        base_url=web.client.base_url, headers=web.client.headers, timeout=30
    ) as client:
        asking = [
            asyncio.create_task(
                client.post(
                    CHAT,
                    content=chat_body(marker=operation_id, stream=stream),
                    headers={"Idempotency-Key": operation_id},
                )
            )
            for operation_id in operation_ids
        ]
        await wait_until_async(
            lambda: set(operation_ids) <= {call.marker for call in web.provider.calls()},
            look_every=0.1,
        )
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
async def test_clients_that_leave_change_nothing_that_is_saved_or_charged(
    web: Api, stream: bool
) -> None:
    await web.chat("warm-up")
    await web.settled()
    await web.client.aclose()
    before = footprint(web)
    web.provider.default("hold")
    names = [f"op-{number}" for number in range(LEAVING)]
    await leave(web, *names, stream=stream)
    web.provider.release()
    await web.settled()
    rows = await web.look(
        lambda: list(
            Request.objects.filter(operation_id__in=names).values_list(
                "result_state", "billing_state"
            )
        )
    )
    assert rows == [("complete", "settled")] * LEAVING
    assert await web.look(LedgerRow.objects.count) == LEAVING + 1
    assert [web.provider.count(name) for name in names] == [1] * LEAVING
    assert web.kernel.door.busy == 0
    await back_to(before, web)


async def test_a_client_that_leaves_a_running_stream_does_not_end_it(web: Api) -> None:
    web.provider.next("stream_hold_midway", marker="op-1", events=2)
    async with streaming(web) as response:
        async for _ in response.aiter_raw():
            break
    assert (await states(web))[0] == "dispatched"
    web.provider.release("op-1")
    await web.settled()
    assert await states(web) == ("complete", "settled")
    replay = await web.chat("op-1", stream=True)
    assert events(replay.content)[-1] == "[DONE]"
    assert web.provider.count() == 1


async def test_a_client_that_leaves_before_its_answer_can_come_back_for_it(web: Api) -> None:
    web.provider.next("hold", marker="op-1")
    await leave(web, "op-1", stream=False)
    web.provider.release("op-1")
    await web.settled()
    response = await web.chat("op-1", stream=False)
    assert response.status_code == 200
    assert response.headers["Idempotent-Replayed"] == "true"
    assert web.provider.count() == 1


async def test_many_aborts_leave_the_database_sessions_as_they_were(
    server_db: None, web: Api
) -> None:
    def sessions() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE()"
            )
            return int(cursor.fetchone()[0])

    await asyncio.gather(*(web.chat(f"warm-{number}") for number in range(8)))
    before = await web.look(sessions)
    for stream in (False, True):
        await leave(web, *(f"op-{number}-{stream}" for number in range(15)), stream=stream)
    await web.settled()
    assert await web.look(sessions) <= before


async def test_people_who_leave_pages_by_the_hundred_leave_a_console_that_answers(
    web: Api,
) -> None:
    """A page's work is bound to one thread: one left behind there would hold up every other."""
    port = web.client.base_url.port or 0
    head = b"GET /sign-in/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    async def leave_page(number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head if number % 2 else head * 2)
        await writer.drain()
        await asyncio.sleep(0.002 * (number % 5))
        writer.transport.abort()

    for _ in range(5):
        await asyncio.gather(*(leave_page(number) for number in range(60)))
    page = await asyncio.wait_for(web.client.get("/sign-in/"), 30)
    assert page.status_code == 200 and "</html>" in page.text
    assert (await web.chat("op-1")).status_code == 200


# --- clients that are slow --------------------------------------------------------------------


async def test_a_slow_client_does_not_hold_up_the_call_or_its_settlement(web: Api) -> None:
    web.provider.next("huge_body", marker="op-1", bytes=4 * 1024 * 1024)
    async with streaming(web) as response:
        reader = response.aiter_raw()
        heard = len(await anext(reader))
        await web.settled()
        assert await states(web) == ("complete", "settled"), "while most of it is unread"
        async for piece in reader:
            heard += len(piece)
    assert heard > 4 * 1024 * 1024


async def test_a_slow_client_does_not_slow_down_others(web: Api) -> None:
    web.provider.next("huge_body", marker="slow", bytes=4 * 1024 * 1024)
    async with streaming(web, "slow") as response:
        await anext(response.aiter_raw())
        started = time.monotonic()
        answers = await asyncio.gather(*(web.chat(f"op-{number}") for number in range(10)))
        assert time.monotonic() - started < 10
    assert [answer.status_code for answer in answers] == [200] * 10


async def test_a_provider_that_goes_silent_ends_the_stream_in_time(web: Api) -> None:
    web.provider.next("stream_hang_midway", marker="op-1", events=2)
    with override(provider_read_seconds=0.3):
        response = await web.chat("op-1", stream=True)
    assert events(response.content)[-1]["error"]["code"] == "outcome_unknown"
    assert (await states(web))[0] == "unknown"
