"""What the tests of jobs and approvals are about: tools, routes, waiting jobs, signed decisions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx

from kernel import access, clock
from kernel.approvals.arguments import final_arguments
from kernel.approvals.decisions import Decision
from kernel.approvals.decisions import decide as record_decision
from kernel.approvals.requests import Question, open_in_tx
from kernel.delivery.signing import sign
from kernel.ids import new_id
from kernel.models import Approval, Route, Tool
from kernel.state import DatabaseStore, JobRecord, NewJob
from kernel.states import Waiting
from kernel.transactions import transaction
from tests.support.product import OPERATOR, client_of, make_account, make_token

if TYPE_CHECKING:
    from tests.api.conftest import Api

STORE = DatabaseStore()
ASKER = "token:tok_asker"
SECRET, OTHER_SECRET = "the webhook secret of acme", "the webhook secret of other"
ALL = (
    "usage:write",
    "usage:read",
    "jobs:write",
    "jobs:read",
    "approvals:read",
    "approvals:decide",
    "agent",
    "executor",
)
SCHEMA = {
    "type": "object",
    "properties": {
        "order": {"type": "string"},
        "amount": {"type": "number"},
        "currency": {"type": "string", "default": "EUR"},
        "api_key": {"type": "string"},
    },
    "required": ["order", "amount"],
    "additionalProperties": False,
}
ARGUMENTS = {"order": "A-1", "amount": 25}


def policy(default: str, risk: str = "medium") -> str:
    return json.dumps({"default": default, "risk": risk, "rules": []})


def make_tool(tool_id: str = "refund", *, url: str = "http://127.0.0.1:9/", **fields: Any) -> Tool:
    now = clock.db_now()
    values = {
        "parameters_text": json.dumps(SCHEMA),
        "policy_text": policy("approval"),
        "effect_text": "Refund {amount} for order {order}.",
        "allow_private": True,
        "deadline_seconds": 5,
        **fields,
    }
    row = Tool(id=tool_id, url=url, created_at=now, updated_at=now, **values)
    row.save(force_insert=True)
    return row


def make_agents_tool(**fields: Any) -> Tool:
    """The same on a route of everybody: agents call only what jobs of their account could."""
    make_route("agents", target="executor", tools_text=json.dumps(["refund"]))
    return make_tool(**fields)


def make_route(route_id: str = "refunds", *, target: str = "agent", **fields: Any) -> Route:
    now = clock.db_now()
    tools = json.dumps(["refund"] if target == "agent" else [])
    values = {"service_id": "gpt" if target == "agent" else "", "tools_text": tools, **fields}
    row = Route(id=route_id, target=target, created_at=now, updated_at=now, **values)
    row.save(force_insert=True)
    return row


def make_job(
    request_id: str = "job-1",
    *,
    account_id: str = "acme",
    route_id: str = "refunds",
    target: str = "agent",
    value: Any = None,
) -> JobRecord:
    """A queued job."""
    job = NewJob(
        account_id=account_id,
        request_id=request_id,
        route_id=route_id,
        target=target,
        input_text=json.dumps(value or {"prompt": "refund it"}),
    )
    return STORE.submit(job=job, actor=OPERATOR)[0]


def question(*, call_id: str, risk: str = "medium", arguments: Any = None) -> Question:
    given = json.dumps(ARGUMENTS if arguments is None else arguments)
    return Question(
        tool="refund",
        tool_version=1,
        canonical=final_arguments(schema_text=json.dumps(SCHEMA), given_text=given),
        risk=risk,
        effect="Refund 25 for order A-1.",
        tool_call_id=call_id,
        expires_in_seconds=3600,
    )


def ask(
    request_id: str = "job-1",
    *,
    account_id: str = "acme",
    count: int = 1,
    pauses: bool = True,
    requested_by: str = ASKER,
    **fields: Any,
) -> list[Approval]:
    """A claimed job with `count` open questions; it waits for them, or still runs."""
    made = make_job(request_id, account_id=account_id)
    (job,) = [
        job
        for job in STORE.claim(owner="test", target="agent", limit=50, account_id=account_id)
        if job.id == made.id
    ]
    questions = [question(call_id=f"{job.id}.1.{index}", **fields) for index in range(count)]
    found: list[Approval] = []

    def open_them() -> None:
        found[:] = open_in_tx(
            questions=questions,
            account_id=account_id,
            job_id=job.id,
            request_id=request_id,
            requested_by=requested_by,
        )

    if pauses:
        STORE.wait(fence=job.fence, reason=Waiting.APPROVAL, also=open_them)
    else:
        _in_transaction(act=open_them)
    return found


def ask_apart(*, account_id: str = "acme", **fields: Any) -> Approval:
    """An open question about a direct invocation: no job is behind it."""
    found: list[Approval] = []

    def open_it() -> None:
        found[:] = open_in_tx(
            questions=[question(call_id="inv_1.1.0", **fields)],
            account_id=account_id,
            invocation_id="inv_1",
            request_id="call-1",
            requested_by=ASKER,
        )

    _in_transaction(act=open_it)
    return found[0]


@transaction
def _in_transaction(*, act: Any) -> None:
    act()


def snapshot() -> list[dict[str, Any]]:
    """Every approval as it is stored."""
    return list(Approval.objects.order_by("id").values())


@contextmanager
def signing_accounts() -> Iterator[None]:
    """acme and other exist and sign with their own secret, from this environment."""
    make_account("other")
    names = {"ACME_SIGNING": ("acme", SECRET), "OTHER_SIGNING": ("other", OTHER_SECRET)}
    for name, (account_id, secret) in names.items():
        access.add_signing_key(account_id=account_id, secret_env=name, actor=OPERATOR)
        os.environ[name] = secret
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def signed(
    body: bytes,
    *,
    message_id: str = "",
    secrets: tuple[str, ...] = (SECRET,),
    seconds: float = 0,
) -> dict[str, str]:
    """The headers of a message signed `seconds` from now."""
    at = clock.now() + timedelta(seconds=seconds)
    name = message_id or new_id("msg")
    return sign(message_id=name, signed_at=at, body=body, secrets=list(secrets))


def decision_body(decision: str = "approved", decision_id: str = "d-1", **fields: Any) -> bytes:
    return json.dumps({"decision": decision, "decision_id": decision_id, **fields}).encode()


async def decide(
    api: Api, approval_id: str, decision: Any = "approved", decision_id: Any = "d-1", **fields: Any
) -> httpx.Response:
    """Decide by the caller's token."""
    body = {"decision": decision, "decision_id": decision_id, **fields}
    return await api.client.post(f"/v1/approvals/{approval_id}/decision", json=body)


