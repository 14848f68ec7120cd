"""K2: what must be true after every case, whatever was killed or cut. Checked beside the product.

The provider's file is the truth about calls, rows are read with plain SQL, and what the clients
were answered is compared with what is stored. The database invariants come last.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernel import invariants
from tests.support import messages
from tests.support.provider import ProviderCall

if TYPE_CHECKING:
    from tests.support.house import House


def broken(house: "House") -> list[str]:
    """Every promise that does not hold, as a sentence."""
    # First the calls, then the rows: a kernel that lives may dispatch between the two.
    calls = house.provider.calls()
    requests = {row["operation_id"]: row for row in house.rows("SELECT * FROM bz_usage_requests")}
    return [
        *_identity(house, requests),
        *_calls(house, calls, requests),
        *_results(house, calls, requests),
        *_answers(house, requests),
        *_money(house),
        *_steps(calls, requests),
        *_tool_calls(house),
        *messages.broken(house),
        *_invariants(house),
    ]


def _identity(house: "House", requests: dict[str, Any]) -> Iterator[str]:
    """An operation that was seen once is still there, as the same request."""
    for operation, ids in house.identities.items():
        if operation not in requests:
            yield f"{operation} is gone"
        elif ids != {requests[operation]["id"]}:
            yield f"{operation} was {sorted(ids)} and is {requests[operation]['id']}"


def _calls(house: "House", received: list[ProviderCall], requests: dict[str, Any]) -> Iterator[str]:
    """At most one physical call per operation, under its identity, and only once dispatched."""
    calls = [call for call in received if call.marker.endswith(house.name)]
    for operation, count in Counter(call.marker for call in calls).items():
        if count > 1:
            yield f"{count} provider calls of {operation}"
    for call in calls:
        request_id = requests.get(call.marker, {}).get("id")
        if call.headers.get("idempotency-key") != request_id:
            yield f"a provider call of {call.marker} under another identity than {request_id}"
        if requests.get(call.marker, {}).get("dispatched_at") is None:
            yield f"a provider call of {call.marker}, which is not dispatched"


def _results(house: "House", calls: list[ProviderCall], requests: dict[str, Any]) -> Iterator[str]:
    """A kept result is whole, hashed, and that of the operation's own call."""
    sequences = {call.marker: call.sequence for call in calls}
    for operation, row in requests.items():
        if row["result_state"] != "complete":
            continue
        kept = house.result_bytes(row["id"])
        if hashlib.sha256(kept).hexdigest() != row["result_sha256"]:
            yield f"the kept result of {operation} is not what was hashed"
        if operation in sequences and f"-test-{sequences[operation]}".encode() not in kept:
            yield f"the kept result of {operation} is not that of its call"


def _answers(house: "House", requests: dict[str, Any]) -> Iterator[str]:
    """Every whole 200 of an operation is the same bytes, and they are the kept ones."""
    seen: dict[str, set[str]] = {}
    for operation, answer in house.answers:
        if answer.status == 200 and not answer.lost:
            seen.setdefault(operation, set()).add(hashlib.sha256(answer.body).hexdigest())
    for operation, digests in seen.items():
        if len(digests) > 1:
            yield f"clients of {operation} were answered {len(digests)} different bodies"
        row = requests.get(operation, {})
        # A stream whose usage report the client did not ask for is shown filtered.
        if row and not row["hide_usage"] and digests != {row["result_sha256"]}:
            yield f"a client of {operation} was answered other bytes than are kept"


def _money(house: "House") -> Iterator[str]:
    """At most one ledger row per request, and consumed = sum(ledger) per account."""
    for row in house.rows(
        "SELECT request_id, COUNT(*) AS entries FROM bz_usage_ledger"
        " GROUP BY request_id HAVING COUNT(*) > 1"
    ):
        yield f"{row['entries']} ledger rows of {row['request_id']}"
    # One statement, one moment: a kernel that lives may settle between two.
    for row in house.rows(
        "SELECT a.id, a.consumed_nano, COALESCE(SUM(l.amount_nano), 0) AS total"
        " FROM bz_usage_accounts a LEFT JOIN bz_usage_ledger l ON l.account_id = a.id"
        " GROUP BY a.id, a.consumed_nano HAVING a.consumed_nano <> total"
    ):
        yield f"{row['id']} consumed {row['consumed_nano']}, its ledger says {row['total']}"


def _steps(received: list[ProviderCall], requests: dict[str, Any]) -> Iterator[str]:
    """At most one physical call per model step of a job."""
    steps = {row["id"]: name for name, row in requests.items() if name.startswith("job:")}
    calls = Counter(call.headers.get("idempotency-key") for call in received)
    for request_id, name in steps.items():
        if calls[request_id] > 1:
            yield f"{calls[request_id]} provider calls of {name}"


def _tool_calls(house: "House") -> Iterator[str]:
    """The shop got each call at most once, with the approved bytes, and only once dispatched."""
    sent = house.shop.sent(house.shop_path) if house.shop else []
    rows = house.rows(
        "SELECT t.*, a.state AS grant_state, a.arguments_text AS approved FROM bz_tool_calls t"
        " LEFT JOIN bz_approvals a ON a.id = t.approval_id"
    )
    by_key = {row["idempotency_key"]: row for row in rows}
    for key, count in Counter(call.headers.get("idempotency-key") for call in sent).items():
        if count > 1:
            yield f"the shop got {key} {count} times"
    for call in sent:
        row = by_key.get(call.headers.get("idempotency-key"))
        if row is None or row["state"] == "proposed":
            yield f"the shop got a call that is not dispatched: {call.headers}"
        elif row["approval_id"] and row["grant_state"] != "consumed":
            yield f"the shop got {row['id']}, whose approval is {row['grant_state']}"
        elif row["approval_id"] and call.body != row["approved"]:
            yield f"the shop got other bytes for {row['id']} than were approved"


def _invariants(house: "House") -> Iterator[str]:
    with house.office():
        for report in invariants.check_all():
            if not report.holds:
                yield str(report)
