"""The JSON API: model requests, their state, the account. OpenAPI at /v1/openapi.json."""

import asyncio
import functools
from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.http import parse_etags
from ninja import NinjaAPI, Schema
from ninja.errors import HttpError, ValidationError
from pydantic import ConfigDict, Field

from kernel import clock
from kernel.access import Caller
from kernel.api import errors, render
from kernel.api.parser import StrictParser
from kernel.audit import Actor
from kernel.errors import InvalidInput, KernelError, Unauthorized
from kernel.kernel import Kernel
from kernel.models import Request
from kernel.money import format_multiplier, nano_to_usd
from kernel.states import Result
from kernel.usage.accounts import account_summary
from kernel.usage.admission import Admission, Submission
from kernel.usage.bodies import read_body
from kernel.usage.catalog import list_services
from kernel.usage.dispatch import cancel
from kernel.usage.gateway import Flight, Streaming
from kernel.usage.json_text import members
from kernel.usage.lookup import get_request, result_body
from kernel.usage.recovery import expire_lease
from kernel.usage.submissions import submission

CHAT_PATH = "/v1/chat/completions"
LARGE_BODY_BYTES = 128 * 1024
# A twin that was admitted a moment ago is most likely about to be sent.
FRESH_SECONDS, LOOKS, LOOK_SECONDS = 2, 8, 0.1


async def bearer(request: HttpRequest) -> Caller:
    """The caller of `Authorization: Bearer <token>`; Unauthorized for anything else."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthorized("This call needs a token.")
    kernel_of(request).nudge()
    return await kernel_of(request).authenticate(secret.strip())


def kernel_of(request: HttpRequest) -> Kernel:
    """The kernel of this process, put into the scope by console/asgi.py."""
    return request.scope["kernel"]  # type: ignore[attr-defined]  # an ASGIRequest


def caller_of(request: HttpRequest, scope: str) -> Caller:
    """The authenticated caller, when its token has `scope`. Forbidden."""
    caller: Caller = request.auth  # type: ignore[attr-defined]  # set by ninja
    caller.require(scope)
    return caller


def actor_of(request: HttpRequest) -> Actor:
    """The token that acts, with the HTTP request it acts through."""
    caller: Caller = request.auth  # type: ignore[attr-defined]  # set by ninja
    return replace(
        caller.actor, request_id=errors.http_request_id(request), address=errors.peer(request)
    )


api = NinjaAPI(
    title="Bailing",
    version="1",
    description="Model requests, at most once. Errors: code, message, retryable, next_action.",
    auth=bearer,
    parser=StrictParser(),
    openapi_url="/v1/openapi.json",
    docs_url=None,
    urls_namespace="api",
)
HANDLERS: tuple[tuple[type[Exception], Any], ...] = (
    (KernelError, errors.on_kernel_error),
    (ValidationError, errors.on_validation_error),
    (HttpError, errors.on_http_error),
    *((kind, errors.on_database_error) for kind in errors.DATABASE_ERRORS),
    (Exception, errors.on_any_error),
)
for _kind, _handler in HANDLERS:
    api.add_exception_handler(_kind, _handler)

CHAT_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "properties": {
                        "model": {"type": "string", "description": "the id of a service"},
                        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                        "stream": {"type": "boolean"},
                        "max_completion_tokens": {"type": "integer", "minimum": 1},
                    },
                    "additionalProperties": True,
                }
            }
        },
    },
    "parameters": [
        {
            "in": "header",
            "name": "Idempotency-Key",
            "required": True,
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
            "description": "the operation id: one intended generation",
        }
    ],
}


class RequestIn(Schema):
    """A model request to admit. `request` is the chat completion body."""

    model_config = ConfigDict(extra="forbid", strict=True)
    operation_id: str | None = Field(None, description="or the header Idempotency-Key")
    request: dict[str, Any]
    dispatch: bool = True


class CancelIn(Schema):
    """Why a request is cancelled."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reason: str = Field("", max_length=2000)


@api.get("/v1/models", tags=["models"])
async def models(request: HttpRequest) -> Any:
    """The services this token's account may name as `model`."""
    caller = caller_of(request, "usage:read")
    rows = await kernel_of(request).database.in_tx(list_services, account_id=caller.account_id)
    return {
        "object": "list",
        "data": [
            {
                "id": row.id,
                "object": "model",
                "created": int(row.created_at.timestamp()),
                "owned_by": row.price_provider or "bailing",
            }
            for row in rows
        ],
    }


