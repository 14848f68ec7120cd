"""Jobs from the outside: once per request id; a cancel ends everything that is open (D1, C8)."""

from datetime import timedelta
from typing import Any

import pytest

from kernel import clock, jobs, state, usage
from kernel.approvals import Question, canonical, open_in_tx
from kernel.audit import Actor
from kernel.conf import override
from kernel.errors import Conflict, Forbidden, InvalidId, InvalidInput, NotFound, TooLarge
from kernel.ids import new_id
from kernel.models import Approval, AuditRow, Job, ToolCall
from kernel.state import JobRecord
from tests.jobs.rows import STORE, make_route, submit
from tests.support.product import OPERATOR, make_account, make_service
from tests.usage.flow import at_once

CALLER = Actor("token", "tok_1")


@pytest.fixture(autouse=True)
def desk(kernel_db: None) -> None:
    """The account `acme` and the route `refunds` on the service `gpt`."""
    make_account()
    make_service()
    make_route()


def test_a_job_is_queued_once_per_request_id_in_one_text() -> None:
    job, created = submit(input={"messages": [{"role": "user", "content": "ä"}]}, actor=CALLER)
    assert created
    assert job.input_text == '{"messages":[{"content":"ä","role":"user"}]}'
    assert (job.state, job.target, job.route_id) == ("queued", "agent", "refunds")
    again = submit(input={"messages": [{"content": "ä", "role": "user"}]})
    assert again == (job, False)
    act = AuditRow.objects.get(subject=f"job:{job.id}")
    assert (act.action, act.actor_kind, act.actor_id) == ("job.submit", "token", "tok_1")


def test_another_input_under_one_request_id_is_a_conflict() -> None:
    submit()
    with pytest.raises(Conflict) as refusal:
        submit(input={"prompt": "something else"})
    assert refusal.value.error_code == "job_conflict"
    make_route("other")
    with pytest.raises(Conflict):
        submit(route_id="other")
    assert Job.objects.count() == 1


def test_two_accounts_use_one_request_id_apart() -> None:
    make_account("globex")
    assert submit()[0].id != submit(account_id="globex")[0].id


