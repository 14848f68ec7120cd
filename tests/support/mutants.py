"""Seeded mutants: plausible mistakes, made in a kernel child before its kernel exists.

Each must be killed by a case of the proof, or the proof proves nothing. `MUTANTS` names them; the
cases that kill them are in tests/crash/test_mutants.py.
"""

import contextlib
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db import DatabaseError, OperationalError, connection
from django.db.models import Model

from kernel import sql, transactions
from kernel.errors import CommitOutcomeUnknown, OutcomeUnknown
from kernel.models import Request
from kernel.sql import update_where_in_tx
from kernel.states import Billing, Result
from kernel.usage import admission, gateway, providers, recovery, results, settlement
from kernel.usage.bodies import read_body
from kernel.usage.catalog import get_service
from kernel.usage.dispatch import Fence
from kernel.usage.metering import Metering

# kernel.usage gives its verb of this name out, in place of the module.
dispatching = sys.modules["kernel.usage.dispatch"]

MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(function: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[function.__name__] = function
    return function


@mutant
def select_then_insert_admission() -> None:
    """Look for the operation first, insert only when it is not there (against A2)."""
    real = admission.insert_rows_in_tx

    def insert(rows: Any, *, unless_taken: tuple[str, ...] = ()) -> None:
        def is_new(row: Any) -> bool:
            key = {name: getattr(row, name) for name in unless_taken}
            return not type(row).objects.filter(**key).exists()

        real([row for row in rows if is_new(row)])

    admission.insert_rows_in_tx = insert


@mutant
def provider_before_dispatch() -> None:
    """Call the provider first, commit the decision to do so afterwards (against A4)."""
    run, call = gateway.Gateway._run, gateway.Gateway._call
    early: dict[str, Any] = {}

    async def run_late(self: Any, flight: Any, asked: Any, *, raw: bytes | None) -> None:
        request = flight.request
        if raw is None:
            raw = await self._database.in_tx(read_body, request_id=request.id, kind="request")
        service = await self._database.in_tx(get_service, service_id=request.service_id)
        flight.fence = Fence(request.id, self.owner, asked.token, datetime.now(UTC), service)
        early[request.id] = await call(self, flight, raw=raw or b"", lease_ends=math.inf)
        await run(self, flight, asked, raw=raw)

    async def answer_had_before(self: Any, flight: Any, **how: Any) -> Any:
        return early.pop(flight.request.id)

    gateway.Gateway._run = run_late
    gateway.Gateway._call = answer_had_before


@mutant
def blind_save_of_the_result() -> None:
    """Save a result whatever state the request is in by now (against A6)."""

    def move(item: results.Outcome, now: datetime) -> bool:
        columns = results._columns(item, now)
        return update_where_in_tx(Request, columns, "id = %s", [item.request_id]) == 1

    results._move = move


@mutant
def lost_acknowledgement_is_a_rollback() -> None:
    """Take 2013 at COMMIT for a rollback, and run the block again (against A2, A4)."""
    real = transactions.commit_unit

    def commit_unit(name: str, attempt: Any, block: Callable[[], Any]) -> Any:
        try:
            return real(name, attempt, block)
        except CommitOutcomeUnknown as error:
            raise OperationalError(2013, "Lost connection to server during query") from error

    transactions.commit_unit = commit_unit


@mutant
def settlement_that_looks_before_it_charges() -> None:
    """Charge what was pending when it was read: no lock, no unique row, no second look (A14)."""
    with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE bz_usage_ledger DROP INDEX charge_of")
    connection.close()
    settlement.locked_values_in_tx = sql.values

    def post(*, charges: Any) -> None:
        for charge in charges:
            ledger = charge.ledger
            ledger.save(force_insert=True)
            Request.objects.filter(id=ledger.request_id).update(
                billing_state=Billing.SETTLED,
                pending_reason="",
                billed_nano=ledger.amount_nano,
                reference_nano=ledger.reference_nano,
                settled_at=ledger.created_at,
                updated_at=ledger.created_at,
            )
            settlement.consume_in_tx(
                account_id=ledger.account_id,
                amount=ledger.amount_nano,
                release=charge.request.hold_nano,
                now=ledger.created_at,
            )

    settlement.post_charges_in_tx = post


@mutant
def missing_metering_is_zero() -> None:
    """Where the provider reported no usage, charge zero tokens (against A11)."""
    real = gateway.outcomes.classify

    def classify(**facts: Any) -> results.Outcome:
        outcome = real(**facts)
        if (outcome.billing_state, outcome.pending_reason) != (Billing.PENDING, "no_usage"):
            return outcome
        nothing = Metering({"input": 0, "output": 0}).to_text()
        return replace(outcome, usage_text=nothing, pending_reason="")

    gateway.outcomes.classify = classify


@mutant
def provider_call_is_retried() -> None:
    """Call again when the connection broke before an answer (against A5)."""
    real = providers.send

    async def send(**how: Any) -> Any:
        try:
            return await real(**how)
        except OutcomeUnknown:
            return await real(**how)

    providers.send = send


@mutant
def dispatch_without_fence() -> None:
    """Whoever found the request admitted sends it: no compare-and-set (against A4)."""

    def update(model: type[Model], columns: Any, _where: str, values: Any) -> int:
        update_where_in_tx(model, columns, "id = %s", values[:1])
        return 1

    dispatching.update_where_in_tx = update


@mutant
def unknown_is_dispatched_again() -> None:
    """Take a request whose process died for one that was never sent (against A9)."""

    def admitted_again(now: datetime) -> dict[str, Any]:
        return {
            "result_state": Result.ADMITTED,
            "owner": "",
            "fence_token": "",
            "lease_expires_at": None,
            "dispatched_at": None,
            "updated_at": now,
        }

    recovery._unknown = admitted_again


@mutant
def ids_that_merge_case() -> None:
    """Leave the column of operation ids to the collation of the server (against A1)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE bz_usage_requests MODIFY operation_id VARCHAR(128)"
            " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
        )
    connection.close()


@mutant
def swallowed_deadlock() -> None:
    """Go on after 1213: a hold is only a reservation (against B5 and A15)."""
    real = admission._hold_in_tx

    def hold_in_tx(**how: Any) -> bool:
        try:
            return real(**how)
        except OperationalError as error:
            if error.args[0] != 1213:
                raise
            return True

    admission._hold_in_tx = hold_in_tx
