"""Dead letters over HTTP: list, read, replay (F3-F6, F8)."""

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from kernel.api import delivery_documents, documents, lists
from kernel.api.door import actor_of, caller_of, kernel_of
from kernel.delivery.lookup import Kept, get_dead_letter, replay_of
from kernel.delivery.replay import replay

router = Router(tags=["dead letters"])


class ReplayIn(Schema):
    """Why a dead letter is replayed."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reason: str = Field("", max_length=2000)


class DeadLetterFilter(Schema):
    """Which dead letters a list shows. `after` is the `next_after` of the page before."""

    model_config = ConfigDict(extra="forbid")
    state: str = ""
    after: str = ""
    limit: int = Field(50, ge=1, le=lists.LIMIT_MAX)


@router.get("/v1/dead-letters")
async def list_dead_letters(request: HttpRequest, wanted: Query[DeadLetterFilter]) -> HttpResponse:
    """The account's dead letters, the newest first, without their contents."""
    caller = caller_of(request, "deliveries:read")
    lists.refuse_unknown(given=request.GET, known=DeadLetterFilter.model_fields)
    page = await kernel_of(request).database.in_tx(
        lists.list_dead_letters,
        account_id=caller.account_id,
        state=wanted.state,
        after=wanted.after,
        limit=wanted.limit,
    )
    rows = [delivery_documents.dead_letter_document(row) for row in page.rows]
    return documents.answer(request, {"dead_letters": rows, "next_after": page.next_after or None})


@router.get("/v1/dead-letters/{dead_letter_id}")
async def read(request: HttpRequest, dead_letter_id: str) -> HttpResponse:
    """One dead letter: what failed, its content, what its replay came to."""
    caller = caller_of(request, "deliveries:read")
    database = kernel_of(request).database
    found: Kept = await database.in_tx(
        get_dead_letter, dead_letter_id=dead_letter_id, account_id=caller.account_id
    )
    again = await database.in_tx(replay_of, dead_letter_id=dead_letter_id)
    document = delivery_documents.whole_dead_letter_document(found, again)
    return documents.answer(request, document)


@router.post("/v1/dead-letters/{dead_letter_id}/replay")
async def replay_one(
    request: HttpRequest, dead_letter_id: str, payload: ReplayIn | None = None
) -> HttpResponse:
    """Queue a dead letter again, once for good: any number of calls share the one admission."""
    caller = caller_of(request, "deliveries:write")
    kernel = kernel_of(request)
    told = await kernel.database.in_tx(
        replay,
        dead_letter_id=dead_letter_id,
        account_id=caller.account_id,
        actor=actor_of(request),
        store=kernel.store,
        reason=payload.reason if payload else "",
    )
    kernel.dispatcher.wake()
    return documents.answer(request, delivery_documents.replayed_document(dead_letter_id, told))
