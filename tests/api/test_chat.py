"""POST /v1/chat/completions: the first answer, and what every repeat gets (A5, A7, A8)."""

import asyncio
import hashlib
from datetime import timedelta

import httpx
import openai
import pytest

from kernel import clock, usage
from kernel.api import render
from kernel.conf import override
from kernel.models import LedgerRow, Request
from kernel.usage import Evidence
from tests.api.conftest import Api, error_of
from tests.support.product import CHAT, OPERATOR, chat_body, client_of, make_account, make_token

MESSAGES = [{"role": "user", "content": "hi"}]


def openai_client(api: Api) -> openai.AsyncOpenAI:
    transport = api.client._transport
    return openai.AsyncOpenAI(
        api_key=api.token,
        base_url="http://product.test/v1",
        http_client=httpx.AsyncClient(transport=transport),
    )


def names_of(response: httpx.Response) -> dict[str, str]:
    """The Bailing-* headers, short."""
    return {
        name.removeprefix("bailing-"): value
        for name, value in response.headers.items()
        if name.startswith("bailing-") or name == "idempotent-replayed"
    }


async def purge(api: Api) -> None:
    """As if the retention of everything were over."""

    def old() -> None:
        past = clock.now() - timedelta(days=40)
        Request.objects.update(
            admitted_at=past,
            dispatched_at=past,
            result_at=past,
            updated_at=past,
            settled_at=past,
        )
        usage.purge_bodies(limit=200)

    await api.look(old)


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


# --- repeats, for each state ------------------------------------------------------------------


async def test_a_complete_request_answers_its_saved_bytes_any_number_of_times(api: Api) -> None:
    first = await api.chat()
    await api.settled()
    for _ in range(3):
        again = await api.chat()
        assert (again.status_code, again.content) == (200, first.content)
        assert names_of(again)["idempotent-replayed"] == "true"
        assert names_of(again)["billing-state"] == "settled"
        assert again.headers["x-should-retry"] == "false"
    assert api.provider.count() == 1
    assert await api.look(LedgerRow.objects.count) == 1


async def test_a_running_request_asks_for_patience(api: Api) -> None:
    api.provider.next("hold", marker="op-1")
    first = asyncio.create_task(api.chat())
    await api.wait_for_call()
    response = await api.chat()
    assert response.status_code == 409
    error = error_of(response)
    assert (error["code"], error["retryable"]) == ("in_flight", True)
    assert int(response.headers["retry-after"]) > 0
    assert "x-should-retry" not in response.headers
    assert names_of(response)["result-state"] == "dispatched"
    api.provider.release("op-1")
    await first
    assert (await api.chat()).status_code == 200
    assert api.provider.count() == 1


async def test_an_admitted_request_names_the_ways_out(api: Api) -> None:
    assert (await api.admit()).status_code == 201
    response = await api.chat()
    assert response.status_code == 409
    error = error_of(response)
    assert error["code"] == "not_dispatched"
    assert "/usage/v1/requests/op-1/dispatch" in error["next_action"]
    assert "cancel" in error["next_action"]
    assert api.provider.count() == 0


async def test_a_request_whose_owner_died_is_seen_unknown_by_the_repeat(api: Api) -> None:
    api.provider.next("hold", marker="op-1")
    first = asyncio.create_task(api.chat())
    await api.wait_for_call()
    await api.end_lease()
    response = await api.chat()
    assert response.status_code == 502
    assert error_of(response)["code"] == "outcome_unknown"
    assert (await api.row()).error_code == "owner_lost"
    api.provider.release("op-1")
    await first
    assert api.provider.count() == 1


async def test_a_cancelled_request_says_so(api: Api) -> None:
    await api.admit()
    await api.client.post("/usage/v1/requests/op-1/cancel", json={})
    response = await api.chat()
    assert response.status_code == 409
    assert error_of(response)["code"] == "cancelled"
    assert api.provider.count() == 0


