"""Every address of the API against nobody and against each scope: exactly one scope opens it."""

import pytest

from kernel.access import SCOPES
from kernel.models import Approval, Invocation, Job, Request
from tests.api.agents import ask, caller, make_route, make_tool
from tests.api.conftest import Api, error_of
from tests.support.product import client_of

ADDRESSES = {
    ("GET", "/v1/models"): "usage:read",
    ("POST", "/v1/chat/completions"): "usage:write",
    ("POST", "/usage/v1/requests"): "usage:write",
    ("GET", "/usage/v1/requests/{operation_id}"): "usage:read",
    ("GET", "/usage/v1/requests/{operation_id}/result"): "usage:read",
    ("POST", "/usage/v1/requests/{operation_id}/dispatch"): "usage:write",
    ("POST", "/usage/v1/requests/{operation_id}/cancel"): "usage:write",
    ("GET", "/usage/v1/account"): "usage:read",
    ("POST", "/v1/jobs"): "jobs:write",
    ("GET", "/v1/jobs"): "jobs:read",
    ("GET", "/v1/jobs/{job_id}"): "jobs:read",
    ("POST", "/v1/jobs/{job_id}/cancel"): "jobs:write",
    ("GET", "/v1/approvals"): "approvals:read",
    ("GET", "/v1/approvals/{approval_id}"): "approvals:read",
    ("POST", "/v1/approvals/{approval_id}/decision"): "approvals:decide",
    ("POST", "/v1/executor/claim"): "executor",
    ("POST", "/v1/executor/heartbeat"): "executor",
    ("POST", "/v1/executor/result"): "executor",
    ("POST", "/v1/notifications"): "deliveries:write",
    ("GET", "/v1/notifications"): "deliveries:read",
    ("GET", "/v1/notifications/{notification_id}"): "deliveries:read",
    ("GET", "/v1/dead-letters"): "deliveries:read",
    ("GET", "/v1/dead-letters/{dead_letter_id}"): "deliveries:read",
    ("POST", "/v1/dead-letters/{dead_letter_id}/replay"): "deliveries:write",
    ("POST", "/v1/agent/invocations"): "agent",
    ("POST", "/v1/agent/invocations/{invocation_id}/resume"): "agent",
    ("GET", "/v1/agent/invocations/{invocation_id}/receipt"): "agent",
}
# A body that fits, so that the scope is what refuses.
BODIES = {
    "/usage/v1/requests": {"operation_id": "op-1", "request": {}},
    "/usage/v1/requests/{operation_id}/cancel": {},
    "/v1/jobs": {"request_id": "new", "route": "refunds", "input": {"prompt": "x"}},
    "/v1/approvals/{approval_id}/decision": {"decision": "approved", "decision_id": "d-1"},
    "/v1/executor/heartbeat": {"jobs": []},
    "/v1/executor/result": {"job_id": "job-1", "fence": 1, "state": "done"},
    "/v1/notifications": {"message_id": "m-1", "destination": "dst_1", "data": {}},
    "/v1/agent/invocations": {
        "invocation_id": "call-1",
        "tool": "refund",
        "arguments": {"order": "A-1", "amount": 1},
    },
}


async def filled(desk: Api, path: str) -> str:
    """The address of something that exists."""

    def rows() -> Approval:
        make_tool()
        make_route()
        return ask()[0]

    approval = await desk.look(rows)
    return path.format(
        operation_id="op-1",
        job_id=approval.job_id,
        approval_id=approval.id,
        invocation_id="call-1",
        notification_id="ntf_1",
        dead_letter_id="dlq_1",
    )


def facts() -> tuple[object, ...]:
    return (
        Request.objects.count(),
        Invocation.objects.count(),
        list(Job.objects.values_list("id", "state", "fence_token")),
        list(Approval.objects.values_list("id", "state")),
    )


async def test_the_table_holds_every_address_that_is_published(desk: Api) -> None:
    async with client_of(desk.kernel) as nobody:
        published = (await nobody.get("/v1/openapi.json")).json()["paths"]
    found = {(m.upper(), path) for path, methods in published.items() for m in methods}
    assert found == set(ADDRESSES)


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
async def test_nobody_gets_in(desk: Api, method: str, path: str) -> None:
    address = await filled(desk, path)
    before = await desk.look(facts)
    async with client_of(desk.kernel) as nobody:
        for body in (BODIES.get(path), {"nonsense": 1}):
            response = await nobody.request(method, address, json=body)
            assert (response.status_code, error_of(response)["code"]) == (401, "unauthorized")
    assert await desk.look(facts) == before


@pytest.mark.parametrize(("method", "path"), ADDRESSES)
async def test_one_scope_opens_an_address_and_no_other_does(
    desk: Api, method: str, path: str
) -> None:
    address, scope = await filled(desk, path), ADDRESSES[(method, path)]
    before = await desk.look(facts)
    headers = {"Idempotency-Key": "op-1"}
    for other in SCOPES:
        if other == scope:
            continue
        async with await caller(desk, other) as client:
            response = await client.request(method, address, json=BODIES.get(path), headers=headers)
        assert response.status_code == 403, (other, response.text)
        error = error_of(response)
        assert (error["code"], error["scope"]) == ("forbidden", scope)
    assert await desk.look(facts) == before
    async with await caller(desk, scope) as client:
        response = await client.request(method, address, json=BODIES.get(path), headers=headers)
    assert response.status_code not in (401, 403), response.text
