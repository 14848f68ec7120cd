"""A worker that sleeps between its promise to call a tool and the call (D1, D3; case of A9)."""

import time

import pytest

from kernel import clock
from kernel.conf import conf
from kernel.jobs import journal
from kernel.models import Job
from kernel.states import CallState
from tests.jobs.test_breaks import SIX, stolen
from tests.support.agent import (
    call,
    calls_of,
    ended,
    job_is,
    make_route,
    make_tool,
    says,
    submitted,
    working_kernel,
)
from tests.support.provider import ProviderProcess
from tests.support.slept import sleeps_after
from tests.support.tool_server import ToolServer

LONGER = 61.0


async def test_a_call_whose_lease_ended_before_it_began_is_not_sent_under_it(
    shop: ProviderProcess, tool_server: ToolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have taken the job by then, and a person may have said that it was not done."""
    assert conf.job_lease_seconds < LONGER
    slept = sleeps_after(
        monkeypatch,
        journal,
        "begin_call",
        seconds=LONGER,
        meanwhile=lambda: stolen(Job.objects.get().id),
    )
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await job_is(kernel, job.id, "waiting", reason="tool_uncertain", maintained=True)
        (made,) = await calls_of(kernel, job.id)
    assert slept
    assert made.state == CallState.DISPATCHING
    assert tool_server.count() == 0


async def test_who_still_holds_the_job_gives_the_call_back_and_makes_it_under_a_new_lease(
    shop: ProviderProcess, tool_server: ToolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = sleeps_after(monkeypatch, journal, "begin_call", seconds=LONGER)
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Settled.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        row = await ended(kernel, job.id)
        (made,) = await calls_of(kernel, job.id)
    assert slept
    assert (row.state, made.state, made.tries) == ("done", CallState.DONE, 1)
    assert tool_server.count() == 1


def test_the_clock_of_deadlines_goes_on_while_the_machine_is_suspended() -> None:
    assert clock.monotonic() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1.0)
