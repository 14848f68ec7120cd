"""One call of a tool: what leaves, what an answer proves, bounded bodies (D3, E1, E2, E3, E6)."""

import asyncio
import json
import math
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kernel.conf import override
from kernel.errors import InvalidInput, NotSent
from kernel.http import Door
from kernel.jobs.tools import ANSWERED, NOT_SENT, UNCERTAIN, ToolAnswer, build_request, call_tool
from kernel.models import Tool
from tests.support.hostile_peer import HostilePeer

MIB = 2**20
BUDGET = 5 * MIB
GROWTH_MAX = 8 * MIB
KEY = "bz:job_1.1.0"


def tool(url: str = "https://shop.example/refunds", **fields: Any) -> Tool:
    values = {"id": "refund", "parameters_text": "{}", "policy_text": "{}", "allow_private": True}
    return Tool(url=url, **{**values, **fields})


def built(one: Tool, arguments: str = "{}", **environ: str) -> Any:
    return build_request(tool=one, arguments_text=arguments, idempotency_key=KEY, environ=environ)


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    yield door
    await door.aclose()


@pytest.fixture
async def peer() -> AsyncIterator[HostilePeer]:
    async with HostilePeer() as peer:
        yield peer


async def called(door: Door, url: str, arguments: str = "{}", **fields: Any) -> ToolAnswer:
    one = tool(url, **fields)
    return await call_tool(
        door=door, tool=one, arguments_text=arguments, idempotency_key=KEY, until=math.inf
    )


# --- what leaves ------------------------------------------------------------------------------


def test_the_approved_bytes_are_the_bytes_that_leave() -> None:
    text = '{"amount":1.0,"note":"naïve — \\u0000","z":[2,1]}'
    request = built(tool(), text)
    assert request.body == text.encode()
    assert dict(request.headers) == {"Idempotency-Key": KEY, "Content-Type": "application/json"}


def test_a_method_without_body_puts_the_arguments_into_the_query_as_they_were_written() -> None:
    one = tool("https://shop.example/orders/{id}?v=1", method="GET")
    request = built(one, '{"a":1.0,"b":[1,{"c":2}],"d":"x y&z","id":"A/7","t":true}')
    query = "v=1&a=1.0&b=%5B1%2C%7B%22c%22%3A2%7D%5D&d=x%20y%26z&t=true"
    assert request.url == f"https://shop.example/orders/A%2F7?{query}"
    assert request.body is None


@pytest.mark.parametrize("value", ['""', '"."', '".."', "null", "[1]", "{}"])
def test_an_argument_in_the_url_never_leads_to_another_path(value: str) -> None:
    one = tool("https://shop.example/orders/{id}/refund")
    with pytest.raises(InvalidInput) as refusal:
        built(one, f'{{"id":{value}}}')
    assert refusal.value.field == "id"


def test_the_tools_key_comes_from_the_environment_and_is_in_no_repr() -> None:
    one = tool(secret_env="SHOP_KEY")
    request = built(one, SHOP_KEY="s3cret-key-1")
    assert dict(request.headers)["Authorization"] == "Bearer s3cret-key-1"
    assert "s3cret" not in repr(request)
    other = built(tool(secret_env="SHOP_KEY", secret_header="X-Api-Key"), SHOP_KEY="s3cret-key-1")
    assert dict(other.headers)["X-Api-Key"] == "s3cret-key-1"
    with pytest.raises(NotSent) as refusal:
        built(one)
    assert refusal.value.error_code == "tool_key_missing"
    with pytest.raises(InvalidInput):
        built(tool(secret_env="BAILING_API_TOKEN"), BAILING_API_TOKEN="x")


def test_a_key_file_read_with_its_line_end_is_the_key() -> None:
    request = built(tool(secret_env="SHOP_KEY"), SHOP_KEY="  s3cret-key-1\r\n")
    assert dict(request.headers)["Authorization"] == "Bearer s3cret-key-1"
    assert request.secret == b"s3cret-key-1", "what is cut out of its answers"


