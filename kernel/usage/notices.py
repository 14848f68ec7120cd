"""What is told about model requests: an unknown outcome, a charge without a price (F1)."""

from collections.abc import Sequence
from datetime import datetime

from kernel import outbox
from kernel.models import Request
from kernel.states import Result
from kernel.transactions import requires_transaction


@requires_transaction
def tell_unknown_in_tx(request_ids: Sequence[str], *, at: datetime) -> None:
    """Publish `request.unknown` for those that became unknown at this very moment."""
    rows = Request.objects.filter(
        id__in=request_ids, result_state=Result.UNKNOWN, result_at=at
    ).values_list("id", "account_id", "operation_id", "service_id", "error_code")
    outbox.publish_all_in_tx(
        events=[
            outbox.Event(
                account_id=account_id,
                name=outbox.REQUEST_UNKNOWN,
                data={
                    "request_id": request_id,
                    "operation_id": operation_id,
                    "service_id": service_id,
                    "error_code": code,
                },
                request_id=request_id,
            )
            for request_id, account_id, operation_id, service_id, code in rows
        ]
    )


@requires_transaction
def tell_unpriced_in_tx(request_ids: Sequence[str], *, reason: str) -> None:
    """Publish `request.unpriced` for those whose charge waits since this transaction (A12)."""
    rows = Request.objects.filter(id__in=request_ids).values_list(
        "id", "account_id", "operation_id", "service_id"
    )
    outbox.publish_all_in_tx(
        events=[
            outbox.Event(
                account_id=account_id,
                name=outbox.REQUEST_UNPRICED,
                data={
                    "request_id": request_id,
                    "operation_id": operation_id,
                    "service_id": service_id,
                    "reason": reason,
                },
                request_id=request_id,
            )
            for request_id, account_id, operation_id, service_id in rows
        ]
    )
