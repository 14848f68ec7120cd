"""Streams over a real socket: passed on at once, cut, replayed, left, read slowly (A7, A10)."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import openai
import psutil
import pytest
from django.db import connection

from kernel.conf import override
from kernel.models import LedgerRow, Request
from tests.api.conftest import Api
from tests.support.commits import AWAY, at_commit
from tests.support.product import CHAT, chat_body, serving
from tests.support.wait import NotInTime, wait_until_async

MESSAGES = [{"role": "user", "content": "hi"}]
LEAVING = 50


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


@pytest.fixture
async def client(web: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client."""
    async with openai.AsyncOpenAI(api_key=web.token, base_url=f"{web.client.base_url}/v1") as made:
        yield made


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


# --- the official client ----------------------------------------------------------------------


async def test_the_official_client_streams_once_and_replays(
    web: Api, client: openai.AsyncOpenAI
) -> None:
    async def texts() -> list[str | None]:
        stream = await client.chat.completions.create(
            model="gpt",
            messages=MESSAGES,
            stream=True,
            user="op-1",
            extra_headers={"Idempotency-Key": "op-1"},
        )
        return [chunk.choices[0].delta.content async for chunk in stream]

    first, second = await texts(), await texts()
    assert first == second
    assert "".join(filter(None, first)).startswith("This is answer")
    assert web.provider.count() == 1


async def test_the_official_client_gets_the_usage_it_asked_for(
    web: Api, client: openai.AsyncOpenAI
) -> None:
    for _ in range(2):
        stream = await client.chat.completions.create(
            model="gpt",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"Idempotency-Key": "op-1"},
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].usage.total_tokens == 13
    assert web.provider.count() == 1


async def test_the_official_synchronous_client_works_too(web: Api) -> None:
    def ask() -> str:
        with openai.OpenAI(api_key=web.token, base_url=f"{web.client.base_url}/v1") as client:
            answer = client.chat.completions.create(
                model="gpt", messages=MESSAGES, extra_headers={"Idempotency-Key": "op-1"}
            )
            return answer.choices[0].message.content or ""

    assert (await asyncio.to_thread(ask)).startswith("This is answer")


async def test_the_official_client_raises_where_a_stream_was_cut(
    web: Api, client: openai.AsyncOpenAI
) -> None:
    web.provider.next("truncate_sse", events=3)
    stream = await client.chat.completions.create(
        model="gpt",
        messages=MESSAGES,
        stream=True,
        extra_headers={"Idempotency-Key": "op-1"},
    )
    seen = 0
    with pytest.raises(openai.APIError, match="never sent again"):
        async for _ in stream:
            seen += 1
    assert seen == 3
    assert web.provider.count() == 1


# --- passed on --------------------------------------------------------------------------------


async def test_bytes_arrive_while_the_provider_still_streams(web: Api) -> None:
    web.provider.next("stream_hold_midway", marker="op-1", events=3)
    async with streaming(web) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["bailing-operation-id"] == "op-1"
        assert response.headers["bailing-result-state"] == "dispatched"
        heard = b""
        async for piece in response.aiter_raw():
            heard += piece
            if heard.count(b"data: ") == 3:
                assert (await states(web))[0] == "dispatched", "not buffered to the end"
                web.provider.release("op-1")
    assert events(heard)[-1] == "[DONE]"


async def test_a_replay_passes_the_same_filter_as_the_live_stream(web: Api) -> None:
    live = await web.chat("op-1", stream=True)
    replay = await web.chat("op-1", stream=True)
    assert replay.content == live.content
    assert replay.headers["content-type"] == live.headers["content-type"]
    assert replay.headers["Idempotent-Replayed"] == "true"
    assert b'"usage"' not in live.content
    with_usage = {"stream": True, "stream_options": {"include_usage": True}}
    asked = await web.chat("op-2", **with_usage)
    assert b'"usage"' in asked.content
    assert (await web.chat("op-2", **with_usage)).content == asked.content


async def test_the_end_comes_only_after_the_result_is_saved(web: Api) -> None:
    with at_commit("save_results", AWAY, times=4) as fault:
        async with streaming(web) as response:
            heard = b""
            async for piece in response.aiter_raw():
                heard += piece
                if b"[DONE]" in heard:
                    assert fault.fired == 4
                    assert (await states(web))[0] == "complete"
    assert events(heard)[-1] == "[DONE]"


@pytest.mark.parametrize(
    "behaviour",
    [
        "null_usage_first",
        "zero_usage_first",
        "cumulative_usage",
        "multibyte_split",
        "bad_chunk_end",
    ],
)
async def test_odd_streams_arrive_whole_and_are_charged_right(web: Api, behaviour: str) -> None:
    web.provider.next(behaviour, marker="op-1")
    response = await web.chat("op-1", stream=True)
    assert events(response.content)[-1] == "[DONE]"
    await web.settled()
    row = await web.row()
    assert (row.result_state, row.billing_state, row.billed_nano) == ("complete", "settled", 62_500)


@pytest.mark.parametrize("behaviour", ["truncate_sse", "truncate_sse_clean"])
async def test_a_stream_cut_in_the_middle_ends_with_a_readable_error_event(
    web: Api, behaviour: str
) -> None:
    web.provider.next(behaviour, marker="op-1", events=3)
    response = await web.chat("op-1", stream=True)
    *chunks, last = events(response.content)
    assert len(chunks) == 3
    assert last["error"]["code"] == "outcome_unknown"
    assert last["error"]["retryable"] is False
    repeat = await web.chat("op-1", stream=True)
    assert repeat.status_code == 502
    kept = await web.client.get("/usage/v1/requests/op-1/result")
    assert kept.content.count(b"data: ") == 3
    assert web.provider.count() == 1


async def test_a_stream_cut_inside_an_event_ends_with_a_readable_error_event(web: Api) -> None:
    pieces = [b'data: {"id":"x","choices":[]}\n\n', b'data: {"id":"x","cho']
    web.provider.next_bytes(pieces, marker="op-1", end="close")
    response = await web.chat("op-1", stream=True)
    first, last = events(response.content)
    assert first["id"] == "x"
    assert last["error"]["code"] == "outcome_unknown"
    kept = await web.client.get("/usage/v1/requests/op-1/result")
    assert kept.content == b"".join(pieces), "what came is kept to the last byte"


async def test_an_error_event_of_the_provider_is_a_failure_and_is_replayed(web: Api) -> None:
    web.provider.next("error_event", marker="op-1")
    first = await web.chat("op-1", stream=True)
    assert events(first.content)[-1]["error"]["message"] == "test provider broke"
    again = await web.chat("op-1", stream=True)
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["bailing-result-state"] == "failed"
    assert again.headers["x-should-retry"] == "false"
    assert web.provider.count() == 1


async def test_a_rejected_stream_is_a_plain_error_answer(web: Api) -> None:
    web.provider.next("status_429", marker="op-1")
    response = await web.chat("op-1", stream=True)
    assert response.status_code == 429
    assert response.json()["error"]["message"] == "test provider says 429"


# --- clients that leave -----------------------------------------------------------------------


def footprint(web: Api) -> dict[str, int]:
    """What this process has open, but for provider connections kept for reuse."""
    return {
        "threads": threading.active_count(),
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
