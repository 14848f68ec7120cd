"""Dispatch and cancel: what may happen to an admitted request (A3, A4, A16).

The dispatch commit is the durable decision to send. Only who finds its own fence confirmed may
send.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from kernel import audit, clock, sql
from kernel.conf import conf
from kernel.errors import Conflict, LostRace, NotFound
from kernel.ids import new_id
from kernel.models import Account, Request, Service
from kernel.sql import update_where_in_tx
from kernel.states import RESULT, Billing, Result
from kernel.transactions import requires_transaction, transaction


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to send one request on its service, once, and to save its result."""

    request_id: str
    owner: str
    token: str
    lease_expires_at: datetime
    service: Service | None  # None: changed since; the holder saves that nothing was sent


@dataclass(frozen=True, slots=True)
class DispatchOrder:
    """Asks for the fence of one admitted request. `token` is made before the commit, once.

    With an `actor` the dispatch is that person's act: audited, with `reason`, in its transaction.
    """

    request_id: str
    owner: str
    token: str
    actor: audit.Actor | None = None
    reason: str = ""


def order(
    *, request_id: str, owner: str, actor: audit.Actor | None = None, reason: str = ""
) -> DispatchOrder:
    """A dispatch order with a fresh fence token."""
    return DispatchOrder(request_id, owner, new_id("fnc"), actor, reason)


@transaction
def dispatch(*, items: Sequence[DispatchOrder]) -> list[Fence | Exception]:
    """Move admitted requests to dispatched under their fences, before any byte leaves (A4).

    An outcome is the Fence, or LostRace when the request is not admitted any more, or Conflict
    `service_changed` when the service was changed or retired since admission. AlreadyDone fails the
    batch; its items then run one by one.
    """
    now = clock.db_now()
    lease = now + timedelta(seconds=conf.dispatch_lease_seconds)
    routes = _routes([item.request_id for item in items])
    outcomes: list[Fence | Exception] = []
    for item in items:
        service = routes.get(item.request_id)
        if service is None:
            outcomes.append(
                Conflict(
                    "The service was changed after this request was admitted.",
                    code="service_changed",
                    next_action="Cancel this request and submit a new one.",
                )
            )
            continue
        moved = update_where_in_tx(
            Request,
            {
                "result_state": Result.DISPATCHED,
                "owner": item.owner,
                "fence_token": item.token,
                "lease_expires_at": lease,
                "dispatched_at": now,
                "updated_at": now,
            },
            "id = %s AND result_state = %s",
            [item.request_id, Result.ADMITTED],
        )
        if moved != 1:
            outcomes.append(_not_admitted())
            continue
        if item.actor is not None:
            audit.append_in_tx(
                actor=item.actor,
                action="request.dispatch",
                kind="request",
                object_id=item.request_id,
                before={"result_state": Result.ADMITTED},
                after={"result_state": Result.DISPATCHED},
                reason=item.reason,
            )
        outcomes.append(Fence(item.request_id, item.owner, item.token, lease, service))
    return outcomes


@transaction
def confirm_dispatch(*, items: Sequence[DispatchOrder]) -> list[Fence | Exception]:
    """After a lost acknowledgement: read again under the own fence (A4).

    The lock waits for a commit that is still under way. Where none landed, the request is still
    admitted and this transaction decides anew, under the same token; only what it confirms is sent.
    """
    rows = Request.objects.select_for_update().filter(id__in=[item.request_id for item in items])
    states = {row.id: (row.fence_token, row.result_state, row.lease_expires_at) for row in rows}
    routes = _routes(list(states))
    outcomes: list[Fence | Exception] = []
    for item in items:
        token, state, lease = states.get(item.request_id, ("", "", None))
        if (token, state) == (item.token, Result.DISPATCHED) and lease is not None:
            service = routes.get(item.request_id)
            outcomes.append(Fence(item.request_id, item.owner, item.token, lease, service))
        else:
            outcomes += dispatch.transaction(items=[item])  # type: ignore[attr-defined]  # set by @transaction
    return outcomes


@transaction
def cancel(
    *,
    request_id: str,
    actor: audit.Actor,
    reason: str = "",
    seen_updated_at: datetime | None = None,
) -> str:
    """Cancel an admitted or dispatched request; returns its new billing state (A3, A7, A16).

    Before dispatch nothing is owed and the hold is released. After it, the call goes on unheard:
    what it used is recorded and charged. LostRace when the request has ended, or changed since
    `seen_updated_at`; NotFound when there is none.
    """
    row = Request.objects.select_for_update().filter(id=request_id).first()
    # After the lock: a dispatch that was waited for must not look later than this.
    now = clock.db_now()
    if row is None:
        raise NotFound(f"no request {request_id}")
    if seen_updated_at is not None and row.updated_at != seen_updated_at:
        raise LostRace(
            f"request {request_id} changed; it is {row.result_state} now",
            result_state=row.result_state,
            billing_state=row.billing_state,
        )
    if row.result_state == Result.CANCELLED:
        return row.billing_state
    if row.result_state not in RESULT.moves_to(Result.CANCELLED):
        raise LostRace(
            f"request {request_id} is {row.result_state}; it cannot be cancelled any more",
            state=row.result_state,
        )
    before_dispatch = row.result_state == Result.ADMITTED
    billing = Billing.NOT_CHARGED if before_dispatch else Billing.PENDING
    moved = Request.objects.filter(id=request_id, result_state=row.result_state).update(
        result_state=Result.CANCELLED,
        billing_state=billing,
        pending_reason="cancelled" if before_dispatch else "no_usage",
        result_at=now,
        updated_at=now,
    )
    if moved != 1:
        raise LostRace(f"request {request_id} changed meanwhile")
    audit.append_in_tx(
        actor=actor,
        action="request.cancel",
        kind="request",
        object_id=request_id,
        before={"result_state": row.result_state},
        after={"result_state": Result.CANCELLED, "billing_state": billing},
        reason=reason,
    )
    if before_dispatch:
        release_holds_in_tx(requests=[row])
    return billing


@requires_transaction
def release_holds_in_tx(*, requests: Sequence[Request]) -> None:
    """Give the holds of ended requests back to their accounts, which are locked last, by id."""
    sums: dict[str, int] = defaultdict(int)
    for row in requests:
        sums[row.account_id] += row.hold_nano
    for account_id in sorted(sums):
        if sums[account_id]:
            Account.objects.filter(id=account_id).update(
                held_nano=F("held_nano") - sums[account_id]
            )


def _not_admitted() -> LostRace:
    return LostRace("The request is not waiting for dispatch any more.", code="not_admitted")


def _routes(request_ids: Sequence[str]) -> dict[str, Service]:
    """The service of each request, where it is still the one the request was admitted for."""
    columns = ("id", "service_id", "service_version")
    rows = sql.values(Request, columns, {"id": request_ids})
    named = {service_id for _, service_id, _ in rows}
    services = {service.id: service for service in sql.rows(Service, {"id": named})}
    return {
        request_id: service
        for request_id, service_id, version in rows
        if (service := services.get(service_id)) and service.version == version and service.active
    }
