"""Acts about model requests."""

from typing import TYPE_CHECKING, Any

from kernel.audit import Actor
from kernel.models import Request
from kernel.states import Billing, Result
from kernel.usage import Evidence, resolve_pending, resolve_unknown, write_off
from kernel.usage.admission import content_sha256
from tests.support.history_acts import MET, PICK, YES_NO, act_of_a_process, picked
from tests.support.history_outside import PROVIDER, USAGE
from tests.support.product import CHAT, chat_body

if TYPE_CHECKING:
    from tests.support.history_world import World

OLGA = Actor("user", "olga")


def has_operations(world: "World") -> bool:
    return bool(world.operations)


@act_of_a_process(stream=YES_NO, provider=MET[PROVIDER])
def submit(world: "World", *, at: int, stream: bool, provider: str) -> None:
    """A new model request, and what its call meets."""
    world.outside.plan(PROVIDER, provider)
    operation = f"op-{len(world.operations)}"
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    fields: dict[str, Any] = asked if stream else {}
    raw = world.operations[operation] = chat_body(marker=operation, **fields)
    _post(world, at, raw, operation=operation)


@act_of_a_process()
def admit(world: "World", *, at: int) -> None:
    """A new model request that is not to be sent yet."""
    operation = f"op-{len(world.operations)}"
    raw = world.operations[operation] = chat_body(marker=operation)
    body = b'{"dispatch": false, "request": %s}' % raw
    path = "/usage/v1/requests"
    world.call(world.process(at), "POST", path, raw=body, key=operation, document=operation)


@act_of_a_process(has_operations, pick=PICK)
def repeat(world: "World", *, at: int, pick: int) -> None:
    """The same request again."""
    operation, raw = picked(list(world.operations.items()), pick)
    _post(world, at, raw, operation=operation)


@act_of_a_process(has_operations, pick=PICK)
def repeat_otherwise(world: "World", *, at: int, pick: int) -> None:
    """The same key with another body: refused, unless the first was never admitted."""
    operation = picked(list(world.operations), pick)
    _post(world, at, chat_body(marker=operation, temperature=0.5), operation=operation)


def _post(world: "World", at: int, raw: bytes, *, operation: str) -> None:
    about = {
        "operation": operation,
        "content": content_sha256(account_id="acme", path=CHAT, body=raw),
    }
    world.call(world.process(at), "POST", CHAT, raw=raw, key=operation, **about)


@act_of_a_process(has_operations, pick=PICK)
def dispatch(world: "World", *, at: int, pick: int) -> None:
    """Send an admitted request under its identity."""
    operation = picked(list(world.operations), pick)
    path = f"/usage/v1/requests/{operation}/dispatch"
    world.call(world.process(at), "POST", path, dispatched=operation)


@act_of_a_process(has_operations, pick=PICK)
def cancel(world: "World", *, at: int, pick: int) -> None:
    """Cancel a request."""
    operation = picked(list(world.operations), pick)
    path = f"/usage/v1/requests/{operation}/cancel"
    world.call(world.process(at), "POST", path, {"reason": "x"}, document=operation)


@act_of_a_process(has_operations, pick=PICK)
def read(world: "World", *, at: int, pick: int) -> None:
    """Read its state and, apart, its result."""
    operation = picked(list(world.operations), pick)
    path = f"/usage/v1/requests/{operation}"
    world.call(world.process(at), "GET", path, document=operation)
    world.call(world.process(at), "GET", f"{path}/result", result=operation)


def open_ends(world: "World") -> list[dict[str, Any]]:
    return [
        row
        for row in world.facts.sorted("requests")
        if row["result_state"] == "unknown" or row["billing_state"] == "pending"
    ]


@act_of_a_process(open_ends, pick=PICK, how=("done", "not_done", "off"))
def resolve(world: "World", *, at: int, pick: int, how: str) -> None:
    """An operator says what became of an unknown or pending request."""
    row = picked(open_ends(world), pick)
    process = world.process(at)
    with process.here():
        seen = Request.objects.get(id=row["id"])
    values = {"request_id": seen.id, "note": "asked the provider", "actor": OLGA}
    values["seen_updated_at"] = seen.updated_at
    usage = USAGE if how == "done" else None
    evidence = Evidence(executed=how == "done", usage=usage)
    if seen.result_state == Result.UNKNOWN:
        world.verb(process, resolve_unknown, evidence=evidence, **values)
    elif seen.billing_state == Billing.PENDING and how == "done":
        world.verb(process, resolve_pending, evidence=evidence, **values)
    elif seen.billing_state == Billing.PENDING:
        world.verb(process, write_off, **values)
