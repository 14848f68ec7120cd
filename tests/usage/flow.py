"""A request through its verbs, without a provider: admitted, dispatched, answered, settled."""

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection

from kernel import usage
from kernel.models import Request
from kernel.usage.admission import Admission, Submission
from kernel.usage.bodies import read_body
from kernel.usage.dispatch import Fence, dispatch, order
from kernel.usage.outcomes import Answered, classify
from kernel.usage.results import Outcome, Saved, save_results
from tests.support.product import admitted, ask, reread

OWNER = "krn-test"
# With the rates of openai/gpt-4o (2.5 and 10 USD per million): 9 x 2500 + 4 x 10000 nano-USD.
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
CHARGE_NANO = 62_500


def body_with(usage_object: object = None, **more: Any) -> bytes:
    """A whole plain answer."""
    message = {"role": "assistant", "content": "Hallo"}
    value: dict[str, Any] = {
        "id": "chatcmpl-213",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        **more,
    }
    if usage_object is not None:
        value["usage"] = usage_object
    return json.dumps(value).encode()


def admit_all(*items: Submission) -> list[Admission | Exception]:
    return usage.admit(items=list(items))


def dispatched(item: Submission | str = "op-1", **fields: Any) -> Fence:
    """Admit and dispatch one request; raises what refused it."""
    row = admitted(ask(item, **fields) if isinstance(item, str) else item)
    (fence,) = dispatch(items=[order(request_id=row.id, owner=OWNER)])
    if isinstance(fence, Exception):
        raise fence
    return fence


def outcome_of(
    fence: Fence, *, status: int = 200, body: bytes | None = None, **more: Any
) -> Outcome:
    """The outcome of a plain answer; without `body`, a complete one with USAGE."""
    answer = Answered(
        status=status,
        content_type="application/json",
        body=body_with(USAGE) if body is None else body,
        **more,
    )
    return classify(request_id=fence.request_id, fence_token=fence.token, answer=answer)


def saved(outcome: Outcome) -> Saved:
    (found,) = save_results(items=[outcome])
    if isinstance(found, Exception):
        raise found
    return found


def answered(item: Submission | str = "op-1", *, body: bytes | None = None, **fields: Any) -> str:
    """Through to the saved result; returns the request id. Billing is pending."""
    fence = dispatched(item, **fields)
    assert saved(outcome_of(fence, body=body)).applied
    return fence.request_id


def row_of(request_id: str) -> Request:
    return Request.objects.get(id=request_id)


def states(row: Request | str) -> tuple[str, str, str]:
    """Result state, billing state and pending reason, as stored now."""
    found = row_of(row) if isinstance(row, str) else reread(row)
    return found.result_state, found.billing_state, found.pending_reason


def the_request() -> Request:
    """The only request there is."""
    return Request.objects.get()


def states_now() -> tuple[str, str, str]:
    return states(the_request())


def result_of(row: Request) -> bytes | None:
    """The saved result bytes."""
    return read_body(request_id=row.id, kind="result")


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Run each in its own thread with its own connection, started together; outcomes in order."""
    start = threading.Barrier(len(works))
    outcomes: list[Any] = [None] * len(works)

    def run(index: int, work: Callable[[], Any]) -> None:
        try:
            start.wait(timeout=10)
            outcomes[index] = work()
        except Exception as error:
            outcomes[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


class Statements:
    """Listens to the SQL of this thread: `with connection.execute_wrapper(statements)`."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, execute: Any, sql: str, params: Sequence[Any], many: bool, ctx: Any) -> Any:
        self.texts.append(sql)
        return execute(sql, params, many, ctx)

    def touching(self, table: str, *, verb: str = "") -> list[str]:
        return [text for text in self.texts if table in text and text.startswith(verb)]
