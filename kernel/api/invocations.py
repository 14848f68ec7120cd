"""Direct invocations over HTTP: an agent outside asks, resumes, and reads receipts (C9)."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from kernel.api import documents
from kernel.api.as_written import member_text
from kernel.api.door import actor_of, caller_of, kernel_of
from kernel.jobs.invocations import invoke, resume
from kernel.jobs.receipts import receipt

router = Router(tags=["agent"])


class InvocationIn(Schema):
    """One tool call. `arguments` is an object that fits the tool's schema."""

    model_config = ConfigDict(extra="forbid", strict=True)
    invocation_id: str = Field(description="your id of this call; a repeat is the same call")
    tool: str
    arguments: Any = Field(json_schema_extra={"type": "object"})


@router.post("/v1/agent/invocations")
async def create(request: HttpRequest, payload: InvocationIn) -> HttpResponse:
    """Write down one call, once; nothing is sent. It says whether a person is asked first."""
    caller = caller_of(request, "agent")
    found, created = await kernel_of(request).database.in_tx(
        invoke,
        account_id=caller.account_id,
        invocation_id=payload.invocation_id,
        tool_id=payload.tool,
        arguments_text=_arguments_text(request.body),
        actor=actor_of(request),
    )
    document = documents.invocation_document(found)
    return documents.answer(request, document, status=201 if created else 200)


@router.post("/v1/agent/invocations/{invocation_id}/resume")
async def send(request: HttpRequest, invocation_id: str) -> HttpResponse:
    """Send the call if it may be sent now, at most once; a repeat answers what was saved."""
    caller = caller_of(request, "agent")
    kernel = kernel_of(request)
    found, replayed = await resume(
        database=kernel.database,
        background=kernel.background,
        door=kernel.door,
        account_id=caller.account_id,
        invocation_id=invocation_id,
    )
    document = {**documents.invocation_document(found), "replayed": replayed}
    return documents.answer(request, document)


@router.get("/v1/agent/invocations/{invocation_id}/receipt")
async def read(request: HttpRequest, invocation_id: str) -> HttpResponse:
    """The saved result, approval and journal state. Executes, consumes and changes nothing."""
    caller = caller_of(request, "agent")
    found = await kernel_of(request).database.in_tx(
        receipt, account_id=caller.account_id, invocation_id=invocation_id
    )
    return documents.answer(request, documents.invocation_document(found))


def _arguments_text(body: bytes) -> str:
    """The caller's own text of the member `arguments`: no number changes on its way (C1)."""
    return member_text(body, "arguments")
