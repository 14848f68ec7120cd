"""Flows of model requests: sent, streamed, admitted first, cancelled, read again, settled."""

import asyncio
import http.client
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kernel import usage
from tests.support import lives
from tests.support.sweep_flow import PROVIDER, Flow, prepare_account

if TYPE_CHECKING:
    from tests.support.sweep import Scene
    from tests.support.sweep_child import Hand

OP, OTHER = "op-sweep", "other-sweep"
REQUESTS = "/usage/v1/requests"
EXECUTED = usage.Evidence(executed=True, usage=lives.USAGE)


# --- one request ----------------------------------------------------------------------------------


async def post(hand: "Hand") -> None:
    """One request."""
    await hand.post(OP)


async def post_again(hand: "Hand", **fields: Any) -> None:
    """The repeat; what was not sent is dispatched by name, then asked for again."""
    answer = await hand.post(OP, **fields)
    if answer.code == "not_dispatched":
        await hand.call(f"{REQUESTS}/{OP}/dispatch", b"{}")
    await hand.post(OP, **fields)
    await hand.post(OP, **fields)


def answered(scene: "Scene") -> Iterator[str]:
    """The last repeats agree: the saved bytes, or that nobody knows; never anything else."""
    last = [answer for operation, answer in scene.answers if operation == OP][-2:]
    words = {(answer.status, answer.code) for answer in last}
    if len(words) != 1 or not words <= {(200, ""), (502, "outcome_unknown")}:
        yield f"the last repeats were answered {sorted(words)}"
    if (502, "outcome_unknown") in words and not scene.may_be("model"):
        yield "the outcome is unknown, though nothing was lost between dispatch and result"


async def stream(hand: "Hand") -> None:
    """One request that streams."""
    await hand.post(OP, stream=True)


async def stream_again(hand: "Hand") -> None:
    """Its repeat."""
    await post_again(hand, stream=True)


async def create(hand: "Hand", *, dispatch: bool, headers: dict[str, str] | None = None) -> None:
    """Admit, with the same bytes as a chat completion."""
    begin = json.dumps({"operation_id": OP, "dispatch": dispatch})[:-1]
    raw = f'{begin}, "request": {lives.body(OP).decode()}}}'.encode()
    await hand.call(REQUESTS, raw, headers=headers)


async def admit_then_dispatch(hand: "Hand") -> None:
    """Admitted first, sent by name later."""
    await create(hand, dispatch=False)
    await hand.call(f"{REQUESTS}/{OP}/dispatch", b"{}")


async def admit_then_dispatch_again(hand: "Hand") -> None:
    """Both calls again, then what it came to."""
    await admit_then_dispatch(hand)
    await post_again(hand)


# --- cancelled ------------------------------------------------------------------------------------


async def cancel(hand: "Hand") -> None:
    """Admitted, and cancelled before anybody sent it."""
    await create(hand, dispatch=False)
    await hand.call(f"{REQUESTS}/{OP}/cancel", b"{}")


def is_cancelled(scene: "Scene") -> Iterator[str]:
    """Cancelled, nothing owed, nothing held, nobody called."""
    yield from expect(scene, OP, ("cancelled", "not_charged"))
    if scene.provider.calls():
        yield "the provider was called for what was cancelled"
    yield from nothing_held(scene)


async def cancel_running(hand: "Hand") -> None:
    """Cancelled while the provider works; then the provider answers."""
    await create(hand, dispatch=True, headers={"Prefer": "respond-async"})
    await hand.call(f"{REQUESTS}/{OP}/cancel", b"{}")
    await asyncio.to_thread(_release, hand.facts["provider_url"])


async def cancel_running_again(hand: "Hand") -> None:
    """Its caller cancels again."""
    await create(hand, dispatch=False)
    await hand.call(f"{REQUESTS}/{OP}/cancel", b"{}")
    await hand.call(f"{REQUESTS}/{OP}")


def ended_somehow(scene: "Scene") -> Iterator[str]:
    """Cancelled; unknown at most where the fault stood between dispatch and result."""
    (row,) = scene.rows("SELECT * FROM bz_usage_requests WHERE operation_id = %s", OP)
    allowed = {"cancelled"} | ({"unknown", "complete"} if scene.boundary else set())
    if row["result_state"] not in allowed:
        yield f"{OP} is {row['result_state']}"


def _release(url: str) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    try:
        connection.request("POST", "/release", "{}")
        assert connection.getresponse().status == 200
    finally:
        connection.close()


# --- read again, settled, resolved ----------------------------------------------------------------


def prepared(*makes: Callable[[], Any]) -> Callable[["Hand"], Any]:
    """A prepare: the account, then these verbs."""

    async def prepare(hand: "Hand") -> None:
        await prepare_account(hand)
        for make in makes:
            await hand.db(make)

    return prepare


def left_by_a_dead_owner() -> None:
    """A dispatched request whose lease has ended."""
    lives.let_lease_end(lives.dispatched(OTHER).request_id)


async def read_again(hand: "Hand") -> None:
    """Two repeats of what is saved, its bytes, and a repeat of what nobody knows."""
    await hand.post(OP)
    await hand.post(OP)
    await hand.call(f"{REQUESTS}/{OP}/result")
    await hand.post(OTHER)


