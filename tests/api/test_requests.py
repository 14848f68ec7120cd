"""/usage/v1: admit, dispatch, cancel, state, result, account; unknown fields named (A3, A16)."""

import asyncio
import hashlib
import json
from typing import Any

import httpx
import pytest

from kernel import usage
from kernel.models import AuditRow, Request
from tests.api.conftest import Api, error_of
from tests.support.product import OPERATOR, chat_body, client_of, make_account, make_token

FIELDS = {
    "operation_id",
    "request_id",
    "service",
    "result_state",
    "billing_state",
    "pending_reason",
    "error_code",
    "usage",
    "reference_cost_usd",
    "billed_usd",
    "result_sha256",
    "result_bytes",
    "times",
}


async def post(api: Api, path: str, **kwargs: Any) -> httpx.Response:
    return await api.client.post(f"/usage/v1/{path}", **kwargs)


# --- admit and dispatch -----------------------------------------------------------------------


async def test_a_request_is_admitted_sent_and_answered_with_its_state(api: Api) -> None:
    response = await api.request()
    assert response.status_code == 200
    document = response.json()
    assert set(document) == FIELDS
    assert document["result_state"] == "complete"
    assert api.provider.count() == 1


async def test_dispatch_false_admits_only(api: Api) -> None:
    response = await api.admit()
    assert response.status_code == 201
    assert response.json()["result_state"] == "admitted"
    assert response.headers["Idempotent-Replayed"] == "false"
    again = await api.admit()
    assert again.status_code == 200
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json()["request_id"] == response.json()["request_id"]
    assert api.provider.count() == 0


async def test_a_repeat_with_dispatch_does_not_send_what_is_only_admitted(api: Api) -> None:
    await api.admit()
    response = await api.request()
    assert (response.status_code, response.json()["result_state"]) == (200, "admitted")
    assert api.provider.count() == 0


async def test_an_admitted_request_is_dispatched_under_its_own_identity(api: Api) -> None:
    admitted = (await api.admit()).json()
    response = await post(api, "requests/op-1/dispatch")
    assert response.status_code == 200
    assert response.json()["request_id"] == admitted["request_id"]
    assert response.json()["result_state"] == "complete"
    again = await post(api, "requests/op-1/dispatch")
    assert again.status_code == 200
    assert again.headers["Idempotent-Replayed"] == "true", "the saved answer, not another call"
    assert api.provider.count() == 1


async def test_of_two_dispatches_at_once_one_sends(api: Api) -> None:
    await api.admit()
    found = await asyncio.gather(*(post(api, "requests/op-1/dispatch") for _ in range(4)))
    assert api.provider.count() == 1
    assert all(response.status_code in (200, 409) for response in found)
    assert any(response.status_code == 200 for response in found)


@pytest.mark.parametrize("path", ["requests", "requests/op-1/dispatch"])
async def test_respond_async_answers_when_the_dispatch_is_durable(api: Api, path: str) -> None:
    api.provider.next("hold", marker="op-1")
    if path == "requests":
        response = await api.request(prefer="respond-async")
    else:
        await api.admit()
        response = await post(api, path, headers={"Prefer": "respond-async"})
    assert response.status_code == 202
    assert response.headers["Preference-Applied"] == "respond-async"
    assert response.headers["Location"] == "/usage/v1/requests/op-1"
    assert response.json()["result_state"] == "dispatched"
    await api.wait_for_call()
    api.provider.release("op-1")
    await api.settled()
    assert (await api.state())["billing_state"] == "settled"


async def test_the_callers_bytes_of_the_request_are_what_is_stored_and_sent(api: Api) -> None:
    raw = '{ "model":"gpt", "messages":[{"role":"user","content":"\\ud83d é"}],"top_p":1.0 }'
    text = f'{{"operation_id": "op-1", "request": {raw}}}'
    response = await post(api, "requests", content=text.encode())
    assert response.status_code == 200
    row = await api.row()
    assert await api.look(lambda: usage.read_body(request_id=row.id, kind="request")) == (
        raw.encode()
    )
    assert '"top_p":1.0' in api.provider.calls()[0].body
    same = await api.client.post(
        "/v1/chat/completions", content=raw.encode(), headers={"Idempotency-Key": "op-1"}
    )
    assert same.headers["Idempotent-Replayed"] == "true", "one content on both addresses"


async def test_the_header_names_the_operation_too(api: Api) -> None:
    body = {"request": json.loads(chat_body())}
    response = await post(api, "requests", json=body, headers={"Idempotency-Key": "op-9"})
    assert response.json()["operation_id"] == "op-9"
    differ = await post(
        api, "requests", json={**body, "operation_id": "op-8"}, headers={"Idempotency-Key": "op-9"}
    )
    assert (differ.status_code, error_of(differ)["field"]) == (422, "operation_id")
    none = await post(api, "requests", json=body)
    assert (none.status_code, error_of(none)["code"]) == (400, "operation_id_required")