@pytest.mark.parametrize(
    ("key", "code"), [("sk-\udcff-12345678", "tool_key_unreadable"), (" \n", "tool_key_missing")]
)
async def test_a_key_that_cannot_be_sent_is_proven_not_sent_and_not_shown(
    door: Door, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch, key: str, code: str
) -> None:
    monkeypatch.setenv("SHOP_KEY", key)
    answer = await called(door, peer.url("echo"), "{}", secret_env="SHOP_KEY")
    assert (answer.outcome, answer.error_code) == ("not_sent", code)
    assert "12345678" not in answer.error_text


async def test_a_tool_that_quotes_its_key_does_not_show_it_to_the_model(
    door: Door, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret-key-1")
    answer = await called(door, peer.url("echo"), '{"said":"s3cret-key-1"}', secret_env="SHOP_KEY")
    assert answer.text == '{"said":"[tool key removed]"}'
    assert answer.body_bytes == len('{"said":"s3cret-key-1"}')


async def test_no_part_of_a_key_is_left_where_the_models_view_ends(
    door: Door, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "s3cret-key-that-is-longer-than-its-mark-1"
    monkeypatch.setenv("SHOP_KEY", key)
    with override(model_view_bytes_max=256):
        for before in range(150, 260):  # the second one stands over the end of what is looked at
            said = f'{{"said":"{key} {"x" * before}{key} and more{"." * 100}"}}'
            answer = await called(door, peer.url("echo"), said, secret_env="SHOP_KEY")
            assert "s3cret" not in answer.text, before


# --- what an answer proves --------------------------------------------------------------------


async def test_a_whole_answer_is_what_happened_a_redirect_too(
    door: Door, peer: HostilePeer
) -> None:
    answer = await called(door, peer.url("ok", size=3))
    assert answer == ToolAnswer(ANSWERED, 200, "xxx", 3)
    moved = await called(door, peer.url("redirect"))
    assert (moved.outcome, peer.received["redirect"]) == (ANSWERED, 1)
    assert 300 <= (moved.http_status or 0) < 400
    empty = await called(door, peer.url("nothing"))
    assert (empty.outcome, empty.http_status, empty.body_bytes) == (ANSWERED, 204, 0)


async def test_nobody_listening_and_a_refused_address_are_proven_not_sent(
    door: Door, peer: HostilePeer
) -> None:
    nobody = await called(door, "http://127.0.0.1:9/refunds")
    private = await called(door, peer.url("ok"), allow_private=False)
    assert [nobody.outcome, private.outcome] == [NOT_SENT, NOT_SENT]
    assert private.error_code == "address_refused"
    assert peer.connections == 0
    wrong = await called(door, peer.url("ok") + "/{id}")
    assert (wrong.outcome, wrong.is_for_good) == (NOT_SENT, True)


@pytest.mark.parametrize("name", ["close_after_request", "reset_after_request", "garbage"])
async def test_a_connection_lost_after_the_request_is_uncertain(
    door: Door, peer: HostilePeer, name: str
) -> None:
    answer = await called(door, peer.url(name))
    assert answer.outcome == UNCERTAIN
    assert (answer.error_code != "", answer.error_text != "") == (True, True)
    assert peer.received[name] == 1


async def test_silence_beyond_the_tools_deadline_is_uncertain(
    door: Door, peer: HostilePeer
) -> None:
    answer = await called(door, peer.url("hang"), deadline_seconds=0.2)
    assert answer.outcome == UNCERTAIN


# --- bodies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("ok", {"size": BUDGET + 1}),  # one byte more, and the length says so
        ("bomb", {"mib": 6, "gzip": 1}),
        ("bomb", {"mib": 64, "gzip": 0}),
        ("huge_length", {}),
        ("endless", {}),
    ],
)
async def test_more_than_the_budget_is_discarded_and_the_call_uncertain(
    door: Door, peer: HostilePeer, name: str, params: dict[str, int]
) -> None:
    answer = await called(door, peer.url(name, **params))
    assert (answer.outcome, answer.error_code) == (UNCERTAIN, "body_too_large")
    assert (answer.text, answer.body_bytes) == ("", None)


