"""Requests at each point of their life, made by the product's own verbs on the current database.

lives.open_account("acme", cap_nano=10**12)
lives.add_service("gpt")
request = lives.settled("op-1")
"""

import json
from collections.abc import Sequence
from typing import Any

from kernel import audit, usage
from kernel.clock import db_now
from kernel.models import Account, Request, Service
from kernel.states import Billing, Result
from kernel.usage import outcomes
from kernel.usage.admission import Submission
from kernel.usage.dispatch import Fence, order
from kernel.usage.outcomes import Answered
from kernel.usage.results import Outcome, Saved
from kernel.usage.settlement import Settled
from kernel.usage.submissions import submission

ACTOR = audit.Actor("command", "tests")
ACCOUNT, SERVICE, OWNER = "acme", "gpt", "krn_tests"
PATH = "/v1/chat/completions"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
# openai/gpt-4o at $2.50 and $10 per million: 9 x 2500 + 4 x 10000 nano-USD.
CHARGE_NANO = 62_500
CAP_NANO = 1_000_000_000_000


def open_account(account_id: str = ACCOUNT, *, cap_nano: int | None = CAP_NANO) -> Account:
    """An account; with a cap unless None."""
    return usage.create_account(
        account_id=account_id, name=account_id, actor=ACTOR, cap_nano=cap_nano
    )


def add_service(
    service_id: str = SERVICE, *, base_url: str = "http://127.0.0.1:9/v1", **fields: Any
) -> Service:
    """A service priced as openai/gpt-4o; its provider may be a loopback address."""
    values = {
        "model": "answer",
        "price_provider": "openai",
        "price_model": "gpt-4o",
        "max_output_tokens": 1000,
        "allow_private": True,
        **fields,
    }
    return usage.add_service(service_id=service_id, actor=ACTOR, base_url=base_url, **values)


def body(operation_id: str, *, service: str = SERVICE, **fields: Any) -> bytes:
    """A chat completion body. `user` carries the operation id, so that the provider logs it."""
    messages = [{"role": "user", "content": "Hello"}]
    return json.dumps(
        {"model": service, "messages": messages, "user": operation_id, **fields}
    ).encode()


def submit(operation_id: str, *, account: str = ACCOUNT, **fields: Any) -> Submission:
    """What the door makes of such a body, with a request id of its own."""
    raw = body(operation_id, **fields)
    return submission(account_id=account, operation_id=operation_id, path=PATH, raw=raw)


def _one(outcomes_of_verb: Any) -> Any:
    (outcome,) = outcomes_of_verb
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def admitted(operation_id: str, **fields: Any) -> Request:
    """Durable, not sent."""
    request: Request = _one(usage.admit(items=[submit(operation_id, **fields)])).request
    return request


def dispatched(operation_id: str, **fields: Any) -> Fence:
    """Sent, as far as the database knows; the fence is what its owner holds."""
    return dispatch(admitted(operation_id, **fields))


def dispatch(request: Request, *, owner: str = OWNER) -> Fence:
    """The fence of an admitted request. LostRace when it is not admitted any more."""
    fence: Fence = _one(usage.dispatch(items=[order(request_id=request.id, owner=owner)]))
    return fence


def answer_of(fence: Fence, *, status: int = 200, metering: Any = USAGE) -> Outcome:
    """The outcome of a whole plain answer. `metering` None: the provider reported none."""
    message = {"role": "assistant", "content": f"answer to {fence.request_id}"}
    value: dict[str, Any] = {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message}]}
    if status >= 400:
        value = {"error": {"message": "no", "type": "invalid_request_error"}}
    elif metering is not None:
        value["usage"] = metering
    answered = Answered(status, "application/json", json.dumps(value).encode())
    return outcomes.classify(request_id=fence.request_id, fence_token=fence.token, answer=answered)


def lost_answer_of(fence: Fence) -> Outcome:
    """The outcome of a call whose connection broke before an answer."""
    return outcomes.lost(
        request_id=fence.request_id, fence_token=fence.token, code="lost", message="lost"
    )


def save(outcome: Outcome) -> Saved:
    """Save one outcome under its fence."""
    saved: Saved = _one(usage.save_results(items=[outcome]))
    return saved


def settle(request_id: str) -> Settled:
    """Settle one request by its id."""
    settled: Settled = _one(usage.settle(items=[request_id]))
    return settled


def complete(operation_id: str, **fields: Any) -> Request:
    """Answered and saved, not settled."""
    fence = dispatched(operation_id, **fields)
    assert save(answer_of(fence)).result_state == Result.COMPLETE
    return read(fence.request_id)


def complete_many(operation_ids: Sequence[str], **fields: Any) -> list[str]:
    """The ids of that many answered and saved requests, three transactions for all."""
    found = usage.admit(items=[submit(operation_id, **fields) for operation_id in operation_ids])
    requests = [_one([each]).request for each in found]
    orders = [order(request_id=request.id, owner=OWNER) for request in requests]
    fences = [_one([each]) for each in usage.dispatch(items=orders)]
    for saved in usage.save_results(items=[answer_of(fence) for fence in fences]):
        assert _one([saved]).result_state == Result.COMPLETE
    return [request.id for request in requests]


def settled(operation_id: str, **fields: Any) -> Request:
    """Answered, saved and charged CHARGE_NANO."""
    request = complete(operation_id, **fields)
    assert settle(request.id).billing_state == Billing.SETTLED
    return read(request.id)


def rejected(operation_id: str) -> Request:
    """Refused by the provider before any output: nothing owed."""
    fence = dispatched(operation_id)
    assert save(answer_of(fence, status=400)).billing_state == Billing.NOT_CHARGED
    return read(fence.request_id)


def unknown(operation_id: str) -> Request:
    """Sent, the connection broke, the outcome is not known."""
    fence = dispatched(operation_id)
    assert save(lost_answer_of(fence)).result_state == Result.UNKNOWN
    return read(fence.request_id)


def cancelled(operation_id: str) -> Request:
    """Cancelled before dispatch."""
    request = admitted(operation_id)
    usage.cancel(request_id=request.id, actor=ACTOR, reason="not needed")
    return read(request.id)


def resolved(operation_id: str) -> Request:
    """Unknown, then resolved by an operator as not executed."""
    request = unknown(operation_id)
    return usage.resolve_unknown(
        request_id=request.id,
        evidence=usage.Evidence(executed=False),
        note="the provider has no such call",
        actor=ACTOR,
        seen_updated_at=request.updated_at,
    )


def let_lease_end(request_id: str) -> None:
    """Turn the clock of one lease: what waiting for its end would do."""
    Request.objects.filter(id=request_id).update(lease_expires_at=db_now())


def read(request_id: str) -> Request:
    """The row as it is now."""
    return Request.objects.get(id=request_id)