def is_read(scene: "Scene") -> Iterator[str]:
    """Every answer came from what is kept."""
    for operation, answer in scene.answers:
        expected = (200, "") if operation == OP else (502, "outcome_unknown")
        if answer.status != 503 and (answer.status, answer.code) != expected:
            yield f"{operation} was answered {answer.status} {answer.code}"
    if scene.provider.calls():
        yield "a repeat reached the provider"
    yield from expect(scene, OP, ("complete", "settled"))
    yield from expect(scene, OTHER, ("unknown", "pending"))


def owes_without_metering(operation: str) -> Callable[[], None]:
    """A saved answer that did not say what it used."""

    def make() -> None:
        lives.save(lives.answer_of(lives.dispatched(operation), metering=None))

    return make


def owes_three() -> None:
    """Three saved answers that are not settled."""
    lives.complete_many(["page-1", "page-2", "page-3"])


async def settle(hand: "Hand") -> None:
    """A settlement pass."""
    await hand.passes("settlement")


def is_settled(scene: "Scene") -> Iterator[str]:
    """Three charges; what has no metering waits."""
    for name in ("page-1", "page-2", "page-3"):
        yield from expect(scene, name, ("complete", "settled"))
    yield from expect(scene, OTHER, ("complete", "pending"))
    if len(scene.rows("SELECT id FROM bz_usage_ledger")) != 3:
        yield "there are not three charges"


def known(operation: str) -> Any:
    """The request as an operator sees it now."""
    return usage.get_request(account_id=lives.ACCOUNT, operation_id=operation)


async def resolve(hand: "Hand", verb: Any, operation: str, **how: Any) -> None:
    """An operator resolves a request as they see it now."""
    row = await hand.db(known, operation=operation)
    seen = {"request_id": row.id, "seen_updated_at": row.updated_at, "actor": lives.ACTOR}
    await hand.tried(verb, note="looked into the books", **seen, **how)


async def resolve_unknown(hand: "Hand") -> None:
    """One was executed, one was not."""
    await resolve(hand, usage.resolve_unknown, OP, evidence=EXECUTED)
    not_executed = usage.Evidence(executed=False)
    await resolve(hand, usage.resolve_unknown, OTHER, evidence=not_executed)


def unknown_is_resolved(scene: "Scene") -> Iterator[str]:
    """Charged once, or not at all; nothing is held."""
    yield from expect(scene, OP, ("failed", "settled"))
    yield from expect(scene, OTHER, ("failed", "not_charged"))
    yield from one_charge(scene)


async def resolve_pending(hand: "Hand") -> None:
    """One gets its metering, one is written off."""
    await resolve(hand, usage.resolve_pending, OP, evidence=EXECUTED)
    await resolve(hand, usage.write_off, OTHER)


def pending_is_resolved(scene: "Scene") -> Iterator[str]:
    """Charged once, or written off; nothing is held."""
    yield from expect(scene, OP, ("complete", "settled"))
    yield from expect(scene, OTHER, ("complete", "not_charged"))
    yield from one_charge(scene)


def expect(scene: "Scene", operation: str, states: tuple[str, str]) -> Iterator[str]:
    """The states of a request, as a sentence where they are others."""
    rows = scene.rows("SELECT * FROM bz_usage_requests WHERE operation_id = %s", operation)
    found = [(row["result_state"], row["billing_state"]) for row in rows]
    if found != [states]:
        yield f"{operation} is {found}, not {states}"


def one_charge(scene: "Scene") -> Iterator[str]:
    """One ledger row, its amount, nothing held."""
    amounts = [row["amount_nano"] for row in scene.rows("SELECT * FROM bz_usage_ledger")]
    if amounts != [lives.CHARGE_NANO]:
        yield f"the charges are {amounts}"
    yield from nothing_held(scene)


def nothing_held(scene: "Scene") -> Iterator[str]:
    """The account holds nothing."""
    (account,) = scene.rows("SELECT * FROM bz_usage_accounts WHERE id = %s", lives.ACCOUNT)
    if account["held_nano"]:
        yield f"{account['held_nano']} nano-USD are still held"


USAGE = (
    Flow("plain", 11, act=post, again=post_again, prepare=prepare_account, check=answered),
    Flow("streamed", 12, act=stream, again=stream_again, prepare=prepare_account, check=answered),
    Flow(
        "admitted first",
        12,
        prepare=prepare_account,
        act=admit_then_dispatch,
        again=admit_then_dispatch_again,
        check=answered,
    ),
    Flow("cancelled", 6, prepare=prepare_account, act=cancel, again=cancel, check=is_cancelled),
    Flow(
        "cancelled while it ran",
        16,
        prepare=prepare_account,
        act=cancel_running,
        again=cancel_running_again,
        says=((PROVIDER, "hold", {}),),
        check=ended_somehow,
    ),
    Flow(
        "read again",
        12,
        prepare=prepared(lambda: lives.settled(OP), left_by_a_dead_owner),
        act=read_again,
        again=read_again,
        check=is_read,
    ),
    Flow(
        "settled by a page",
        4,
        prepare=prepared(owes_three, owes_without_metering(OTHER)),
        act=settle,
        again=settle,
        check=is_settled,
    ),
    Flow(
        "unknown resolved",
        4,
        prepare=prepared(lambda: lives.unknown(OP), lambda: lives.unknown(OTHER)),
        act=resolve_unknown,
        again=resolve_unknown,
        check=unknown_is_resolved,
    ),
    Flow(
        "pending resolved",
        4,
        prepare=prepared(owes_without_metering(OP), owes_without_metering(OTHER)),
        act=resolve_pending,
        again=resolve_pending,
        check=pending_is_resolved,
    ),
)