async def test_exactly_the_budget_passes_and_the_model_sees_its_own_budget_of_it(
    door: Door, peer: HostilePeer
) -> None:
    for url in (peer.url("ok", size=BUDGET), peer.url("bomb", mib=5)):
        answer = await called(door, url)
        assert (answer.outcome, answer.body_bytes) == (ANSWERED, BUDGET)
        assert len(answer.text.encode()) == 64 * 1024


@pytest.mark.parametrize(
    "name",
    [
        "stacked",
        "unknown_encoding",
        "gzip_truncated",
        "short_body",
        "short_chunked",
        "bad_chunk",
        "close_delimited",
    ],
)
async def test_a_body_that_cannot_be_trusted_leaves_the_call_uncertain(
    door: Door, peer: HostilePeer, name: str
) -> None:
    answer = await called(door, peer.url(name))
    assert (answer.outcome, answer.error_code) == (UNCERTAIN, "body_broken")
    assert answer.http_status == 200, "a head without its body proves nothing"


async def test_an_understated_length_gives_that_many_bytes_and_nothing_behind_them(
    door: Door, peer: HostilePeer
) -> None:
    answer = await called(door, peer.url("understated"))
    assert (answer.outcome, answer.text) == (ANSWERED, "short")
    second = await called(door, peer.url("ok"))
    assert second.text == "xx", "the forged answer behind it reached nobody"


async def test_a_tools_own_budget_counts(door: Door, peer: HostilePeer) -> None:
    fits = await called(door, peer.url("ok", size=100), body_bytes_max=100)
    over = await called(door, peer.url("ok", size=101), body_bytes_max=100)
    assert [fits.outcome, over.outcome] == [ANSWERED, UNCERTAIN]


async def test_a_view_ends_on_a_character_border(door: Door, peer: HostilePeer) -> None:
    text = json.dumps({"said": "€" * 400}, ensure_ascii=False)
    with override(model_view_bytes_max=300):
        answer = await called(door, peer.url("echo"), text)
    assert answer.body_bytes == len(text.encode())
    assert len(answer.text.encode()) <= 300
    assert text.startswith(answer.text)
    assert "\ufffd" not in answer.text


# --- memory -----------------------------------------------------------------------------------

CHILD = """
import asyncio, gc, json, os, sys
from pathlib import Path
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
from kernel.http import Door
from kernel.jobs.tools import call_tool
from kernel.models import Tool

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

async def once(door, url):
    tool = Tool(id="t", url=url, parameters_text="{}", policy_text="{}", allow_private=True)
    how = {"arguments_text": "{}", "idempotency_key": "k", "until": float("inf")}
    return await call_tool(door=door, tool=tool, **how)

async def main(warm, url):
    door = Door()
    await once(door, warm)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    answer = await once(door, url)
    print(json.dumps({"growth": peak() - before, "outcome": answer.outcome}))
    await door.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("name", "params", "outcome"),
    [
        ("ok", {"size": BUDGET}, ANSWERED),
        ("ok", {"size": BUDGET + 1}, UNCERTAIN),
        ("bomb", {"mib": 5}, ANSWERED),
        ("bomb", {"mib": 256}, UNCERTAIN),
        ("endless", {}, UNCERTAIN),
    ],
)
async def test_a_tools_body_costs_less_than_8_mib_of_memory(
    peer: HostilePeer, name: str, params: dict[str, int], outcome: str
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHILD,
        peer.url("gzip_ok"),
        peer.url(name, **params),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    found = json.loads(out)
    assert found["outcome"] == outcome
    assert found["growth"] < GROWTH_MAX, found