@api.post(CHAT_PATH, tags=["models"], openapi_extra=CHAT_BODY)
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    """Generate once per operation id; a repeat answers the saved bytes (A5, A8)."""
    caller = caller_of(request, "usage:write")
    wanted = await _submission(caller, _operation_id(request, None), request.body)
    found = await kernel_of(request).gateway.submit(wanted)
    if isinstance(found, Admission):
        return await _repeated(request, await _past_admission(request, found.request))
    return await _first_answer(request, found)


@api.post("/usage/v1/requests", tags=["requests"])
async def create_request(request: HttpRequest, payload: RequestIn) -> HttpResponse:
    """Admit, and dispatch unless `dispatch` is false. `Prefer: respond-async` answers 202."""
    caller = caller_of(request, "usage:write")
    gateway = kernel_of(request).gateway
    operation_id = _operation_id(request, payload.operation_id)
    wanted = await _submission(caller, operation_id, _request_bytes(request.body))
    if not payload.dispatch:
        admission = await gateway.admit(wanted)
        row = await _current(request, admission.request)
        return _document(request, row, 201 if admission.created else 200, not admission.created)
    found = await gateway.submit(wanted)
    if isinstance(found, Admission):
        return _document(request, await _current(request, found.request), 200, True)
    return await _after_dispatch(request, found)


@api.get("/usage/v1/requests/{operation_id}", tags=["requests"])
async def read_request(request: HttpRequest, operation_id: str) -> HttpResponse:
    """The state of one request; never charges, never sends."""
    return _document(request, await _own(request, operation_id, "usage:read"), 200, None)


@api.get("/usage/v1/requests/{operation_id}/result", tags=["requests"])
async def read_result(request: HttpRequest, operation_id: str) -> HttpResponse:
    """The provider's exact bytes, with their sha256 as ETag (A6)."""
    row = await _own(request, operation_id, "usage:read")
    etag = f'"{row.result_sha256}"'
    known = {
        tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))
    }
    if row.result_sha256 and (etag in known or "*" in known):
        response = HttpResponse(status=304)
    else:
        body = await kernel_of(request).database.in_tx(result_body, request=row)
        response = HttpResponse(body, content_type=row.content_type)
    response["ETag"] = etag
    for name, value in render.headers_of(row, replayed=True).items():
        response[name] = value
    return response