GOOD = {"operation_id": "op-1", "request": json.loads(chat_body())}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**GOOD, "dispatched": True}, "dispatched"),
        ({**GOOD, "dispatch": "no"}, "dispatch"),
        ({**GOOD, "dispatch": 0}, "dispatch"),
        ({**GOOD, "operation_id": 7}, "operation_id"),
        ({**GOOD, "request": "hi"}, "request"),
        ({**GOOD, "request": None}, "request"),
        ({"operation_id": "op-1"}, "request"),
        ({**GOOD, "request": {"model": "gpt"}}, "messages"),
    ],
    ids=str,
)
async def test_unknown_fields_and_wrong_types_are_named(
    api: Api, body: dict[str, Any], field: str
) -> None:
    response = await post(api, "requests", json=body)
    assert response.status_code == 422
    error = error_of(response)
    assert error["field"] == field
    assert field in error["message"]
    assert await api.look(Request.objects.count) == 0


async def test_several_wrong_fields_are_all_named(api: Api) -> None:
    response = await post(api, "requests", json={**GOOD, "a": 1, "b": 2, "dispatch": "no"})
    named = {problem["field"] for problem in error_of(response)["problems"]}
    assert named == {"a", "b", "dispatch"}


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"request": {}, "request": {}}'])
async def test_a_body_that_is_no_json_object_is_an_error_that_says_so(api: Api, raw: bytes) -> None:
    response = await post(api, "requests", content=raw, headers={"Idempotency-Key": "op-1"})
    assert response.status_code == 422
    error_of(response)


# --- state and result -------------------------------------------------------------------------


async def test_the_state_tells_metering_cost_hash_and_times(api: Api) -> None:
    answer = await api.chat()
    await api.settled()
    document = await api.state()
    assert set(document) == FIELDS
    assert document["usage"] == {"input": 9, "output": 4}
    assert document["reference_cost_usd"] == document["billed_usd"] == "0.0000625"
    assert document["pending_reason"] is None
    assert document["result_sha256"] == hashlib.sha256(answer.content).hexdigest()
    assert document["result_bytes"] == len(answer.content)
    times = document["times"]
    order = [times[f"{name}_at"] for name in ("admitted", "dispatched", "result", "settled")]
    assert order == sorted(order)
    assert all(at.endswith("+00:00") for at in order)


async def test_what_is_pending_shows_its_reason_and_no_amount(api: Api) -> None:
    api.provider.next("no_usage", marker="op-1")
    await api.chat()
    await api.settled()
    document = await api.state()
    assert (document["billing_state"], document["pending_reason"]) == ("pending", "no_usage")
    assert (document["billed_usd"], document["reference_cost_usd"]) == (None, None)
    assert document["usage"] is None


async def test_a_read_sees_that_the_owner_died(api: Api) -> None:
    api.provider.next("hold", marker="op-1")
    running = asyncio.create_task(api.chat())
    await api.wait_for_call()
    assert (await api.state())["result_state"] == "dispatched"
    await api.end_lease()
    assert (await api.state())["result_state"] == "unknown"
    api.provider.release("op-1")
    await running


async def test_a_row_with_corrupt_metering_can_still_be_read(api: Api) -> None:
    await api.chat()
    await api.settled()
    before = (await api.row()).usage_text
    await api.look(lambda: Request.objects.update(usage_text="not json"))
    assert (await api.state())["usage"] is None
    await api.look(lambda: Request.objects.update(usage_text=before))


async def test_the_result_is_the_saved_bytes_with_their_hash_as_etag(api: Api) -> None:
    answer = await api.chat()
    address = "/usage/v1/requests/op-1/result"
    response = await api.client.get(address)
    assert (response.status_code, response.content) == (200, answer.content)
    etag = response.headers["etag"]
    assert etag == f'"{hashlib.sha256(answer.content).hexdigest()}"'
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        fresh = await api.client.get(address, headers={"If-None-Match": known})
        assert (fresh.status_code, fresh.content) == (304, b""), known
        assert fresh.headers["etag"] == etag
    stale = await api.client.get(address, headers={"If-None-Match": '"other"'})
    assert stale.status_code == 200


async def test_the_result_of_a_stream_is_every_byte_the_provider_sent(api: Api) -> None:
    answer = await api.chat(stream=True)
    response = await api.client.get("/usage/v1/requests/op-1/result")
    assert len(response.content) > len(answer.content), "with the usage chunk we asked for"
    assert hashlib.sha256(response.content).hexdigest() == (await api.state())["result_sha256"]


