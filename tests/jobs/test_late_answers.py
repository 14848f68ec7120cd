"""What a sent call came to is written down also after its claim ended (D1, D3; A6, A16)."""

import pytest

from kernel.errors import LostRace, Unavailable
from kernel.jobs import cancel_job, journal
from kernel.jobs.answers import save_answer
from kernel.jobs.resolution import resolve_call
from kernel.jobs.tools import ANSWERED, NOT_SENT, UNCERTAIN, ToolAnswer
from kernel.jobs.worker import Worker
from kernel.models import Approval, AuditRow, Job, ToolCall
from tests.jobs.rows import STORE, make_route, make_tool, submit
from tests.support.agent import ended, working_kernel
from tests.support.agent import make_route as made_route
from tests.support.agent import submitted as submitted_job
from tests.support.product import OPERATOR, make_account, make_service

DONE = ToolAnswer(ANSWERED, 200, text='{"refunded":true}', body_bytes=17)


@pytest.fixture
def sent(kernel_db: None) -> tuple[Job, journal.Permit]:
    """A claimed job and its one call, which is on its way."""
    make_account()
    make_service()
    make_tool(policy={"default": "auto", "risk": "low"})
    make_route(tools=["refund"])
    submit()
    (job,) = STORE.claim(owner="wrk_a", target="agent", limit=1)
    from kernel.jobs.conversation import ModelCall
    from kernel.jobs.proposals import propose

    wanted = ModelCall("c1", "refund", '{"order":"DE-1","amount":5}')
    propose(store=STORE, fence=job.fence, step=1, calls=[wanted], tool_ids=["refund"])
    permit = journal.begin_call(store=STORE, fence=job.fence, call_id=f"{job.id}.1.0")
    assert isinstance(permit, journal.Permit)
    return job, permit


def cancel(job) -> None:
    cancel_job(store=STORE, job_id=job.id, actor=OPERATOR, reason="not wanted")


def late(permit: journal.Permit, answer: ToolAnswer, **fields) -> None:
    save_answer(permit=permit, answer=answer, actor=journal.WORKER, **fields)


def test_the_answer_of_a_cancelled_jobs_call_is_kept(sent) -> None:
    job, permit = sent
    cancel(job)
    with pytest.raises(LostRace) as refusal:
        journal.finish_call(
            store=STORE,
            fence=job.fence,
            call_id=permit.call_id,
            http_status=200,
            response_text="x",
            response_bytes=1,
        )
    assert refusal.value.error_code == "lost_lease"
    late(permit, DONE)
    late(permit, DONE)  # as after a lost acknowledgement
    call = ToolCall.objects.get()
    assert (call.state, call.http_status, call.response_text) == ("done", 200, DONE.text)
    assert Job.objects.get().state == "cancelled"
    assert AuditRow.objects.filter(action="call.done").count() == 1


def test_what_was_proven_not_sent_is_not_left_uncertain(sent) -> None:
    job, permit = sent
    cancel(job)
    late(permit, ToolAnswer(NOT_SENT, error_code="not_sent", error_text="refused"), give_up=True)
    call = ToolCall.objects.get()
    assert (call.state, call.error_code) == ("failed", "not_sent")
    assert not Approval.objects.exists()


def test_what_is_not_known_is_noted_for_the_operator(sent) -> None:
    job, permit = sent
    cancel(job)
    late(permit, ToolAnswer(UNCERTAIN, 500, error_code="status", error_text="answered 500"))
    call = ToolCall.objects.get()
    assert (call.state, call.error_code, call.http_status) == ("dispatching", "status", 500)


def test_an_operators_word_or_another_dispatch_stays(sent) -> None:
    job, permit = sent
    cancel(job)
    ToolCall.objects.update(tries=1)
    with pytest.raises(LostRace):
        late(permit, DONE)
    ToolCall.objects.update(tries=0)
    resolve_call(
        call_id=permit.call_id, outcome="not_done", note="looked", actor=OPERATOR, store=STORE
    )
    with pytest.raises(LostRace):
        late(permit, DONE)
    assert ToolCall.objects.get().error_code == "resolved_not_done"


async def test_a_run_that_cannot_go_on_is_parked_with_its_reason(
    shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel.jobs.agent import Run

    async def away(self) -> None:
        raise Unavailable("The engine is away.", next_action="Start it.")

    monkeypatch.setattr(Run, "go", away)
    monkeypatch.setattr("kernel.jobs.worker.RETRY_GROWTH", 1)
    await made_route()
    async with working_kernel() as kernel:
        job = await ended(kernel, (await submitted_job(kernel)).id)
    assert (job.state, job.attempts, job.error_code) == ("parked", 3, "interrupted")
    assert job.error_text == "Its run could not go on: The engine is away. Start it."


def test_a_closing_kernel_or_a_lost_acknowledgement_is_no_fault_of_the_job() -> None:
    from kernel.errors import CommitOutcomeUnknown

    worker = Worker.__new__(Worker)
    worker._stopping = False
    assert worker._why(Unavailable("away")) != ""
    assert worker._why(CommitOutcomeUnknown("lost")) == ""
    worker._stopping = True
    assert worker._why(Unavailable("closing")) == ""
