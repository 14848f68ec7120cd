"""Admission: a model request becomes durable, once per (account, operation id) (A1, A2, A15).

The truth is found by inserting on the unique key, never by looking first: the commit of a dead
process can land after a SELECT missed it, but an INSERT waits for it and finds it.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from kernel import clock, sql
from kernel.errors import CapReached, Conflict, Forbidden, InvalidInput, KernelError, NotFound
from kernel.ids import RESERVED_PREFIX, check_id, is_id
from kernel.models import Account, Body, Request, Service
from kernel.money import NANO_MAX
from kernel.sql import insert_rows_in_tx
from kernel.transactions import requires_transaction, transaction
from kernel.usage import pricing
from kernel.usage.bodies import insert_bodies_in_tx
from kernel.usage.catalog import price_for_service_in_tx
from kernel.usage.sql import HOLD

Key = tuple[str, str]  # account, operation


@dataclass(frozen=True, slots=True)
class Submission:
    """What a caller wants generated, once: a repeat is another Submission with another request id.

    `request_id` is ours, made before the commit. What is inserted again after a lost commit extends
    it, so that this submission knows its own row whichever of its commits landed.
    """

    account_id: str
    operation_id: str
    service_id: str
    path: str
    body: bytes
    content_sha256: str
    streamed: bool
    hide_usage: bool
    max_output_tokens: int | None
    choices: int = 1
    service_tier: str | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """A service and its price at this moment, looked up once per transaction."""

    service: Service
    price: pricing.PriceSnapshot | None

    def serves(self, account_id: str) -> bool:
        return self.service.active and self.service.account_id in ("", account_id)


@dataclass(frozen=True, slots=True)
class Admission:
    """The request row, and whether this submission created it."""

    request: Request
    created: bool


def content_sha256(*, account_id: str, path: str, body: bytes) -> str:
    """sha256 over account, path and raw body, length-prefixed (A1)."""
    total = hashlib.sha256()
    for part in (account_id.encode(), path.encode(), body):
        total.update(str(len(part)).encode() + b":" + part)
    return total.hexdigest()


def check_operation_id(value: object) -> str:
    """Returns an operation id a caller may use, else InvalidId or InvalidInput (A1).

    `job:` belongs to the kernel's own jobs.
    """
    checked = check_id(value, field="operation_id")
    if checked.startswith(RESERVED_PREFIX):
        raise InvalidInput(
            "operation ids that start with job: are reserved",
            field="operation_id",
            code="reserved_operation_id",
            next_action="Choose another operation id.",
        )
    return checked


@transaction
def admit(*, items: Sequence[Submission]) -> list[Admission | Exception]:
    """Make each submission durable, or find the request it repeats. One transaction (A2).

    An outcome is an Admission, or the error for that submission alone: NotFound (account, service),
    Forbidden (account not active), InvalidInput (unpriced, no output limit under a cap),
    CapReached, Conflict `operation_conflict` (same id, other content). Items of one operation are
    judged in their order, each as if it came alone after those before it (A1, A8).
    """
    now = clock.db_now()
    named = {item.account_id for item in items}
    accounts = {row.id: row for row in sql.rows(Account, {"id": named})}
    services = sql.rows(Service, {"id": _named_services(items)})
    routes = {row.id: Route(row, price_for_service_in_tx(service=row, at=now)) for row in services}
    asked: dict[Key, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        asked[item.account_id, item.operation_id].append(index)
    outcomes: dict[int, Admission | Exception] = {}
    while asked:
        rows = _first_rows(items, asked, outcomes, accounts=accounts, routes=routes, now=now)
        asked = _admit_rows_in_tx(items, asked, outcomes, rows=rows, accounts=accounts)
    return [outcomes[index] for index in range(len(items))]


@transaction
def admit_again(*, items: Sequence[Submission]) -> list[Admission | Exception]:
    """After a lost commit: insert once more under a longer request id; the key decides (A2).

    If the lost commit landed, its row is recognised as this submission's own.
    """
    fresh = [
        replace(item, request_id=f"{_root(item.request_id)}.{os.urandom(4).hex()}")
        for item in items
    ]
    return admit.transaction(items=fresh)  # type: ignore[attr-defined]  # set by @transaction


def _first_rows(
    items: Sequence[Submission],
    asked: Mapping[Key, Sequence[int]],
    outcomes: dict[int, Admission | Exception],
    *,
    accounts: dict[str, Account],
    routes: dict[str, Route],
    now: datetime,
) -> dict[int, Request]:
    """Per operation the row of the first item that may have one; refusals of those before it."""
    rows: dict[int, Request] = {}
    for indexes in asked.values():
        for index in indexes:
            try:
                rows[index] = _row(items[index], accounts=accounts, routes=routes, now=now)
                break
            except KernelError as error:
                outcomes[index] = error
    return rows


@requires_transaction
def _admit_rows_in_tx(
    items: Sequence[Submission],
    asked: Mapping[Key, Sequence[int]],
    outcomes: dict[int, Admission | Exception],
    *,
    rows: dict[int, Request],
    accounts: dict[str, Account],
) -> dict[Key, list[int]]:
    """Insert what is new and judge each item against the row of its operation, where there is one.

    Returns what is still to be judged: other content after an item that would pass the cap. Its key
    was inserted and deleted here, so nobody else holds it while the account row is locked.
    """
    insert_rows_in_tx(list(rows.values()), unless_taken=("account_id", "operation_id"))
    own = {row.id: row for row in rows.values()}
    kept = _stored(asked, own=own)
    mine: list[int] = []
    for key, stored in kept.items():
        for index in asked[key]:
            if index in rows and rows[index].id == stored.id:
                mine.append(index)
                outcomes[index] = Admission(stored, created=True)
            elif index not in outcomes or stored.id not in own:
                # A repeat is answered from its row even where a new request would be refused (A8).
                outcomes[index] = _repeat(items[index], stored)
    mine.sort()
    insert_bodies_in_tx(kind="request", bodies=[(rows[i].id, items[i].body) for i in mine])
    again: dict[Key, list[int]] = {}
    for index in _over_cap(mine, rows, accounts):
        key = items[index].account_id, items[index].operation_id
        refusal = CapReached(f"account {key[0]} would pass its cap", account_id=key[0])
        for later in asked[key][asked[key].index(index) :]:
            # The same content holds the same and would pass it, too; other content may still fit.
            if key in again or items[later].content_sha256 != items[index].content_sha256:
                del outcomes[later]
                again.setdefault(key, []).append(later)
            else:
                outcomes[later] = refusal
    return again


def _named_services(items: Sequence[Submission]) -> set[str]:
    # A model name that is no id names no service; it must not reach the column either.
    return {item.service_id for item in items if is_id(item.service_id)}


def _row(
    item: Submission,
    *,
    accounts: dict[str, Account],
    routes: dict[str, Route],
    now: datetime,
) -> Request:
    account = accounts.get(item.account_id)
    if account is None:
        raise NotFound(f"no account {item.account_id}")
    if not account.active:
        raise Forbidden(f"account {account.id} is closed", code="account_closed")
    route = routes.get(item.service_id)
    if route is None or not route.serves(account.id):
        raise NotFound(
            f"no service named {item.service_id[:128]} for this account",
            code="service_not_found",
            field="model",
            next_action="GET /v1/models lists the services you may use.",
        )
    service, snapshot = route.service, route.price
    return Request(
        id=item.request_id,
        account_id=account.id,
        operation_id=item.operation_id,
        service_id=service.id,
        service_version=service.version,
        upstream_model=service.model,
        path=item.path,
        content_sha256=item.content_sha256,
        streamed=item.streamed,
        hide_usage=item.hide_usage,
        multiplier_millionths=account.multiplier_millionths,
        price_text=snapshot.to_text() if snapshot else "",
        hold_nano=_hold(item, account=account, service=service, snapshot=snapshot),
        admitted_at=now,
        updated_at=now,
    )


def _hold(
    item: Submission,
    *,
    account: Account,
    service: Service,
    snapshot: pricing.PriceSnapshot | None,
) -> int:
    if snapshot is None and (not account.allow_unpriced or account.cap_nano is not None):
        raise InvalidInput(
            f"service {service.id} has no price",
            field="model",
            code="unpriced_service",
            next_action="Ask an operator to add a price, or to allow unpriced requests.",
        )
    if account.cap_nano is None or snapshot is None:
        return 0
    limit = item.max_output_tokens or service.max_output_tokens
    if not limit:
        raise InvalidInput(
            f"account {account.id} has a cap, so each request needs a maximum output",
            field="max_completion_tokens",
            code="output_limit_required",
            next_action="Send max_completion_tokens, or set a maximum on the service.",
        )
    return pricing.hold_nano(
        snapshot,
        body_bytes=len(item.body),
        max_output_tokens=limit * item.choices,
        multiplier=account.multiplier_millionths,
        service_tier=item.service_tier,
    )


def _stored(keys: Iterable[Key], *, own: Mapping[str, Request]) -> dict[Key, Request]:
    """The rows under these (account, operation id): ids from the unique key, then rows by id.

    Rows of `own`, by id, are what was just inserted and need no look.
    """
    by_account: dict[str, list[str]] = defaultdict(list)
    for account_id, operation_id in keys:
        by_account[account_id].append(operation_id)
    found: dict[Key, Request] = {}
    others: list[str] = []
    for account_id, operations in by_account.items():
        where = {"account_id": account_id, "operation_id": operations}
        for request_id, operation_id in sql.values(Request, ("id", "operation_id"), where):
            if request_id in own:
                found[account_id, operation_id] = own[request_id]
            else:
                others.append(request_id)
    for other in Request.objects.filter(id__in=others) if others else ():
        found[other.account_id, other.operation_id] = other
    return found


def _repeat(item: Submission, stored: Request) -> Admission | Exception:
    if stored.content_sha256 != item.content_sha256:
        return Conflict(
            f"operation {item.operation_id} belongs to another request content",
            code="operation_conflict",
            next_action="Send the original content again, or use a new operation id.",
        )
    return Admission(stored, created=_root(stored.id) == _root(item.request_id))


def _root(request_id: str) -> str:
    return request_id.partition(".")[0]


@requires_transaction
def _hold_in_tx(*, account_id: str, hold: int) -> bool:
    """Reserve `hold` on the account row, locked last; False when the cap would be passed."""
    if hold > NANO_MAX:
        return False
    return sql.execute_in_tx(HOLD, [hold, account_id, hold]) == 1


def _over_cap(mine: list[int], rows: dict[int, Request], accounts: dict[str, Account]) -> list[int]:
    """Hold for each new row of a capped account; those that did not fit, gone again."""
    by_account: dict[str, list[int]] = defaultdict(list)
    for index in mine:
        if accounts[rows[index].account_id].cap_nano is not None:
            by_account[rows[index].account_id].append(index)
    refused = []
    for account_id, held in sorted(by_account.items()):
        total = sum(rows[index].hold_nano for index in held)
        if not _hold_in_tx(account_id=account_id, hold=total):
            # Not all of them fit: in their order, each that fits.
            refused += [
                index
                for index in held
                if len(held) == 1
                or not _hold_in_tx(account_id=account_id, hold=rows[index].hold_nano)
            ]
    if refused:
        # Inserted by this very transaction, so nobody else has seen them.
        refused_ids = [rows[index].id for index in refused]
        Request.objects.filter(id__in=refused_ids).delete()
        Body.objects.filter(request_id__in=refused_ids).delete()
    return refused
