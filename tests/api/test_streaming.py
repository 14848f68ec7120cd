"""Streams over a real socket: passed on at once, cut, replayed through one filter (A7, A10)."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest

from tests.api.conftest import Api, events, states, streaming
from tests.support.commits import AWAY, at_commit

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def client(web: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client."""
    async with openai.AsyncOpenAI(api_key=web.token, base_url=f"{web.client.base_url}/v1") as made:
        yield made


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