async def decide_signed(
    api: Api, approval_id: str, body: bytes, headers: dict[str, str]
) -> httpx.Response:
    """Decide by a signed message, without a token."""
    async with client_of(api.kernel) as nobody:
        return await nobody.post(
            f"/v1/approvals/{approval_id}/decision", content=body, headers=headers
        )


async def caller(api: Api, *scopes: str, account_id: str = "acme") -> httpx.AsyncClient:
    """Another token's client; the test's loop ends it."""
    secret = await api.look(lambda: make_token(account_id, scopes=scopes))
    return client_of(api.kernel, secret)


# --- direct invocations -------------------------------------------------------------------------

CALL = {"invocation_id": "call-1", "tool": "refund", "arguments": ARGUMENTS}


async def create(desk: Api, **fields: Any) -> httpx.Response:
    return await desk.client.post("/v1/agent/invocations", json={**CALL, **fields})


async def resume(desk: Api, invocation_id: str = "call-1") -> httpx.Response:
    return await desk.client.post(f"/v1/agent/invocations/{invocation_id}/resume")


async def receipt(desk: Api, invocation_id: str = "call-1") -> dict[str, Any]:
    response = await desk.client.get(f"/v1/agent/invocations/{invocation_id}/receipt")
    assert response.status_code == 200, response.text
    return response.json()


def approve(decision: str = "approved") -> None:
    """As if a person had decided."""
    open_id = Approval.objects.get(state="open").id
    record_decision(
        order=Decision(
            approval_id=open_id,
            decision=decision,
            decision_id=f"d.{open_id}",
            reason="because",
            actor=OPERATOR,
        )
    )


# --- decided --------------------------------------------------------------------------------------

DECIDED = ("decision", "decision_id", "decided_by", "decided_by_kind", "decided_at", "reason")


def decided_fields(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in DECIDED}


async def open_one(desk: Api, **fields: Any) -> str:
    """The id of the one open question of a waiting job."""

    def rows() -> str:
        make_tool()
        make_route()
        return ask(**fields)[0].id

    return await desk.look(rows)