async def test_a_request_cancelled_while_it_runs_answers_that_to_its_caller(api: Api) -> None:
    api.provider.next("hold", marker="op-1")
    first = asyncio.create_task(api.chat())
    await api.wait_for_call()
    assert (await api.client.post("/usage/v1/requests/op-1/cancel")).status_code == 200
    api.provider.release("op-1")
    response = await first
    assert (response.status_code, error_of(response)["code"]) == (409, "cancelled")


async def test_a_purged_result_is_gone(api: Api) -> None:
    await api.chat()
    await api.settled()
    await purge(api)
    for response in (await api.chat(), await api.client.get("/usage/v1/requests/op-1/result")):
        assert response.status_code == 410
        assert error_of(response)["code"] == "response_expired"
    document = await api.state()
    assert document["billed_usd"] == "0.0000625", "metering and charge stay"
    assert api.provider.count() == 1


async def test_a_resolved_request_never_answers_its_partial_bytes_as_an_answer(api: Api) -> None:
    api.provider.next("truncate_sse", marker="op-1", events=3)
    await api.chat(stream=True)
    row = await api.row()
    assert (row.result_state, row.http_status) == ("unknown", 200)
    await api.look(
        lambda: usage.resolve_unknown(
            request_id=row.id,
            evidence=Evidence(executed=True),
            note="the provider has it",
            actor=OPERATOR,
            seen_updated_at=row.updated_at,
        )
    )
    response = await api.chat(stream=True)
    assert response.status_code == 502
    assert error_of(response)["code"] == "resolved_executed"
    kept = await api.client.get("/usage/v1/requests/op-1/result")
    assert kept.content.count(b"data: ") == 3, "as evidence they stay readable"


# --- identity ---------------------------------------------------------------------------------


async def test_other_content_under_the_same_id_is_a_conflict_and_no_call(api: Api) -> None:
    await api.chat(temperature=0)
    response = await api.chat(temperature=1)
    assert response.status_code == 409
    assert error_of(response)["code"] == "operation_conflict"
    assert api.provider.count() == 1


async def test_one_more_blank_is_other_content(api: Api) -> None:
    headers = {"Idempotency-Key": "op-1"}
    raw = chat_body(marker="op-1")
    assert (await api.client.post(CHAT, content=raw, headers=headers)).status_code == 200
    assert (await api.client.post(CHAT, content=raw + b" ", headers=headers)).status_code == 409


async def test_ids_differ_by_case(api: Api) -> None:
    for operation_id in ("A", "a"):
        assert (await api.chat(operation_id)).status_code == 200
    assert api.provider.count() == 2


async def test_without_an_operation_id_the_answer_shows_how_to_send_one(api: Api) -> None:
    response = await api.client.post(CHAT, content=chat_body())
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "operation_id_required"
    assert "Idempotency-Key: order-1001" in error["next_action"]


@pytest.mark.parametrize("operation_id", ["a b", "é".encode(), "x" * 129, "a/b", "a,b"])
async def test_an_operation_id_outside_the_alphabet_is_refused(
    api: Api, operation_id: str | bytes
) -> None:
    response = await api.client.post(
        CHAT, content=chat_body(), headers={"Idempotency-Key": operation_id}
    )
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_id"


async def test_reserved_ids_are_refused(api: Api) -> None:
    response = await api.chat("job:1:2")
    assert response.status_code == 422
    assert error_of(response)["code"] == "reserved_operation_id"
    assert api.provider.count() == 0


async def test_the_same_id_of_another_account_is_another_operation(api: Api) -> None:
    await api.chat("op-1")
    token = await api.look(lambda: make_account("other") and make_token("other"))
    async with client_of(api.kernel, token) as other:
        response = await other.post(
            CHAT, content=chat_body(marker="op-1"), headers={"Idempotency-Key": "op-1"}
        )
    assert response.headers["Idempotent-Replayed"] == "false"
    assert api.provider.count() == 2


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
