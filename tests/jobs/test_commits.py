"""Lost acknowledgements in a run: every commit of it is asked again by its fence, nothing twice."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError

from kernel import transactions
from kernel.errors import CommitOutcomeUnknown
from kernel.models import Approval, AuditRow
from tests.support.agent import (
    ASKS,
    asks,
    call,
    calls_of,
    decided,
    ended,
    make_route,
    make_tool,
    says,
    submitted,
    working_kernel,
)
from tests.support.commits import AWAY, LANDED, VANISHED
from tests.support.product import look
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer


@contextlib.contextmanager
def every_other(verbs: set[str], what: str) -> Iterator[list[str]]:
    """Every other transaction of these verbs meets the fault; yields the verbs that did."""
    real, fired, calls = transactions.commit_unit, [], dict.fromkeys(verbs, 0)

    def commit_unit(name: str, attempt: Any, block: Callable[[], Any]) -> Any:
        calls[name] = calls.get(name, 0) + 1
        if name not in verbs or calls[name] % 2 == 0:
            return real(name, attempt, block)
        fired.append(name)
        if what == AWAY:
            raise OperationalError(2006, "Server has gone away")
        if what == LANDED:
            real(name, attempt, block)
        raise CommitOutcomeUnknown(f"nobody acknowledged the commit of {name}")

    with mock.patch.object(transactions, "commit_unit", commit_unit):
        yield fired


@pytest.mark.parametrize("what", [LANDED, VANISHED, AWAY])
async def test_a_run_whose_every_commit_is_unclear_once_does_everything_once(
    shop: ProviderProcess, tool_server: ToolServer, what: str
) -> None:
    await make_tool("look", url=f"{tool_server.url}/look")
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("look", "refund")
    says(shop, calls=[call("look", {"amount": 1}), call("refund", {"amount": 2})])
    says(shop, "Done.")
    async with working_kernel() as kernel:
        with every_other({"guard", "wait", "finish", "release"}, what) as fired:
            job = await submitted(kernel)
            (question,) = await asks(kernel, job.id)
            await decided(kernel, question)
            row = await ended(kernel, job.id)
        calls = await calls_of(kernel, job.id)
        approvals = await look(kernel, lambda: list(Approval.objects.all()))
        done = await look(kernel, AuditRow.objects.filter(action="call.done").count)
    assert {"guard", "wait", "finish"} <= set(fired)
    assert (row.state, [one.state for one in calls]) == ("done", ["done", "done"])
    assert [one.state for one in approvals] == ["consumed"]
    assert (len(tool_server.sent("/look")), len(tool_server.sent("/refunds"))) == (1, 1)
    assert (shop.count(), done) == (2, 2)


@pytest.mark.parametrize("what", [LANDED, VANISHED])
async def test_a_call_given_back_through_an_unclear_commit_counts_one_try(
    shop: ProviderProcess, tool_server: ToolServer, what: str
) -> None:
    await make_tool("refund", url="http://127.0.0.1:9/refunds", policy=ASKS)
    await make_route("refund")
    says(shop, calls=[call("refund", {"amount": 2})])
    says(shop, "It is down.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        (question,) = await asks(kernel, job.id)
        with every_other({"guard", "release"}, what):
            await decided(kernel, question)
            row = await ended(kernel, job.id)
        (made,) = await calls_of(kernel, job.id)
        given_back = await look(kernel, AuditRow.objects.filter(action="approval.given_back").count)
    assert (row.state, made.state, made.error_code) == ("done", "failed", "tool_unreachable")
    assert (made.tries, given_back) == (5, 5)
