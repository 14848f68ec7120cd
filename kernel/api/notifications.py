"""Notifications over HTTP: send a message to a destination, read what became of it (F1, F2)."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from kernel.api import delivery_documents, documents, lists
from kernel.api.door import actor_of, caller_of, kernel_of
from kernel.delivery.lookup import attempts_of, get_notification
from kernel.delivery.messages import send_message
from kernel.models import Notification

router = Router(tags=["notifications"])


class MessageIn(Schema):
    """A message to one destination of the account. `data` is any JSON object."""

    model_config = ConfigDict(extra="forbid", strict=True)
    message_id: str = Field(description="your id of this message; a repeat is the same message")
    destination: str = Field(description="the id of a destination")
    data: dict[str, Any]


class NotificationFilter(Schema):
    """Which notifications a list shows. `after` is the `next_after` of the page before."""

    model_config = ConfigDict(extra="forbid")
    state: str = ""
    after: str = ""
    limit: int = Field(50, ge=1, le=lists.LIMIT_MAX)


@router.post("/v1/notifications")
async def send(request: HttpRequest, payload: MessageIn) -> HttpResponse:
    """Queue a message, once per `message_id`: 201, and 200 for a repeat with the same content."""
    caller = caller_of(request, "deliveries:write")
    kernel = kernel_of(request)
    row, created = await kernel.database.in_tx(
        send_message,
        account_id=caller.account_id,
        message_id=payload.message_id,
        destination_id=payload.destination,
        data=payload.data,
        actor=actor_of(request),
    )
    kernel.dispatcher.wake()
    return await _whole(request, row, status=201 if created else 200)


@router.get("/v1/notifications")
async def list_notifications(
    request: HttpRequest, wanted: Query[NotificationFilter]
) -> HttpResponse:
    """The account's notifications, the latest change first, without their contents."""
    caller = caller_of(request, "deliveries:read")
    lists.refuse_unknown(given=request.GET, known=NotificationFilter.model_fields)
    page = await kernel_of(request).database.in_tx(
        lists.list_notifications,
        account_id=caller.account_id,
        state=wanted.state,
        after=wanted.after,
        limit=wanted.limit,
    )
    rows = [delivery_documents.notification_document(row) for row in page.rows]
    return documents.answer(request, {"notifications": rows, "next_after": page.next_after or None})


@router.get("/v1/notifications/{notification_id}")
async def read(request: HttpRequest, notification_id: str) -> HttpResponse:
    """One notification: its state, content and attempts."""
    caller = caller_of(request, "deliveries:read")
    row: Notification = await kernel_of(request).database.in_tx(
        get_notification, notification_id=notification_id, account_id=caller.account_id
    )
    return await _whole(request, row)


async def _whole(request: HttpRequest, row: Notification, *, status: int = 200) -> HttpResponse:
    attempts = await kernel_of(request).database.in_tx(attempts_of, notification_id=row.id)
    document = delivery_documents.whole_notification_document(row, attempts)
    return documents.answer(request, document, status=status)
