"""What clients were told: an answer, once given, stays possible for good."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Any

from tests.support.history_outside import REFUSED, Call
from tests.support.history_process import Exchange

if TYPE_CHECKING:
    from tests.support.history_world import World

Rows = dict[str, dict[Any, dict[str, Any]]]
# What a POST may be answered beside 200; anything else is a defect.
ALLOWED = {
    "in_flight": {"dispatched", "complete", "failed", "unknown", "cancelled"},
    "not_dispatched": {"admitted", "dispatched", "complete", "failed", "unknown", "cancelled"},
    "outcome_unknown": {"unknown", "complete", "failed"},
    "cancelled": {"cancelled"},
}
# What says nothing about the operation: it may be asked again.
SAYS_NOTHING = {"unavailable", "commit_outcome_unknown", "closing", "contention", "not_admitted"}
# What may follow each result state: an answer may name one that the row has left since.
LATER = {
    "admitted": {"dispatched", "complete", "failed", "unknown", "cancelled"},
    "dispatched": {"complete", "failed", "unknown", "cancelled"},
    "unknown": {"complete", "failed"},
}


def contradictions(world: "World", now: Rows) -> Iterator[str]:
    """Every answer that cannot be true any more."""
    requests = {row["operation_id"]: row for row in now["requests"].values()}
    ids: dict[str, set[str]] = defaultdict(set)
    firsts: Counter[str] = Counter()
    for exchange in world.exchanges:
        if not exchange.is_whole:
            continue
        if exchange.status >= 500 and code_of(exchange) == "internal":
            yield f"{exchange.method} {exchange.path} met a defect: {exchange.body[:200]!r}"
        yield from _about_requests(exchange, requests)
        yield from _about_work(exchange, now)
        operation = exchange.about.get("operation")
        if exchange.status == 200 and exchange.headers.get("idempotent-replayed") == "false":
            firsts[operation or ""] += operation is not None
        if request_id := exchange.headers.get("bailing-request-id"):
            ids[exchange.headers["bailing-operation-id"]].add(request_id)
    for operation, seen in ids.items():
        row = requests.get(operation)
        if row is None or seen != {row["id"]}:
            yield f"{operation} was {sorted(seen)} and is {row and row['id']}"
    for operation, count in firsts.items():
        if count > 1:
            yield f"{operation} was answered {count} times as if it were the first"


def _about_requests(exchange: Exchange, requests: dict[str, Any]) -> Iterator[str]:
    about = exchange.about
    if operation := about.get("operation"):
        yield from _submission(exchange, operation, requests.get(operation))
    elif operation := about.get("dispatched"):
        # Where it was sent before, a dispatch is answered as a repeat is.
        is_document = b'"result_state"' in exchange.body
        judge = _document if is_document else _generation
        if exchange.status != 404:
            yield from judge(exchange, operation, requests.get(operation))
    elif operation := about.get("document"):
        yield from _document(exchange, operation, requests.get(operation))
    elif operation := about.get("result"):
        yield from _result(exchange, operation, requests.get(operation))


def _submission(exchange: Exchange, operation: str, row: dict[str, Any] | None) -> Iterator[str]:
    """A key belongs to the content that was admitted first; every other one is a conflict."""
    code = code_of(exchange)
    if code in SAYS_NOTHING:
        return
    is_conflict = code == "operation_conflict"
    is_ours = row is not None and row["content_sha256"] == exchange.about["content"]
    if is_conflict == is_ours:
        yield f"{operation} was answered {exchange.status} {code}, against its content"
    elif not is_conflict:
        yield from _generation(exchange, operation, row)


def _about_work(exchange: Exchange, now: Rows) -> Iterator[str]:
    about = exchange.about
    if name := about.get("job"):
        yield from _work(exchange, name, now["jobs"].get(_value(exchange, "job_id")))
    elif name := about.get("message"):
        row = now["notifications"].get(_value(exchange, "notification_id"))
        yield from _work(exchange, name, row)
    elif letter_id := about.get("letter"):
        yield from _replay(exchange, letter_id, now)
    elif decision := about.get("decision"):
        yield from _decision(exchange, decision, now["approvals"].get(decision[0]))


def _generation(exchange: Exchange, operation: str, row: dict[str, Any] | None) -> Iterator[str]:
    state, code = row["result_state"] if row else "gone", code_of(exchange)
    if exchange.status == 200:
        is_cut = b'"error"' in exchange.body
        if state != "complete" and not is_cut:
            yield f"{operation} was answered 200 and is {state}"
        elif not is_cut and row and digest(exchange) != row["result_sha256"]:
            yield f"{operation} was answered other bytes than are kept"
    elif code in SAYS_NOTHING:
        return
    elif exchange.headers.get("bailing-result-state") == "failed":
        if state != "failed":
            yield f"{operation} was answered as failed and is {state}"
    elif code == "response_expired":
        if row is None or row["purged_at"] is None:
            yield f"{operation} was answered 410 and is not purged"
    elif state not in ALLOWED.get(code, set()):
        yield f"{operation} was answered {exchange.status} {code} and is {state}"


def _document(exchange: Exchange, operation: str, row: dict[str, Any] | None) -> Iterator[str]:
    if exchange.status not in (200, 201, 202):
        return
    value = json.loads(exchange.body)
    said = value.get("result_state")
    if said is None:
        return
    state = row["result_state"] if row else "gone"
    if state != said and state not in LATER.get(said, set()):
        yield f"{operation} was said to be {said} and is {state}"
    is_final = value["billing_state"] in ("settled", "not_charged")
    if is_final and row and row["billing_state"] != value["billing_state"]:
        yield f"{operation} was {value['billing_state']} and is {row['billing_state']}"


def _result(exchange: Exchange, operation: str, row: dict[str, Any] | None) -> Iterator[str]:
    if exchange.status == 200 and (row is None or digest(exchange) != row["result_sha256"]):
        yield f"the result of {operation} was read, and other bytes are kept"


def _work(exchange: Exchange, name: str, row: dict[str, Any] | None) -> Iterator[str]:
    """A job or message that was accepted is there, under its caller's id."""
    if exchange.status in (200, 201) and (row is None or row["request_id"] != name):
        yield f"{name} was accepted and is not there"