def test_one_request_id_from_many_at_once_is_one_job() -> None:
    found = at_once(*[submit] * 8)
    assert len({job.id for job, _ in found}) == 1
    assert [created for _, created in found].count(True) == 1


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "input"),
        ([], "input"),
        ("prompt", "input"),
        ({}, "input"),
        ({"Prompt": "x"}, "input"),
        ({"prompt": "x", "messages": []}, "input"),
        ({"prompt": ""}, "input.prompt"),
        ({"prompt": " \n"}, "input.prompt"),
        ({"prompt": 5}, "input.prompt"),
        ({"prompt": "x\ud800"}, "input"),
        ({"messages": []}, "input.messages"),
        ({"messages": "x"}, "input.messages"),
        ({"messages": ["x"]}, "input.messages[0]"),
        ({"messages": [{"role": "user"}]}, "input.messages[0]"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "input.messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "input.messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "input.messages[0].role"),
        ({"messages": [{"role": "user", "content": [1]}]}, "input.messages[0].content"),
    ],
)
def test_an_agent_takes_a_prompt_or_messages_and_nothing_else(value: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        submit(input=value)
    assert refusal.value.field == field
    assert not Job.objects.exists()


def test_an_executor_takes_any_object_that_is_strict_json() -> None:
    make_route("work", target="executor", service_id="")
    job, _ = submit(route_id="work", input={"b": [1.5, None], "a": {"prompt": 1}})
    assert (job.target, job.input_text) == ("executor", '{"a":{"prompt":1},"b":[1.5,null]}')
    for value in ({"a": float("nan")}, {"a": {1}}, {}):
        with pytest.raises(InvalidInput):
            submit("req-2", route_id="work", input=value)


def test_an_input_over_its_budget_is_too_large() -> None:
    with override(job_input_bytes_max=1024):
        submit(input={"prompt": "x" * (1024 - len('{"prompt":""}'))})
        with pytest.raises(TooLarge):
            submit("req-2", input={"prompt": "x" * (1025 - len('{"prompt":""}'))})
    assert Job.objects.count() == 1


def test_a_wrong_id_or_an_unknown_route_is_refused() -> None:
    with pytest.raises(InvalidId):
        submit("ä")
    with pytest.raises(NotFound) as refusal:
        submit(route_id="ghost")
    assert refusal.value.error_code == "route_not_found"
    with pytest.raises(NotFound):
        submit(account_id="ghost")


def test_what_is_out_of_use_takes_no_new_job_but_answers_a_repeat() -> None:
    job, _ = submit()
    jobs.change_route(route_id="refunds", actor=OPERATOR, seen_version=1, active=False)
    usage.change_account(account_id="acme", version=1, actor=OPERATOR, active=False)
    with pytest.raises(Forbidden) as closed:
        submit("req-2")
    assert closed.value.error_code == "account_closed"
    assert submit() == (job, False)
    make_account("globex")
    with pytest.raises(Conflict) as refusal:
        submit("req-2", account_id="globex")
    assert refusal.value.error_code == "route_inactive"


def test_a_route_on_anothers_service_does_not_exist_for_this_account() -> None:
    make_account("globex")
    make_service("theirs", account_id="globex")
    make_route("private", service_id="theirs")
    with pytest.raises(NotFound) as refusal:
        submit(route_id="private")
    assert refusal.value.error_code == "route_not_found"
    assert submit(account_id="globex", route_id="private")[1]
    usage.change_service(service_id="gpt", version=1, actor=OPERATOR, active=False)
    with pytest.raises(Conflict) as retired:
        submit()
    assert retired.value.error_code == "service_inactive"


def test_a_paused_route_takes_jobs_and_keeps_them_queued() -> None:
    state.pause(scope="route:refunds", reason="audit", actor=OPERATOR)
    job, created = submit()
    assert created
    assert STORE.claim(owner="wrk_a", target="agent", limit=1) == []
    state.unpause(scope="route:refunds", actor=OPERATOR)
    assert [each.id for each in STORE.claim(owner="wrk_a", target="agent", limit=1)] == [job.id]


# --- cancel, resume --------------------------------------------------------------------------


def call_of(job_id: str, index: int, call_state: str) -> ToolCall:
    now = clock.db_now()
    return ToolCall.objects.create(
        id=f"{job_id}.1.{index}",
        job_id=job_id,
        step=1,
        call_id=f"call_{index}",
        tool="refund",
        arguments_text="{}",
        arguments_sha256="0" * 64,
        idempotency_key=f"bz:{job_id}.1.{index}",
        state=call_state,
        created_at=now,
        updated_at=now,
    )


def waiting_with_two_questions() -> tuple[JobRecord, list[Approval]]:
    """A job that asks two questions; one of them is approved already."""
    submit()
    (job,) = STORE.claim(owner="wrk_a", target="agent", limit=1)
    opened: list[Approval] = []

    def ask_in_tx() -> None:
        questions = [
            Question("refund", 1, canonical({"n": n}), "high", "Refund.", f"{job.id}.1.{n}", 3600)
            for n in (0, 1)
        ]
        opened[:] = open_in_tx(
            questions=questions,
            account_id="acme",
            request_id=job.request_id,
            requested_by="token:tok_1",
            job_id=job.id,
        )

    STORE.wait(fence=job.fence, reason="approval", also=ask_in_tx)
    Approval.objects.filter(id=opened[1].id, state="open").update(state="approved")
    return STORE.get(job_id=job.id), opened


def cancel(job_id: str, **fields: Any) -> JobRecord:
    values = {"actor": OPERATOR, "reason": "changed my mind", **fields}
    return jobs.cancel_job(store=STORE, job_id=job_id, **values)


def test_a_cancel_voids_questions_grants_and_unsent_calls_in_one_transaction() -> None:
    job, opened = waiting_with_two_questions()
    sent, unsent = call_of(job.id, 0, "dispatching"), call_of(job.id, 1, "proposed")
    assert cancel(job.id).state == "cancelled"
    assert set(Approval.objects.values_list("state", flat=True)) == {"cancelled"}
    unsent.refresh_from_db()
    sent.refresh_from_db()
    assert (unsent.state, unsent.error_code) == ("failed", "cancelled")
    assert unsent.finished_at is not None
    assert sent.state == "dispatching"
    for row in opened:
        last = AuditRow.objects.filter(subject=f"approval:{row.id}").order_by("-sequence")[0]
        assert (last.action, last.actor_id) == ("approval.cancelled", "olga")
    act = AuditRow.objects.get(action="job.cancel")
    assert (act.subject, act.reason) == (f"job:{job.id}", "changed my mind")


def test_a_cancel_that_fails_half_way_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = waiting_with_two_questions()
    unsent = call_of(job.id, 1, "proposed")

    def fail(**_: Any) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr("kernel.audit.append_in_tx", fail)
    with pytest.raises(RuntimeError):
        cancel(job.id)
    assert STORE.get(job_id=job.id) == job
    assert sorted(Approval.objects.values_list("state", flat=True)) == ["approved", "open"]
    unsent.refresh_from_db()
    assert unsent.state == "proposed"


def test_another_accounts_job_is_not_found_and_stays() -> None:
    job, _ = submit()
    with pytest.raises(NotFound):
        cancel(job.id, account_id="globex")
    assert STORE.get(job_id=job.id).state == "queued"
    assert cancel(job.id, account_id="acme").state == "cancelled"


def test_a_form_that_is_sent_twice_cancels_once() -> None:
    job, _ = submit()
    form = Actor("user", "olga", act_key=new_id("act"))
    first = cancel(job.id, actor=form)
    assert cancel(job.id, actor=form) == first
    assert AuditRow.objects.filter(action="job.cancel").count() == 1


def test_a_parked_job_is_resumed_by_an_operator_and_audited() -> None:
    job, _ = submit()
    with pytest.raises(Conflict) as refusal:
        jobs.resume_parked_job(store=STORE, job_id=job.id, actor=OPERATOR, reason="")
    assert refusal.value.error_code == "not_parked"
    with override(worker_lost_max=1):
        STORE.claim(owner="wrk_a", target="agent", limit=1)
        late = clock.db_now() - timedelta(seconds=1)
        Job.objects.filter(id=job.id).update(lease_expires_at=late)
        assert STORE.reclaim(limit=5).parked == 1
    found = jobs.resume_parked_job(store=STORE, job_id=job.id, actor=OPERATOR, reason="fixed")
    assert (found.state, found.attempts) == ("queued", 0)
    assert AuditRow.objects.get(action="job.resume").reason == "fixed"


# --- lists -----------------------------------------------------------------------------------


def test_jobs_are_listed_page_by_page_without_their_bodies() -> None:
    make_account("globex")
    ids = [submit(f"req-{n}")[0].id for n in range(5)]
    other = submit("req-9", account_id="globex")[0].id
    cancel(ids[0])
    assert [row.id for row in jobs.list_jobs(limit=2)] == [other, ids[4]]
    page = jobs.list_jobs(limit=2, account_id="acme")
    assert [row.id for row in page] == [ids[0], ids[4]]
    rest = jobs.list_jobs(limit=9, account_id="acme", before=(page[1].updated_at, page[1].id))
    assert [row.id for row in rest] == [ids[3], ids[2], ids[1]]
    (cancelled,) = jobs.list_jobs(limit=9, account_id="acme", state="cancelled")
    assert cancelled.id == ids[0]
    assert {"input_text", "result_text"} <= cancelled.get_deferred_fields()