@api.post("/usage/v1/requests/{operation_id}/dispatch", tags=["requests"])
async def dispatch_request(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Send an admitted request under its original identity (A3)."""
    row = await _own(request, operation_id, "usage:write")
    if row.result_state != Result.ADMITTED:
        return await _repeated(request, row)
    flight = await kernel_of(request).gateway.dispatch(row, actor=actor_of(request))
    return await _after_dispatch(request, flight)


@api.post("/usage/v1/requests/{operation_id}/cancel", tags=["requests"])
async def cancel_request(
    request: HttpRequest, operation_id: str, payload: CancelIn | None = None
) -> HttpResponse:
    """Cancel: before dispatch nothing is owed, after it what was used is charged (A16)."""
    row = await _own(request, operation_id, "usage:write")
    await kernel_of(request).database.in_tx(
        cancel,
        request_id=row.id,
        actor=actor_of(request),
        reason=payload.reason if payload else "",
    )
    return _document(request, await _own(request, operation_id, "usage:write"), 200, None)


@api.get("/usage/v1/account", tags=["account"])
async def read_account(request: HttpRequest) -> Any:
    """What the account consumed, holds and may still spend, in decimal USD."""
    caller = caller_of(request, "usage:read")
    summary = await kernel_of(request).database.in_tx(account_summary, account_id=caller.account_id)
    account = summary.account
    return {
        "account_id": account.id,
        "name": account.name,
        "consumed_usd": nano_to_usd(summary.consumed_nano),
        "held_usd": nano_to_usd(summary.held_nano),
        "pending_usd_at_most": None
        if summary.unknown_pending
        else nano_to_usd(summary.pending_nano_max),
        "cap_usd": None if account.cap_nano is None else nano_to_usd(account.cap_nano),
        "multiplier": format_multiplier(account.multiplier_millionths),
        "overrun": account.overrun_at is not None,
    }


def _operation_id(request: HttpRequest, in_body: str | None) -> str:
    in_header = request.headers.get("Idempotency-Key")
    if in_header and in_body and in_header != in_body:
        raise InvalidInput(
            "operation_id and the Idempotency-Key header differ", field="operation_id"
        )
    found = in_body or in_header
    if not found:
        raise MissingOperationId(
            "This call needs an operation id.",
            field="Idempotency-Key",
            next_action="Send one per intended generation, e.g. -H 'Idempotency-Key: order-1001'.",
        )
    return found


def _request_bytes(body: bytes) -> bytes:
    """The caller's own bytes of the member `request`: its content is what was sent (A1)."""
    try:
        text = body.decode()
        found = [member for member in members(text) if member.key == "request"]
    except ValueError as error:
        raise InvalidInput(f"the body must be JSON in UTF-8: {error}", field="body") from None
    if len(found) != 1:
        raise InvalidInput("request is given twice", field="request")
    return text[found[0].start : found[0].end].encode()


class MissingOperationId(InvalidInput):
    """400 that shows how to send an operation id (A1)."""

    code, status = "operation_id_required", 400


async def _submission(caller: Caller, operation_id: str, raw: bytes) -> Submission:
    """Read a body; a large one on a thread, so that it does not hold up every other request."""
    read = functools.partial(
        submission,
        account_id=caller.account_id,
        operation_id=operation_id,
        path=CHAT_PATH,
        raw=raw,
    )
    return await asyncio.to_thread(read) if len(raw) > LARGE_BODY_BYTES else read()


async def _own(request: HttpRequest, operation_id: str, scope: str) -> Request:
    caller = caller_of(request, scope)
    database = kernel_of(request).database
    row = await database.in_tx(get_request, account_id=caller.account_id, operation_id=operation_id)
    return await _current(request, row)


async def _current(request: HttpRequest, row: Request) -> Request:
    """A dispatched row whose lease has ended is unknown; a read sees that too (A9)."""
    if row.result_state != Result.DISPATCHED:
        return row
    database = kernel_of(request).database
    if await database.in_tx(expire_lease, request_id=row.id):
        return await database.in_tx(
            get_request, account_id=row.account_id, operation_id=row.operation_id
        )
    return row


async def _past_admission(request: HttpRequest, row: Request) -> Request:
    """Look again for a moment when the twin of this call has just been admitted.

    Between its two commits the truth is "not dispatched", which invites a cancel of what is about
    to be sent. Nothing is decided here: the row is only read again.
    """
    looks = LOOKS
    while (
        looks
        and row.result_state == Result.ADMITTED
        and abs((clock.now() - row.admitted_at).total_seconds()) < FRESH_SECONDS
    ):
        looks -= 1
        await asyncio.sleep(LOOK_SECONDS)
        row = await _fresh(request, row)
    return row


async def _repeated(request: HttpRequest, row: Request) -> HttpResponse:
    row = await _current(request, row)
    body = None
    if row.result_state in (Result.COMPLETE, Result.FAILED) and row.purged_at is None:
        body = await kernel_of(request).database.in_tx(read_body, request_id=row.id, kind="result")
    return render.saved_answer(request, row, body, replayed=True)


async def _first_answer(request: HttpRequest, flight: Flight) -> HttpResponseBase:
    opened = await flight.wait_opened()
    if isinstance(opened, Streaming):
        return render.live_answer(
            request,
            flight.request,
            status=opened.status,
            content_type=opened.content_type,
            pieces=opened.live.read(),
        )
    if not opened.saved.applied:
        # Cancelled or resolved meanwhile: what is not kept is not answered.
        return await _repeated(request, await _fresh(request, flight.request))
    row, outcome = flight.request, opened.outcome
    row.result_state = opened.saved.result_state
    row.billing_state = opened.saved.billing_state
    row.http_status, row.content_type = outcome.http_status, outcome.content_type
    row.error_code, row.error_text = outcome.error_code, outcome.error_text
    return render.saved_answer(request, row, outcome.body, replayed=False)


async def _after_dispatch(request: HttpRequest, flight: Flight) -> HttpResponse:
    if "respond-async" in request.headers.get("Prefer", ""):
        await flight.wait_dispatched()
        row = await _fresh(request, flight.request)
        response = _document(request, row, 202, False)
        response["Preference-Applied"] = "respond-async"
        response["Location"] = f"/usage/v1/requests/{row.operation_id}"
        return response
    await flight.wait_ended()
    return _document(request, await _fresh(request, flight.request), 200, False)


async def _fresh(request: HttpRequest, row: Request) -> Request:
    return await kernel_of(request).database.in_tx(
        get_request, account_id=row.account_id, operation_id=row.operation_id
    )


def _document(
    request: HttpRequest, row: Request, status: int, replayed: bool | None
) -> JsonResponse:
    response = JsonResponse(render.status_document(row), status=status)
    for name, value in render.headers_of(row, replayed=bool(replayed)).items():
        response[name] = value
    response[errors.HTTP_REQUEST_ID] = errors.http_request_id(request)
    return response
