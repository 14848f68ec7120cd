"""POST /v1/chat/completions: the official client, first answers, refusals (A5, A7)."""

import asyncio
import hashlib

import httpx
import openai
import pytest

from kernel import usage
from kernel.api import render
from kernel.conf import override
from kernel.models import LedgerRow, Request
from tests.api.conftest import Api, error_of, names_of
from tests.support.product import CHAT, OPERATOR

MESSAGES = [{"role": "user", "content": "hi"}]


def openai_client(api: Api) -> openai.AsyncOpenAI:
    transport = api.client._transport
    return openai.AsyncOpenAI(
        api_key=api.token,
        base_url="http://product.test/v1",
        http_client=httpx.AsyncClient(transport=transport),
    )


# --- the official client ----------------------------------------------------------------------


async def test_the_official_client_generates_once_and_replays(api: Api) -> None:
    client = openai_client(api)
    answers = [
        await client.chat.completions.with_raw_response.create(
            model="gpt", messages=MESSAGES, extra_headers={"Idempotency-Key": "op-1"}
        )
        for _ in range(2)
    ]
    first, second = answers
    assert first.content == second.content
    assert first.parse().choices[0].message.content.startswith("This is answer")
    assert first.headers["Idempotent-Replayed"] == "false"
    assert second.headers["Idempotent-Replayed"] == "true"
    assert api.provider.count() == 1
    await api.settled()
    assert await api.look(LedgerRow.objects.count) == 1


async def test_the_official_client_does_not_repeat_what_must_not_be_repeated(api: Api) -> None:
    api.provider.default("status_500")
    with pytest.raises(openai.APIStatusError) as refusal:
        await openai_client(api).chat.completions.create(
            model="gpt", messages=MESSAGES, extra_headers={"Idempotency-Key": "op-1"}
        )
    assert refusal.value.status_code == 502
    assert refusal.value.body["code"] == "outcome_unknown"
    assert api.provider.count() == 1


async def test_the_official_client_waits_for_a_request_in_flight_and_gets_its_answer(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "IN_FLIGHT_RETRY_SECONDS", 1)
    api.provider.next("hold", marker="op-1")
    refusals: list[int] = []

    async def note(response: httpx.Response) -> None:
        if response.status_code == 409:
            refusals.append(response.status_code)
            api.provider.release("op-1")

    async def create() -> bytes:
        client = openai_client(api)
        client._client.event_hooks = {"response": [note]}
        answer = await client.chat.completions.with_raw_response.create(
            model="gpt", messages=MESSAGES, user="op-1", extra_headers={"Idempotency-Key": "op-1"}
        )
        return answer.content

    first = asyncio.create_task(create())
    await api.wait_for_call("op-1")
    second = await create()
    assert refusals
    assert second == await first
    assert api.provider.count() == 1


async def test_the_official_client_lists_the_services(api: Api) -> None:
    page = await openai_client(api).models.list()
    assert [model.id for model in page.data] == ["gpt"]


# --- the first answer -------------------------------------------------------------------------


async def test_the_providers_bytes_are_the_answer(api: Api) -> None:
    body = '{ "id" : "x", "choices": [],  "note": "日本 🙂 \\u0000"}'
    kind = "application/json; charset=utf-8"
    api.provider.next("raw", marker="op-1", body=body, content_type=kind)
    response = await api.chat()
    assert response.status_code == 200
    assert response.content == body.encode()
    assert response.headers["content-type"] == kind
    row = await api.row()
    assert row.result_sha256 == hashlib.sha256(response.content).hexdigest()
    assert names_of(response) == {
        "operation-id": "op-1",
        "request-id": row.id,
        "result-state": "complete",
        "billing-state": "pending",
        "idempotent-replayed": "false",
    }


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429])
async def test_a_rejection_is_passed_on_once_and_replayed(api: Api, status: int) -> None:
    api.provider.next(f"status_{status}", marker="op-1", retry_after=1)
    first, second = await api.chat(), await api.chat()
    for response in (first, second):
        assert response.status_code == status
        assert response.json()["error"]["message"] == f"test provider says {status}"
        assert response.headers["x-should-retry"] == "false"
        assert "retry-after" not in response.headers
        assert names_of(response)["billing-state"] == "not_charged"
    assert second.content == first.content
    assert names_of(second)["idempotent-replayed"] == "true"
    assert api.provider.count() == 1