async def test_without_a_result_there_is_nothing_to_read(api: Api) -> None:
    await api.admit()
    response = await api.client.get("/usage/v1/requests/op-1/result")
    assert response.status_code == 404
    assert error_of(response)["code"] == "no_result"


# --- cancel -----------------------------------------------------------------------------------


async def test_an_admitted_request_can_be_cancelled_with_a_reason(api: Api) -> None:
    await api.admit()
    response = await post(api, "requests/op-1/cancel", json={"reason": "not needed"})
    assert response.status_code == 200
    document = response.json()
    assert (document["result_state"], document["billing_state"]) == ("cancelled", "not_charged")
    audit = await api.look(lambda: AuditRow.objects.get(action="request.cancel"))
    assert (audit.actor_kind, audit.reason) == ("token", "not needed")
    again = await post(api, "requests/op-1/cancel")
    assert again.status_code == 200
    refused = await post(api, "requests/op-1/dispatch")
    assert (refused.status_code, error_of(refused)["code"]) == (409, "cancelled")
    assert api.provider.count() == 0


async def test_what_has_ended_cannot_be_cancelled(api: Api) -> None:
    await api.chat()
    response = await post(api, "requests/op-1/cancel")
    assert response.status_code == 409
    assert error_of(response)["state"] == "complete"


@pytest.mark.parametrize(
    ("body", "field"),
    [({"why": "x"}, "why"), ({"reason": 5}, "reason"), ({"reason": "x" * 2001}, "reason")],
)
async def test_a_wrong_field_of_a_cancel_is_named(
    api: Api, body: dict[str, Any], field: str
) -> None:
    await api.admit()
    response = await post(api, "requests/op-1/cancel", json=body)
    assert (response.status_code, error_of(response)["field"]) == (422, field)
    assert (await api.state())["result_state"] == "admitted"


async def test_a_reason_with_a_lone_surrogate_does_not_break_the_cancel(api: Api) -> None:
    await api.admit()
    response = await post(api, "requests/op-1/cancel", content=b'{"reason": "\\ud800"}')
    assert response.status_code in (200, 422)


# --- whose ------------------------------------------------------------------------------------

OWN = [
    ("GET", "requests/op-1"),
    ("GET", "requests/op-1/result"),
    ("POST", "requests/op-1/dispatch"),
    ("POST", "requests/op-1/cancel"),
]


@pytest.mark.parametrize(("method", "path"), OWN)
async def test_another_accounts_operation_is_not_found(api: Api, method: str, path: str) -> None:
    await api.admit()
    token = await api.look(lambda: make_account("other") and make_token("other"))
    async with client_of(api.kernel, token) as other:
        response = await other.request(method, f"/usage/v1/{path}")
        unknown = await other.request(method, f"/usage/v1/{path}".replace("op-1", "op-2"))
    assert response.status_code == unknown.status_code == 404
    assert error_of(response)["code"] == error_of(unknown)["code"] == "not_found"
    assert (await api.state())["result_state"] == "admitted"


@pytest.mark.parametrize(("method", "path"), OWN)
async def test_an_id_outside_the_alphabet_is_a_400_and_no_error_of_ours(
    api: Api, method: str, path: str
) -> None:
    address = f"/usage/v1/{path}".replace("op-1", "%C3%A9")
    response = await api.client.request(method, address)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_id"


# --- account ----------------------------------------------------------------------------------


async def test_the_account_says_consumed_held_pending_and_cap(api: Api) -> None:
    await api.look(
        lambda: usage.change_account(
            account_id="acme",
            version=1,
            actor=OPERATOR,
            cap_nano=10**9,
            multiplier_millionths=1_500_000,
        )
    )
    await api.chat("op-1", max_completion_tokens=100)
    await api.settled()
    api.provider.next("no_usage", marker="op-2")
    await api.chat("op-2", max_completion_tokens=100)
    await api.settled()
    document = (await api.client.get("/usage/v1/account")).json()
    held = (await api.row("op-2")).hold_nano
    assert document == {
        "account_id": "acme",
        "name": "acme",
        "consumed_usd": "0.00009375",
        "held_usd": f"{held / 10**9:.9f}".rstrip("0"),
        "pending_usd_at_most": f"{held / 10**9:.9f}".rstrip("0"),
        "cap_usd": "1",
        "multiplier": "1.5",
        "overrun": False,
    }


async def test_pending_without_a_bound_is_null_and_not_zero(api: Api) -> None:
    api.provider.next("no_usage", marker="op-1")
    await api.chat()
    document = (await api.client.get("/usage/v1/account")).json()
    assert document["pending_usd_at_most"] is None
    assert document["cap_usd"] is None
