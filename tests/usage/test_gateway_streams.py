"""A streamed generation: passed on, held, cut, replayed through one filter (A7, A10)."""

import asyncio
import hashlib

import pytest

from kernel import usage
from kernel.conf import override
from kernel.models import LedgerRow, Request, Service
from tests.support.commits import AWAY, at_commit
from tests.support.product import (
    OPERATOR,
    ask,
    look,
    running_kernel,
    settled,
    stream_bytes,
)
from tests.support.provider import ProviderProcess
from tests.usage.flow import result_of, states_now, the_request
from tests.usage.wire import DONE, delta, event


async def test_a_stream_is_passed_on_saved_and_replayed_through_one_filter(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        heard = await stream_bytes(flight)
        end = await flight.wait_ended()
        assert heard.endswith(b"data: [DONE]\n\n")
        assert b'"choices": [], "usage"' not in heard, "the client did not ask for it"
        assert b'"choices": [], "usage"' in end.outcome.body, "we did, and keep it"
        assert hashlib.sha256(end.outcome.body).hexdigest() == end.outcome.sha256
        await settled(kernel)
        assert await look(kernel, states_now) == ("complete", "settled", "")
    assert shop.calls()[0].json["stream_options"] == {"include_usage": True}


async def test_the_end_of_a_stream_is_held_until_it_is_saved(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        with at_commit("save_results", AWAY, times=4) as fault:
            flight = await kernel.gateway.submit(ask("op-1", stream=True))
            opened = await flight.wait_opened()
            heard = b""
            async for piece in opened.live.read():
                heard += piece
                if b"[DONE]" in piece:
                    assert fault.fired == 4
                    assert (await look(kernel, states_now))[0] == "complete"
        assert heard.endswith(b"data: [DONE]\n\n")


async def test_a_stream_nobody_listens_to_is_read_to_its_end(shop: ProviderProcess) -> None:
    shop.next("slow_drip", marker="op-1", chunks=20, delay_ms=5)
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        opened = await flight.wait_opened()
        async for _ in opened.live.read():
            break
        await settled(kernel)
        assert await look(kernel, states_now) == ("complete", "settled", "")


@pytest.mark.parametrize("behaviour", ["truncate_sse", "truncate_sse_clean", "stream_hang_midway"])
async def test_a_stream_cut_in_the_middle_ends_with_an_error_event(
    shop: ProviderProcess, behaviour: str
) -> None:
    shop.next(behaviour, marker="op-1", events=3)
    async with running_kernel() as kernel:
        with override(provider_read_seconds=0.3):
            flight = await kernel.gateway.submit(ask("op-1", stream=True))
            heard = await stream_bytes(flight)
        end = await flight.wait_ended()
        *_, last, rest = heard.split(b"\n\n")
        assert (b'"outcome_unknown"' in last, rest) == (True, b"")
        assert b"[DONE]" not in heard
        assert end.saved.result_state == "unknown"
        row = await look(kernel, the_request)
        assert await look(kernel, lambda: result_of(row)) == end.outcome.body, "the partial is kept"
        assert end.outcome.body.count(b"data: ") == 3
    assert shop.count() == 1


async def test_a_stream_whose_result_cannot_be_saved_says_so(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        with override(result_save_seconds_max=0), at_commit("save_results", AWAY, times=2):
            flight = await kernel.gateway.submit(ask("op-1", stream=True))
            heard = await stream_bytes(flight)
        assert b"result_not_saved" in heard
        assert b"[DONE]" not in heard
        await look(kernel, lambda: Request.objects.update(lease_expires_at="2020-01-01T00:00:00Z"))
        await kernel.run_pass("recovery")


async def test_a_cancelled_stream_says_so(shop: ProviderProcess) -> None:
    shop.next("stream_hold_midway", marker="op-1", events=2)
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        await flight.wait_opened()
        await kernel.database.in_tx(usage.cancel, request_id=flight.request.id, actor=OPERATOR)
        shop.release("op-1")
        heard = await stream_bytes(flight)
        assert b'"code": "cancelled"' in heard
        assert b"[DONE]" not in heard
        await settled(kernel)
        assert (await look(kernel, states_now))[:2] == ("cancelled", "settled")


async def test_an_error_event_of_the_provider_is_the_end_and_is_passed_on(
    shop: ProviderProcess,
) -> None:
    usage_object = {"prompt_tokens": 9, "completion_tokens": 4}
    shop.next("error_event", marker="op-1", usage=usage_object)
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        heard = await stream_bytes(flight)
        assert b"test provider broke" in heard
        assert b"outcome_unknown" not in heard
        await settled(kernel)
        assert await look(kernel, states_now) == ("failed", "settled", "")


async def test_a_valid_end_followed_by_a_bad_chunk_end_is_complete(shop: ProviderProcess) -> None:
    shop.next("bad_chunk_end", marker="op-1")
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        heard = await stream_bytes(flight)
        assert heard.endswith(b"data: [DONE]\n\n")
        await settled(kernel)
        assert await look(kernel, states_now) == ("complete", "settled", "")


async def test_characters_cut_between_chunks_arrive_whole(shop: ProviderProcess) -> None:
    shop.next("multibyte_split", marker="op-1")
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        heard = await stream_bytes(flight)
        heard.decode("utf-8")
        await settled(kernel)
        assert await look(kernel, states_now) == ("complete", "settled", "")


async def test_fifty_streams_at_once_are_all_saved_and_leave_nothing_open(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        flights = [
            await kernel.gateway.submit(ask(f"op-{number}", stream=True)) for number in range(50)
        ]
        await asyncio.gather(*(stream_bytes(flight) for flight in flights[::2]))
        await settled(kernel)
        found = await look(kernel, lambda: set(Request.objects.values_list("result_state")))
        assert found == {("complete",)}
        assert (kernel.gateway.running, kernel.door.busy) == (0, 0)
        assert await look(kernel, LedgerRow.objects.count) == 50
    assert shop.count() == 50


KEY = "sk-a-provider-key-of-this-test"


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("end", ["clean", "close"])
async def test_a_key_that_a_stream_quotes_is_cut_out_before_anybody_has_it(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch, end: str, space: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", space + KEY)
    spoken = delta("you sent " + KEY) + event({"error": {"message": f"bad key:{KEY}"}}) + DONE
    cut = spoken.index(KEY.encode()) + 7  # in the middle of the first one
    pieces = [spoken[:cut], spoken[cut:]]
    named = f"text/event-stream; key={KEY}"
    shop.next_bytes(pieces, marker="op-1", content_type=named, end=end, delay_ms=20)
    async with running_kernel() as kernel:
        await look(kernel, lambda: Service.objects.update(api_key_env="OPENAI_API_KEY"))
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        heard = await stream_bytes(flight)
        outcome = (await flight.wait_ended()).outcome
        row = await look(kernel, the_request)
        saved = await look(kernel, lambda: result_of(row))
    told = [heard, saved, outcome.error_text.encode(), row.content_type.encode()]
    for text in told:
        assert KEY.encode() not in text and b"[provider key removed]" in text, text


SLASHED = "sk-abc/DEF0123456789/xyz"
ESCAPED = {
    "slash": SLASHED.replace("/", "\\/"),
    "any character": SLASHED.replace("-", "\\u002d"),
}


@pytest.mark.parametrize("written", ESCAPED.values(), ids=ESCAPED)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_key_quoted_in_escapes_is_in_no_text_of_the_row(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch, written: str, stream: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SLASHED)
    usage_text = '{"prompt_tokens": 1, "completion_tokens": "KEY", "KEY": "KEY"}'
    answer = '{"id": "KEY", "service_tier": "KEY", "usage": %s, "error": "bad key KEY"}'
    spoken = (answer % usage_text).replace("KEY", written).encode()
    pieces = [b"data: " + spoken + b"\n\n", DONE] if stream else [spoken]
    kind = "text/event-stream" if stream else "application/json"
    shop.next_bytes(pieces, marker="op-1", content_type=kind)
    async with running_kernel() as kernel:
        await look(kernel, lambda: Service.objects.update(api_key_env="OPENAI_API_KEY"))
        flight = await kernel.gateway.submit(ask("op-1", stream=stream))
        await flight.wait_ended()
        await settled(kernel)
        row = await look(kernel, the_request)
        columns = await look(kernel, lambda: repr(Request.objects.values().get()))
        saved = await look(kernel, lambda: result_of(row))
    assert SLASHED not in columns
    assert row.provider_request_id == "[provider key removed]"
    assert row.error_text == ("bad key [provider key removed]" if stream else "")
    assert '"reason"' in row.usage_text
    if written == ESCAPED["slash"]:
        assert written.encode() not in (saved or b""), "this form is cut out of the bytes, too"


@pytest.mark.parametrize("end", ["clean", "close"])
async def test_an_answer_that_ends_inside_the_key_tells_nobody_most_of_it(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    spoken = delta() + b'data: {"error": {"message": "bad key ' + KEY[:-1].encode()
    shop.next_bytes([spoken], marker="op-1", end=end)
    async with running_kernel() as kernel:
        await look(kernel, lambda: Service.objects.update(api_key_env="OPENAI_API_KEY"))
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        heard = await stream_bytes(flight)
        await flight.wait_ended()
        row = await look(kernel, the_request)
        saved = await look(kernel, lambda: result_of(row))
    assert KEY[:8].encode() not in heard
    assert saved is not None and saved.endswith(b"bad key [provider key removed]")
    assert KEY[:8].encode() not in saved


async def test_a_key_that_an_error_text_is_cut_inside_of_is_not_told(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SLASHED)
    said = "x" * 280 + ESCAPED["any character"]  # a row keeps the first 300 characters
    shop.next_bytes([b'data: {"error": "' + said.encode() + b'"}\n\n'], marker="op-1")
    async with running_kernel() as kernel:
        await look(kernel, lambda: Service.objects.update(api_key_env="OPENAI_API_KEY"))
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        outcome = (await flight.wait_ended()).outcome
    assert outcome.error_text == "x" * 280 + "[provider key removed]"
