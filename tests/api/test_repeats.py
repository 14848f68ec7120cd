"""A repeated POST never calls the provider: what it gets, in each state (A1, A8)."""

import asyncio
from datetime import timedelta

import pytest

from kernel import clock, usage
from kernel.models import LedgerRow, Request
from kernel.usage import Evidence
from tests.api.conftest import Api, error_of, names_of
from tests.support.product import CHAT, OPERATOR, chat_body, client_of, make_account, make_token


async def purge(api: Api) -> None:
    """As if the retention of everything were over."""

    def old() -> None:
        past = clock.now() - timedelta(days=40)
        times = ("admitted_at", "dispatched_at", "result_at", "updated_at", "settled_at")
        for name in times:
            Request.objects.exclude(**{name: None}).update(**{name: past})
        usage.purge_bodies(limit=200)

    await api.look(old)


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


async def test_a_purged_refusal_is_gone_and_a_purged_cancel_is_still_a_cancel(api: Api) -> None:
    api.provider.next("status_400", marker="op-1")
    assert (await api.chat()).status_code == 400
    await api.admit("op-2")
    await api.client.post("/usage/v1/requests/op-2/cancel", json={})
    await purge(api)
    assert error_of(await api.chat())["code"] == "response_expired"
    response = await api.chat("op-2")
    assert (response.status_code, error_of(response)["code"]) == (409, "cancelled")
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


@pytest.mark.parametrize(
    ("executed", "message"),
    [
        (True, "An operator found that the provider executed it; its answer is lost."),
        (False, "An operator found that the provider did not execute it."),
    ],
)
async def test_a_resolved_request_says_what_was_found_not_why_it_was_unknown(
    api: Api, executed: bool, message: str
) -> None:
    api.provider.next("hold", marker="op-1")
    first = asyncio.create_task(api.chat())
    await api.wait_for_call()
    await api.end_lease()
    assert error_of(await api.chat())["code"] == "outcome_unknown"
    row = await api.row()
    assert (row.result_state, row.error_code) == ("unknown", "owner_lost")
    await api.look(
        lambda: usage.resolve_unknown(
            request_id=row.id,
            evidence=Evidence(executed=executed),
            note="its records say so",
            actor=OPERATOR,
            seen_updated_at=row.updated_at,
        )
    )
    error = error_of(await api.chat())
    assert error["code"] == ("resolved_executed" if executed else "resolved_not_executed")
    assert error["message"] == message != row.error_text
    api.provider.release("op-1")
    await first


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
