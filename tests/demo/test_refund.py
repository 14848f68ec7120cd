"""The demo: a refund that waits for the newcomer, a business service that keeps its word."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kernel.demo import DemoProvider, answers, start_provider
from kernel.demo.data import (
    REQUEST,
    ROUTE,
    SERVICE,
    asks_about_refund,
    ensure_demo_agent,
    ensure_demo_service,
)
from kernel.models import Approval, Job, Tool
from tests.support.agent import STORE, asks, calls_of, decided, ended, working_kernel
from tests.support.product import look, look_apart, make_account

REFUND = {"order_id": "1001", "amount": 4200, "currency": "EUR"}
TOOLS = [{"type": "function", "function": {"name": "refund_order", "parameters": {}}}]
ASKED = [{"role": "user", "content": "Refund order 1001, please: 4200 EUR."}]


@pytest.fixture(scope="module")
def demo() -> Iterator[DemoProvider]:
    with start_provider() as running:
        yield running


def chat(demo: DemoProvider, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{demo.url}/v1/chat/completions", json={"model": "demo-1", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refund(demo: DemoProvider, key: str, body: Any = REFUND) -> httpx.Response:
    return httpx.post(f"{demo.url}/refunds", json=body, headers={"Idempotency-Key": key})


def refunds(demo: DemoProvider) -> list[dict[str, Any]]:
    return httpx.get(f"{demo.url}/refunds").json()["refunds"]


def test_the_demo_model_asks_for_the_refund_it_is_offered(demo: DemoProvider) -> None:
    choice = chat(demo, messages=ASKED, tools=TOOLS)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert call["function"]["name"] == "refund_order"
    assert json.loads(call["function"]["arguments"]) == REFUND


@pytest.mark.parametrize(
    "body",
    [
        {"messages": ASKED},
        {"messages": [{"role": "user", "content": "Hello"}], "tools": TOOLS},
        {"messages": ASKED, "tools": [{"type": "function", "function": {"name": "other"}}]},
    ],
)
def test_without_the_tool_or_the_wish_it_answers_in_words(
    demo: DemoProvider, body: dict[str, Any]
) -> None:
    choice = chat(demo, **body)["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "no model ran" in choice["message"]["content"]


def test_after_the_tools_answer_it_says_what_happened(demo: DemoProvider) -> None:
    body = {**REFUND, "refund_id": "rf-7", "status": "refunded"}
    told = json.dumps({"status": 201, "body": json.dumps(body)})
    messages = [*ASKED, {"role": "tool", "tool_call_id": "c1", "content": told}]
    said = chat(demo, messages=messages, tools=TOOLS)["choices"][0]["message"]["content"]
    assert said == "Done. Order 1001 was refunded with 4200 EUR; the refund is rf-7."
    failed = [*ASKED, {"role": "tool", "tool_call_id": "c1", "content": '{"error":"forbidden"}'}]
    assert "not made" in chat(demo, messages=failed)["choices"][0]["message"]["content"]


def test_an_amount_that_is_not_named_is_the_demos_own() -> None:
    asked = {"messages": [{"role": "user", "content": "refund order 7"}], "tools": TOOLS}
    assert answers.wanted_call(asked) == {**REFUND, "order_id": "7"}


def test_the_business_service_refunds_once_per_key(demo: DemoProvider) -> None:
    before = len(refunds(demo))
    first, second = refund(demo, "k-1"), refund(demo, "k-1")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert refund(demo, "k-1", {**REFUND, "amount": 1}).status_code == 422
    assert refund(demo, "").status_code == 400
    assert refund(demo, "k-2", {**REFUND, "amount": "1"}).status_code == 422
    assert [row["idempotency_key"] for row in refunds(demo)[before:]] == ["k-1"]


def start(demo: DemoProvider, url: str = "") -> None:
    ensure_demo_service(provider_url=demo.url)
    ensure_demo_agent(url=url or demo.url, account_id="demo", store=STORE)


def is_open() -> bool:
    return asks_about_refund(account_id="demo", store=STORE)


async def test_the_first_start_leaves_one_approval_for_the_newcomer(
    kernel_db: None, demo: DemoProvider
) -> None:
    await look_apart(lambda: make_account("demo"))
    assert not await look_apart(is_open)
    await look_apart(lambda: start(demo))
    assert await look_apart(is_open), "on its way to the question"
    before = len(refunds(demo))
    async with working_kernel() as kernel:
        job = await look(kernel, Job.objects.get)
        assert (job.request_id, job.route_id) == (REQUEST, ROUTE)
        (question,) = await asks(kernel, job.id)
        assert json.loads(question.arguments_text) == REFUND
        assert (question.risk, question.requested_by) == ("high", "system:demo")
        assert question.effect == "Refund 4200 EUR for order 1001."
        await look(kernel, lambda: start(demo))
        assert await look(kernel, Approval.objects.count) == 1, "a second start asks nothing new"
        assert await look(kernel, is_open), "the banner says where it is decided"
        await decided(kernel, question)
        row = await ended(kernel, job.id)
        (made,) = await calls_of(kernel, job.id)
        assert not await look(kernel, is_open), "the banner is silent about what is long decided"
    assert row.state == "done"
    assert "Order 1001 was refunded with 4200 EUR" in json.loads(row.result_text)["content"]
    assert [one["idempotency_key"] for one in refunds(demo)[before:]] == [made.idempotency_key]


async def test_another_port_of_the_demo_changes_the_tool_not_the_job(
    kernel_db: None, demo: DemoProvider
) -> None:
    await look_apart(lambda: make_account("demo"))
    await look_apart(lambda: start(demo))
    await look_apart(lambda: start(demo, "http://127.0.0.1:1"))
    tool = await look_apart(Tool.objects.get)
    assert (tool.url, tool.version) == ("http://127.0.0.1:1/refunds", 2)
    assert await look_apart(Job.objects.count) == 1
    assert SERVICE == "demo"