def _replay(exchange: Exchange, letter_id: str, now: Rows) -> Iterator[str]:
    """A dead letter that was admitted has its one new notification."""
    again = [row["id"] for row in now["notifications"].values() if row["replay_of_id"] == letter_id]
    if len(again) > 1:
        yield f"{letter_id} was admitted {len(again)} times"
    if exchange.status == 200 and [_value(exchange, "notification_id")] != again:
        yield f"{letter_id} was said to be queued and is not there"


def _decision(
    exchange: Exchange, decision: tuple[str, str, str], row: dict[str, Any] | None
) -> Iterator[str]:
    """A decision that was answered as recorded is the one that stands."""
    _, word, decision_id = decision
    recorded = exchange.status == 200 or _value(exchange, "decision_recorded")
    if not recorded:
        return
    if row is None or (row["decision"], row["decision_id"]) != (word, decision_id):
        yield f"decision {decision} was recorded, and another one stands"


def _value(exchange: Exchange, name: str) -> Any:
    try:
        return json.loads(exchange.body).get(name)
    except (ValueError, AttributeError):
        return None


def messages(received: list[Call], now: Rows, *, purged: Set[str]) -> Iterator[str]:
    """What arrived was published, and is counted by its attempts; what is delivered arrived.

    Of the `purged` the attempts are gone.
    """
    letters = {row["id"]: row["notification_id"] for row in now["letters"].values()}
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in now["notifications"].values():
        first = row
        while first["replay_of_id"]:
            first = now["notifications"][letters[first["replay_of_id"]]]
        lines[first["id"]].append(row)
    arrived: dict[str, list[Call]] = defaultdict(list)
    for call in received:
        arrived[call.key].append(call)
    for key in arrived:
        if key not in lines:
            yield f"the receiver got {key}, which nobody published"
    for key, line in lines.items():
        ours = {row["id"] for row in line}
        if ours & purged:
            continue
        outcomes = [
            row["outcome"] for row in now["attempts"].values() if row["notification_id"] in ours
        ]
        yield from _line(key, line, arrived[key], outcomes)


def _line(
    key: str, line: list[dict[str, Any]], calls: list[Call], outcomes: list[str]
) -> Iterator[str]:
    delivered, unknown = outcomes.count("delivered"), outcomes.count("unknown")
    refusals = sum(call.met in (REFUSED, "gone") for call in calls)
    taken = len(calls) - refusals
    if taken > delivered + unknown:
        yield f"{key} was taken {taken} times; its attempts: {outcomes}"
    if len(calls) > delivered + unknown + outcomes.count("refused"):
        yield f"{key} arrived {len(calls)} times; its attempts: {outcomes}"
    if taken < delivered:
        yield f"{key} is delivered {delivered} times and arrived {taken} times"
    if delivered > 1:
        yield f"{key} was sent again after it was delivered"
    shown = sum(row["unknown_attempts"] for row in line)
    if shown != unknown:
        yield f"{key} may have arrived {unknown} times more, and shows {shown}"
    for call in calls:
        if call.body != bytes(line[0]["content"]):
            yield f"{key} arrived with other bytes than are kept"


def code_of(exchange: Exchange) -> str:
    """The code of an error; '' where there is none."""
    try:
        return str(json.loads(exchange.body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def digest(exchange: Exchange) -> str:
    return hashlib.sha256(exchange.body).hexdigest()


def keys(text: str | None) -> list[str]:
    """The markers of a job."""
    return list(json.loads(text or "[]"))