@pytest.mark.parametrize("status", [302, 307, 408, 409, 500, 502, 503])
async def test_any_other_status_is_unknown_and_not_repeated(api: Api, status: int) -> None:
    api.provider.default(f"status_{status}")
    for _ in range(2):
        response = await api.chat()
        assert response.status_code == 502
        assert error_of(response)["code"] == "outcome_unknown"
        assert names_of(response)["result-state"] == "unknown"
    assert api.provider.count() == 1


@pytest.mark.parametrize("behaviour", ["close", "rst", "garbage", "truncate_body"])
async def test_a_broken_connection_is_unknown_and_not_repeated(api: Api, behaviour: str) -> None:
    api.provider.default(behaviour)
    for _ in range(2):
        assert error_of(await api.chat())["code"] == "outcome_unknown"
    assert api.provider.count() == 1


async def test_a_provider_out_of_time_is_unknown_and_not_repeated(api: Api) -> None:
    api.provider.default("hang")
    with override(provider_deadline_seconds=0.2):
        assert error_of(await api.chat())["code"] == "outcome_unknown"
    assert error_of(await api.chat())["code"] == "outcome_unknown"
    assert api.provider.count() == 1


async def test_what_was_proven_not_sent_is_a_failure_with_its_reason(api: Api) -> None:
    change = {"service_id": "gpt", "version": 1, "actor": OPERATOR}
    await api.look(lambda: usage.change_service(base_url="http://127.0.0.1:9/v1", **change))
    for replayed in ("false", "true"):
        response = await api.chat()
        assert response.status_code == 502
        assert error_of(response)["code"] == "not_sent"
        assert names_of(response) | {"request-id": ""} == {
            "operation-id": "op-1",
            "request-id": "",
            "result-state": "failed",
            "billing-state": "not_charged",
            "idempotent-replayed": replayed,
        }


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "body"),
        (b"not json", "body"),
        (b"[]", "body"),
        (b'{"model":"gpt"}', "messages"),
        (b'{"model":"gpt","messages":[]}', "messages"),
        (b'{"model":"gpt","messages":"hi"}', "messages"),
        (b'{"messages":[{}]}', "model"),
        (b'{"model":5,"messages":[{}]}', "model"),
        (b'{"model":"gpt","messages":[{}],"stream":"yes"}', "stream"),
        (b'{"model":"gpt","messages":[{}],"n":0}', "n"),
        (b'{"model":"gpt","messages":[{}],"max_tokens":1.5}', "max_tokens"),
        (b'{"model":"gpt","model":"x","messages":[{}]}', "model"),
        (b'{"model":"gpt","messages":[{}],"stream_options":5}', "stream_options"),
        (b"\xff\xfe", "body"),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else value,
)
async def test_a_wrong_body_is_named_and_nothing_is_stored(
    api: Api, raw: bytes, field: str
) -> None:
    response = await api.client.post(CHAT, content=raw, headers={"Idempotency-Key": "op-1"})
    assert response.status_code == 422
    assert error_of(response)["field"] == field
    assert await api.look(Request.objects.count) == 0


@pytest.mark.parametrize("model", ["none", "GPT", "日本", "x" * 500, "gpt\x00"])
async def test_an_unknown_model_is_not_found(api: Api, model: str) -> None:
    response = await api.chat(model=model)
    assert response.status_code == 404
    error = error_of(response)
    assert error["code"] == "service_not_found"
    assert "/v1/models" in error["next_action"]


async def test_fields_the_product_does_not_know_pass_to_the_provider(api: Api) -> None:
    await api.chat(frequency_penalty=0.25, vendor_option={"deep": [1, {"x": None}]})
    (call,) = api.provider.calls()
    assert call.json["frequency_penalty"] == 0.25
    assert call.json["vendor_option"] == {"deep": [1, {"x": None}]}


async def test_over_the_cap_a_request_costs_402(api: Api) -> None:
    await api.look(
        lambda: usage.change_account(account_id="acme", version=1, actor=OPERATOR, cap_nano=1)
    )
    response = await api.chat(max_completion_tokens=10)
    assert response.status_code == 402
    assert error_of(response)["code"] == "cap_reached"
    assert api.provider.count() == 0


async def test_a_closed_account_is_forbidden(api: Api) -> None:
    await api.look(
        lambda: usage.change_account(account_id="acme", version=1, actor=OPERATOR, active=False)
    )
    response = await api.chat()
    assert response.status_code == 403
    assert error_of(response)["code"] == "account_closed"
