"""Pages of rows for the API: newest first, ids from an index, then the rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Model, Q, QuerySet

from kernel import schema
from kernel.errors import InvalidInput
from kernel.ids import check_id, is_id
from kernel.models import Approval, DeadLetter, Job, Notification
from kernel.states import APPROVAL, DEAD_LETTER, JOB, NOTIFICATION
from kernel.transactions import reading

LIMIT_MAX = 200
# Bodies are left in the table: one page of them may be hundreds of megabytes.
JOB_BODIES = ("input_text", "result_text")
APPROVAL_BODIES = ("arguments_text",)
CONTENT = ("content",)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of rows, and what `after` is for the next one ('' = the end)."""

    rows: Sequence[Any]
    next_after: str


@reading
def list_jobs(*, account_id: str, state: str, route_id: str, after: str, limit: int) -> Listed:
    """Jobs of one account, the latest change first. InvalidInput names a wrong filter."""
    rows = Job.objects.filter(account_id=account_id)
    if state:
        rows = rows.filter(state=_known(state, JOB.states))
    if route_id:
        rows = rows.filter(route_id=check_id(route_id, field="route"))
    return _page(rows, by="updated_at", bodies=JOB_BODIES, after=after, limit=limit)


@reading
def list_approvals(*, account_id: str, state: str, after: str, limit: int) -> Listed:
    """Approvals of one account in one state, the newest first. InvalidInput names a wrong filter.

    Their arguments are not read.
    """
    rows = Approval.objects.filter(account_id=account_id, state=_known(state, APPROVAL.states))
    return _page(rows, by="created_at", bodies=APPROVAL_BODIES, after=after, limit=limit)


@reading
def list_dead_letters(*, account_id: str, state: str, after: str, limit: int) -> Listed:
    """Dead letters of one account, the newest first; with `state`, only those in it.

    Their contents are not read. InvalidInput names a wrong filter. Unavailable without 0067.
    """
    schema.require(schema.REPLAY)
    schema.require(schema.DELIVERY)
    rows = DeadLetter.objects.filter(account_id=account_id)
    if state:
        rows = rows.filter(state=_known(state, DEAD_LETTER.states))
    return _page(rows, by="created_at", bodies=CONTENT, after=after, limit=limit)


@reading
def list_notifications(*, account_id: str, state: str, after: str, limit: int) -> Listed:
    """Notifications of one account, the latest change first, without their contents."""
    schema.require(schema.DELIVERY)
    rows = Notification.objects.filter(account_id=account_id)
    if state:
        rows = rows.filter(state=_known(state, NOTIFICATION.states))
    return _page(rows, by="updated_at", bodies=CONTENT, after=after, limit=limit)


def refuse_unknown(*, given: Iterable[str], known: Iterable[str]) -> None:
    """InvalidInput naming the first query parameter that no list has: never a list of all."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidInput(f"there is no such filter: {', '.join(unknown)}", field=unknown[0])


def _page(
    rows: "QuerySet[Any]", *, by: str, bodies: tuple[str, ...], after: str, limit: int
) -> Listed:
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit lies between 1 and {LIMIT_MAX}", field="limit")
    if after:
        at, row_id = _read_cursor(after)
        # This form of the keyset uses the index on MariaDB; a row tuple would scan all of it.
        rows = rows.filter(**{f"{by}__lte": at}).filter(Q(**{f"{by}__lt": at}) | Q(id__lt=row_id))
    found = list(rows.order_by(f"-{by}", "-id").values_list(by, "id")[: limit + 1])
    page = found[:limit]
    model: type[Model] = rows.model
    by_id = model._default_manager.defer(*bodies).in_bulk([row_id for _, row_id in page])
    return Listed(
        # A job may move between the two queries; its row is shown as it is now.
        rows=[by_id[row_id] for _, row_id in page if row_id in by_id],
        next_after=_cursor(*page[-1]) if len(found) > limit else "",
    )


def _cursor(at: datetime, row_id: str) -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{row_id}"


def _read_cursor(text: str) -> tuple[datetime, str]:
    digits, _, row_id = text.partition("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 17 and is_id(row_id):
        return _EPOCH + timedelta(microseconds=int(digits)), row_id
    raise InvalidInput("after is the next_after of an earlier page", field="after")


def _known(state: str, states: Sequence[Any]) -> str:
    names = [one.name for one in states]
    if state not in names:
        raise InvalidInput(f"state is one of {', '.join(names)}", field="state")
    return state
