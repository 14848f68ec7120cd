"""Approvals over HTTP: read the questions, decide by a token or by a signed message (C3, C4).

Every way to decide ends in the one `decide`. GET and HEAD never decide.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from kernel import access, clock
from kernel.access import Caller
from kernel.api import documents, errors, lists
from kernel.api.door import actor_of, bearer, caller_of, kernel_of
from kernel.approvals.decisions import WORDS, Decision
from kernel.approvals.lookup import continuation_of, get_approval
from kernel.audit import Actor
from kernel.conf import conf
from kernel.delivery import signing
from kernel.errors import InvalidInput, NotFound, Unauthorized
from kernel.models import Approval, Continuation
from kernel.states import ApprovalState

router = Router(tags=["approvals"])

RETRY_SECONDS = 2
SIGNED_HEADERS = [
    {"in": "header", "name": name, "schema": {"type": "string"}, "description": about}
    for name, about in (
        (signing.ID, "instead of a token: the id of this message, without a dot"),
        (signing.TIMESTAMP, "seconds since 1970, when this attempt was signed"),
        (signing.SIGNATURE, "v1,<base64 HMAC-SHA256 of id.timestamp.body>"),
    )
]


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed a message: one key of the account whose approval it is about."""

    key_id: str
    account_id: str


class DecisionIn(Schema):
    """A decision. `arguments_sha256` is the digest of what was looked at; another one is 409."""

    model_config = ConfigDict(extra="forbid", strict=True)
    decision: Any = Field(None, json_schema_extra={"type": "string", "enum": list(WORDS)})
    decision_id: str = Field(description="your id of this decision; a repeat is the same decision")
    reason: str = Field("", max_length=4000)
    arguments_sha256: str = ""
    approval_id: str = Field("", description="when given, it must be the one of the address")


class ApprovalFilter(Schema):
    """Which approvals a list shows. `after` is the `next_after` of the page before."""

    model_config = ConfigDict(extra="forbid")
    state: str = ApprovalState.OPEN
    after: str = ""
    limit: int = Field(50, ge=1, le=lists.LIMIT_MAX)


async def decider(request: HttpRequest) -> Caller | Signer:
    """Who decides: the signer when a webhook-* header is there, else the token. Unauthorized."""
    if not any(name in request.headers for name in signing.HEADERS):
        return await bearer(request)
    kernel_of(request).nudge()
    return await _signer(request)


@router.get("/v1/approvals")
async def list_approvals(request: HttpRequest, wanted: Query[ApprovalFilter]) -> HttpResponse:
    """The account's approvals in one state, the newest first, without their arguments."""
    caller = caller_of(request, "approvals:read")
    lists.refuse_unknown(given=request.GET, known=ApprovalFilter.model_fields)
    page = await kernel_of(request).database.in_tx(
        lists.list_approvals,
        account_id=caller.account_id,
        state=wanted.state,
        after=wanted.after,
        limit=wanted.limit,
    )
    approvals = [documents.approval_document(row) for row in page.rows]
    listed = {"approvals": approvals, "next_after": page.next_after or None}
    return documents.answer(request, listed)


@router.get("/v1/approvals/{approval_id}")
async def read(request: HttpRequest, approval_id: str) -> HttpResponse:
    """One approval: masked arguments, their digest, until when it can be decided, what to do."""
    caller = caller_of(request, "approvals:read")
    row = await _approval(request, approval_id, caller.account_id)
    continuation = await _continuation(request, row)
    return documents.answer(request, documents.whole_approval_document(row, continuation))


@router.post(
    "/v1/approvals/{approval_id}/decision",
    auth=decider,
    openapi_extra={"parameters": SIGNED_HEADERS},
)
async def decide(request: HttpRequest, approval_id: str, payload: DecisionIn) -> HttpResponse:
    """Approve or deny, once; a repeat with the same `decision_id` gets the same answer (C3, C4)."""
    if payload.approval_id not in ("", approval_id):
        raise InvalidInput("the message is about another approval", field="approval_id")
    actor, account_id = _who(request)
    order = Decision(
        approval_id=approval_id,
        decision=payload.decision,
        decision_id=payload.decision_id,
        reason=payload.reason,
        actor=actor,
        seen_sha256=payload.arguments_sha256,
        account_id=account_id,
    )
    answer = await kernel_of(request).decide(order)
    if answer.http_status == 503:
        return _recorded(request, answer.approval)
    document = documents.decided_document(
        answer.approval, replayed=answer.replayed, pending=answer.continuation_pending
    )
    return documents.answer(request, document)


def _recorded(request: HttpRequest, row: Approval) -> HttpResponse:
    body = documents.recorded_document(row, http_request_id=errors.http_request_id(request))
    response = documents.answer(request, body, status=503)
    response._has_been_logged = True  # type: ignore[attr-defined]  # recorded, no error of ours
    response["Retry-After"] = str(RETRY_SECONDS)
    return response


def _who(request: HttpRequest) -> tuple[Actor, str]:
    found: Caller | Signer = request.auth  # type: ignore[attr-defined]  # set by ninja
    if isinstance(found, Signer):
        http_request_id = errors.http_request_id(request)
        actor = Actor("signature", found.key_id, http_request_id, address=errors.peer(request))
        return actor, found.account_id
    return actor_of(request), caller_of(request, "approvals:decide").account_id


async def _signer(request: HttpRequest) -> Signer:
    """The key that signed this message; the message is remembered under its id. Unauthorized.

    An approval that does not exist and one of another account are the same to a stranger.
    """
    database = kernel_of(request).database
    assert request.resolver_match is not None, "the address was resolved before"
    approval_id = str(request.resolver_match.kwargs["approval_id"])
    try:
        row: Approval = await database.in_tx(get_approval, approval_id=approval_id)
    except (NotFound, InvalidInput):
        raise Unauthorized(
            "The signature fits no secret of this account.", next_action=signing.WAY_OUT
        ) from None
    keys = await database.in_tx(access.active_secrets, account_id=row.account_id)
    proof = await asyncio.to_thread(
        signing.verify,
        headers={name: request.headers.get(name, "") for name in signing.HEADERS},
        body=request.body,
        secrets=[secret for _, secret in keys],
        now=clock.now(),
        tolerance_seconds=conf.signature_tolerance_seconds,
    )
    await database.in_tx(
        access.accept_message,
        account_id=row.account_id,
        webhook_id=proof.message_id,
        about=row.id,
        body=request.body,
    )
    return Signer(keys[proof.secret_index][0], row.account_id)


async def _approval(request: HttpRequest, approval_id: str, account_id: str) -> Approval:
    row: Approval = await kernel_of(request).database.in_tx(
        get_approval, approval_id=approval_id, account_id=account_id
    )
    return row


async def _continuation(request: HttpRequest, row: Approval) -> Continuation | None:
    found: Continuation | None = await kernel_of(request).database.in_tx(
        continuation_of, approval_id=row.id
    )
    return found
