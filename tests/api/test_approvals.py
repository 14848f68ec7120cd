"""Approvals at the door: reading, deciding by token, what every refusal says (C3, C4, C11)."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from kernel import access
from kernel.access import authenticate
from kernel.models import Approval, AuditRow, Continuation, Job
from tests.api.agents import (
    ask,
    caller,
    decide,
    decided_fields,
    make_route,
    open_one,
    snapshot,
)
from tests.api.conftest import Api, error_of
from tests.support.product import make_account

# --- reading ------------------------------------------------------------------------------------


async def test_a_question_shows_what_it_asks_and_what_to_do(desk: Api) -> None:
    approval_id = await open_one(desk)
    response = await desk.client.get(f"/v1/approvals/{approval_id}")
    assert response.status_code == 200
    document = response.json()
    assert document["state"] == "open"
    assert document["tool"] == "refund"
    assert json.loads(document["arguments_text"]) == {
        "amount": 25,
        "currency": "EUR",
        "order": "A-1",
    }
    assert document["arguments_masked"] is False
    assert len(document["arguments_sha256"]) == 64
    assert document["decision"] is None
    assert document["continuation"] is None
    assert f"/v1/approvals/{approval_id}/decision" in document["next_action"]
    assert '{"decision": "approved" | "denied"' in document["next_action"]
    assert datetime.fromisoformat(document["expires_at"]).utcoffset() == timedelta(0)


async def test_secrets_in_arguments_are_masked_wherever_they_are_shown(desk: Api) -> None:
    secret = {"order": "A-1", "amount": 25, "api_key": "sk-very-secret"}
    approval_id = await open_one(desk, arguments=secret)
    detail = await desk.client.get(f"/v1/approvals/{approval_id}")
    listed = await desk.client.get("/v1/approvals")
    answer = await decide(desk, approval_id)
    for response in (detail, listed, answer):
        assert response.status_code == 200
        assert "sk-very-secret" not in response.text
    assert detail.json()["arguments_masked"] is True
    assert "(14 characters" in detail.json()["arguments_text"]
    stored = await desk.look(lambda: Approval.objects.get().arguments_text)
    assert "sk-very-secret" in stored


async def test_a_list_walks_every_question_once_without_arguments(desk: Api) -> None:
    def rows() -> list[str]:
        make_route()
        return [row.id for n in range(4) for row in ask(f"job-{n}", count=2)]

    ids = await desk.look(rows)
    found, after = [], ""
    while True:
        page = await desk.client.get("/v1/approvals", params={"limit": 3, "after": after})
        found += [one["approval_id"] for one in page.json()["approvals"]]
        assert "arguments_text" not in page.text
        after = page.json()["next_after"]
        if after is None:
            break
    assert len(found) == 8
    assert set(found) == set(ids)
    newest_first = await desk.client.get("/v1/approvals")
    assert [one["approval_id"] for one in newest_first.json()["approvals"]] == found


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=opened", "state"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("after=x", "after"),
        ("after=-apr_1", "after"),
        ("after=99999999999999999999-apr_1", "after"),
        ("status=open", "status"),
    ],
)
async def test_a_wrong_filter_is_an_error_and_never_everything(
    desk: Api, query: str, field: str
) -> None:
    response = await desk.client.get(f"/v1/approvals?{query}")
    assert response.status_code == 422
    assert error_of(response)["field"].endswith(field)


async def test_a_list_shows_one_state(desk: Api) -> None:
    approval_id = await open_one(desk)
    await decide(desk, approval_id, "denied")
    for state, ids in (("open", []), ("denied", [approval_id]), ("approved", [])):
        response = await desk.client.get(f"/v1/approvals?state={state}")
        assert [one["approval_id"] for one in response.json()["approvals"]] == ids


async def test_another_accounts_approval_does_not_exist(desk: Api) -> None:
    def rows() -> str:
        make_account("other")
        make_route()
        return ask(account_id="other")[0].id

    approval_id = await desk.look(rows)
    before = await desk.look(snapshot)
    assert (await desk.client.get("/v1/approvals")).json()["approvals"] == []
    for response in (
        await desk.client.get(f"/v1/approvals/{approval_id}"),
        await decide(desk, approval_id),
    ):
        assert response.status_code == 404
        assert error_of(response)["code"] == "not_found"
    assert await desk.look(snapshot) == before


@pytest.mark.parametrize("approval_id", ["apr_none", "x" * 200, "%C3%A9"])
async def test_an_id_that_names_nothing_is_no_defect_of_ours(desk: Api, approval_id: str) -> None:
    for response in (
        await desk.client.get(f"/v1/approvals/{approval_id}"),
        await decide(desk, approval_id),
    ):
        assert response.status_code in (400, 404)
        error_of(response)


# --- deciding -----------------------------------------------------------------------------------


async def test_an_approval_lets_the_waiting_job_go_on(desk: Api) -> None:
    approval_id = await open_one(desk)
    response = await decide(desk, approval_id, reason="looks right")
    assert response.status_code == 200
    document = response.json()
    token = await desk.look(lambda: authenticate(secret=desk.token))
    assert (document["state"], document["decision"]) == ("approved", "approved")
    assert (document["decided_by_kind"], document["decided_by"]) == ("token", token.token_id)
    assert document["decided_at"].endswith("+00:00")
    assert document["reason"] == "looks right"
    assert (document["replayed"], document["continuation_pending"]) == (False, False)
    assert await desk.look(lambda: Job.objects.get().state) == "queued"
    row = await desk.look(lambda: AuditRow.objects.get(action="approval.decided"))
    assert (row.actor_kind, row.actor_id) == ("token", token.token_id)
    assert row.request_id == response.headers["x-request-id"]
    detail = (await desk.client.get(f"/v1/approvals/{approval_id}")).json()
    assert detail["continuation"]["state"] == "done"
    assert decided_fields(detail) == decided_fields(document)


async def test_a_denial_refuses_the_job_and_says_why(desk: Api) -> None:
    approval_id = await open_one(desk)
    assert (await decide(desk, approval_id, "denied", reason="too much")).status_code == 200
    job = await desk.look(Job.objects.get)
    assert job.state == "refused"
    document = (await desk.client.get(f"/v1/jobs/{job.id}")).json()
    assert document["error"]["code"] == "approval_denied"
    assert "too much" in document["error"]["message"]


async def test_the_same_decision_any_number_of_times_is_the_same_decision(desk: Api) -> None:
    approval_id = await open_one(desk)
    first = (await decide(desk, approval_id)).json()
    for _ in range(3):
        again = await decide(desk, approval_id, reason="said differently")
        assert again.status_code == 200
        assert again.json()["replayed"] is True
        assert decided_fields(again.json()) == decided_fields(first)
    count = await desk.look(lambda: AuditRow.objects.filter(action="approval.decided").count())
    assert count == 1


async def test_a_decision_id_stands_for_one_decision_on_one_approval(desk: Api) -> None:
    approval_id = await open_one(desk)
    other_id = await desk.look(lambda: ask("job-2")[0].id)
    first = (await decide(desk, approval_id)).json()
    before = await desk.look(snapshot)
    for response in (
        await decide(desk, approval_id, "denied", reason="no"),
        await decide(desk, other_id),
    ):
        assert response.status_code == 409
        assert error_of(response)["code"] == "decision_id_conflict"
    assert await desk.look(snapshot) == before
    assert (await decide(desk, approval_id)).json()["decided_at"] == first["decided_at"]


@pytest.mark.parametrize(
    "word", [None, "", "APPROVED ", "Approved", "approve", True, 1, "yes", ["approved"], {}]
)
async def test_only_the_exact_words_decide(desk: Api, word: Any) -> None:
    approval_id = await open_one(desk)
    before = await desk.look(snapshot)
    response = await decide(desk, approval_id, word)
    assert response.status_code == 400
    error = error_of(response)
    assert (error["code"], error["accepted"]) == ("invalid_decision", ["approved", "denied"])
    assert await desk.look(snapshot) == before


async def test_a_missing_decision_decides_nothing(desk: Api) -> None:
    approval_id = await open_one(desk)
    address = f"/v1/approvals/{approval_id}/decision"
    response = await desk.client.post(address, json={"decision_id": "d-1"})
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_decision")
    response = await desk.client.post(address, json={"decision": "approved"})
    assert (response.status_code, error_of(response)["field"]) == (422, "decision_id")
    response = await desk.client.post(address, content=b"approved")
    assert response.status_code == 422
    assert await desk.look(lambda: Approval.objects.get().state) == "open"


async def test_an_unknown_field_is_named(desk: Api) -> None:
    approval_id = await open_one(desk)
    response = await decide(desk, approval_id, approver="me")
    assert response.status_code == 422
    assert error_of(response)["field"] == "approver"
    assert await desk.look(lambda: Approval.objects.get().state) == "open"


@pytest.mark.parametrize("decision_id", ["", "a b", "é", "x" * 129, "timeout:1"])
async def test_a_decision_id_is_an_id(desk: Api, decision_id: str) -> None:
    approval_id = await open_one(desk)
    response = await decide(desk, approval_id, "approved", decision_id)
    assert response.status_code == 400
    assert error_of(response)["field"] == "decision_id"


async def test_the_codes_of_a_conflict_are_told_apart(desk: Api) -> None:
    def rows() -> dict[str, str]:
        make_route()
        ids = {name: ask(name)[0].id for name in ("decided", "expired", "cancelled", "changed")}
        late = Approval.objects.get(id=ids["expired"]).created_at - timedelta(seconds=1)
        Approval.objects.filter(id=ids["expired"]).update(expires_at=late)
        return ids

    ids = await desk.look(rows)
    await decide(desk, ids["decided"], "approved", "d-0", reason="fine")
    job_id = await desk.look(lambda: Approval.objects.get(id=ids["cancelled"]).job_id)
    assert (await desk.client.post(f"/v1/jobs/{job_id}/cancel")).status_code == 200
    answers = {
        "already_decided": await decide(desk, ids["decided"], "approved", "d-1"),
        "expired": await decide(desk, ids["expired"], "approved", "d-2"),
        "cancelled": await decide(desk, ids["cancelled"], "approved", "d-3"),
        "changed": await decide(desk, ids["changed"], decision_id="d-4", arguments_sha256="0" * 64),
    }
    for code, response in answers.items():
        assert (response.status_code, error_of(response)["code"]) == (409, code)
    who = error_of(answers["already_decided"])
    token = await desk.look(lambda: authenticate(secret=desk.token))
    assert (who["by"], who["by_kind"], who["decision"]) == (token.token_id, "token", "approved")
    assert (who["reason"], who["decided_at"][-6:]) == ("fine", "+00:00")
    states = await desk.look(lambda: dict(Approval.objects.values_list("id", "state")))
    assert states[ids["changed"]] == "open"
    assert states[ids["expired"]] == "expired"


async def test_the_digest_that_was_looked_at_decides(desk: Api) -> None:
    approval_id = await open_one(desk)
    seen = (await desk.client.get(f"/v1/approvals/{approval_id}")).json()["arguments_sha256"]
    assert (await decide(desk, approval_id, arguments_sha256=seen)).status_code == 200


async def test_who_asked_cannot_decide(desk: Api) -> None:
    token = await desk.look(lambda: authenticate(secret=desk.token))
    approval_id = await open_one(desk, requested_by=f"token:{token.token_id}")
    response = await decide(desk, approval_id)
    assert (response.status_code, error_of(response)["code"]) == (403, "four_eyes")
    async with await caller(desk, "approvals:decide") as other:
        body = {"decision": "approved", "decision_id": "d-1"}
        answer = await other.post(f"/v1/approvals/{approval_id}/decision", json=body)
    assert answer.status_code == 200, "approvals:decide alone is enough"


async def test_a_high_risk_is_denied_with_a_reason(desk: Api) -> None:
    approval_id = await open_one(desk, risk="high")
    response = await decide(desk, approval_id, "denied")
    assert (response.status_code, error_of(response)["field"]) == (422, "reason")
    assert (await decide(desk, approval_id, "denied", reason="no")).status_code == 200


async def test_a_look_at_an_address_never_decides(desk: Api) -> None:
    approval_id = await open_one(desk)
    before = await desk.look(snapshot)
    decision = "?decision=approved&decision_id=d-1"
    for _ in range(10):
        for method in ("GET", "HEAD"):
            address = f"/v1/approvals/{approval_id}/decision{decision}"
            assert (await desk.client.request(method, address)).status_code == 405
        assert (await desk.client.get(f"/v1/approvals/{approval_id}")).status_code == 200
        assert (await desk.client.get(f"/v1/approvals{'?state=open'}")).status_code == 200
    assert await desk.look(snapshot) == before
    assert await desk.look(Continuation.objects.count) == 0


async def test_a_revoked_approver_decides_no_more(desk: Api) -> None:
    approval_id = await open_one(desk)
    async with await caller(desk, "approvals:decide") as other:
        secret = other.headers["authorization"].removeprefix("Bearer ")
        token = await desk.look(lambda: authenticate(secret=secret))
        await desk.look(lambda: access.revoke_token(token_id=token.token_id, actor=token.actor))
        body = {"decision": "approved", "decision_id": "d-1"}
        answer = await other.post(f"/v1/approvals/{approval_id}/decision", json=body)
    assert answer.status_code == 401
    assert await desk.look(lambda: Approval.objects.get().state) == "open"
