"""What happens is published by the transaction that makes it happen (F1)."""

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kernel import approvals, clock, usage
from kernel.conf import override
from kernel.delivery import alerts
from kernel.delivery.recovery import reclaim_page
from kernel.jobs.recovery import recovery_page
from kernel.models import Account, DeadLetter, Job, Notification, Request
from kernel.usage import outcomes
from kernel.usage.recovery import expire_lease, expiry_page
from kernel.usage.results import save_results
from kernel.usage.settlement import settlement_page
from tests.approvals import place
from tests.delivery import post
from tests.support.product import OPERATOR, admitted, ask, make_service
from tests.usage import flow

pytestmark = pytest.mark.usefixtures("kernel_db")

STORE = place.STORE


@pytest.fixture(autouse=True)
def everything(kernel_db: None) -> None:
    """A destination that asked for everything."""
    post.destination(events=list(post.EVERYTHING))


def told(event: str) -> list[dict[str, Any]]:
    """The data of every notification about this event, oldest first."""
    rows = Notification.objects.filter(event=event).order_by("id")
    return [json.loads(bytes(row.content))["data"] for row in rows]


# --- jobs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["done", "failed", "refused"])
def test_the_end_of_a_job_is_told_once(state: str) -> None:
    job = place.running()
    finish = partial(
        STORE.finish, fence=job.fence, state=state, error_code="x", error_text="why \ud83d"
    )
    finish()
    finish()
    (data,) = told("job.finished")
    assert (data["job_id"], data["state"], data["request_id"]) == (job.id, state, "req-1")
    row = Notification.objects.get()
    assert (row.kind, row.job_id, row.request_id) == ("callback", job.id, "req-1")


def test_a_finish_that_is_rolled_back_tells_nothing() -> None:
    job = place.running()

    def fail() -> None:
        raise place.Boom

    with pytest.raises(place.Boom):
        STORE.finish(fence=job.fence, state="done", also=fail)
    assert told("job.finished") == []


def test_a_cancelled_job_is_told_once() -> None:
    approval = place.one()
    place.voided(approval)
    place.voided(approval)
    (data,) = told("job.finished")
    assert (data["state"], data["error_text"]) == ("cancelled", "stop")


def test_a_refused_job_is_told() -> None:
    approval = place.one()
    place.carried(approval, "denied")
    (data,) = told("job.finished")
    assert (data["state"], data["job_id"]) == ("refused", approval.job_id)


def test_a_job_that_loses_its_workers_is_told_when_it_is_parked() -> None:
    job = place.running()
    with override(worker_lost_max=1):
        past = clock.db_now() - timedelta(seconds=1)
        Job.objects.filter(id=job.id, state="running").update(lease_expires_at=past)
        recovery_page(store=STORE)(cursor=None, limit=10)
    (data,) = told("job.finished")
    assert (data["job_id"], data["state"], data["error_code"]) == (job.id, "parked", "worker_lost")


# --- approvals ---------------------------------------------------------------------------------


def test_a_question_and_its_decision_are_told_with_a_link_and_without_secrets() -> None:
    secret = "hunter2-hunter2"
    canonical = approvals.canonical({"amount": 1, "api_key": secret})
    approval = place.one(canonical=canonical)
    (opened,) = told("approval.opened")
    assert opened["approval_id"] == approval.id
    assert opened["link"] == f"/approvals/{approval.id}/"
    assert opened["arguments_sha256"] == canonical.sha256
    assert secret not in json.dumps(opened) and "api_key" in opened["arguments_text"]
    place.carried(approval)
    (decided,) = told("approval.decided")
    assert (decided["decision"], decided["decided_by"]) == ("approved", "ann")
    place.carried(approval)
    assert len(told("approval.decided")) == 1, "a replayed decision is told once"
    kinds = Notification.objects.filter(event__startswith="approval").values_list("kind", flat=True)
    assert set(kinds) == {"approval_webhook"}


def test_an_expired_question_is_told() -> None:
    approval = place.one()
    place.let_expire(approval)
    approvals.expire_page(limit=10)
    (decided,) = told("approval.decided")
    assert decided["decision"] == "expired"


def test_the_largest_arguments_fit_into_a_notice() -> None:
    text = {"text": "\u0001😀" * 20_000}
    place.one(canonical=approvals.canonical(text))
    (opened,) = told("approval.opened")
    assert opened["arguments_cut"] is True


# --- requests ----------------------------------------------------------------------------------


def dispatched(count: int) -> list[str]:
    make_service()
    rows = [admitted(ask(f"op-{number}")) for number in range(count)]
    past = clock.db_now() - timedelta(seconds=1)
    ids = [row.id for row in rows]
    Request.objects.filter(id__in=ids, result_state="admitted").update(
        result_state="dispatched", lease_expires_at=past
    )
    return ids


def test_requests_whose_owner_was_lost_are_told_page_by_page() -> None:
    ids = dispatched(5)
    assert expiry_page(limit=3).settled == 3
    assert expiry_page(limit=3).settled == 2
    assert sorted(data["request_id"] for data in told("request.unknown")) == sorted(ids)
    assert expiry_page(limit=3).settled == 0
    assert len(told("request.unknown")) == 5


def test_an_outcome_that_was_saved_as_unknown_is_told_once() -> None:
    (one,) = dispatched(1)
    Request.objects.filter(id=one).update(fence_token="f-1")
    lost = outcomes.lost(request_id=one, fence_token="f-1", code="timeout", message="no answer")
    for _ in range(2):  # as after a lost acknowledgement
        save_results(items=[lost])
    (data,) = told("request.unknown")
    assert (data["request_id"], data["error_code"]) == (one, "timeout")


def test_one_that_a_reader_finds_is_told_too() -> None:
    (one,) = dispatched(1)
    assert expire_lease(request_id=one) and not expire_lease(request_id=one)
    (data,) = told("request.unknown")
    assert (data["request_id"], data["operation_id"]) == (one, "op-0")


def unpriced(count: int, *, first: int = 0) -> list[str]:
    """Requests of a model that no price list knows, answered with honest metering."""
    body = flow.body_with(flow.USAGE)
    return [flow.answered(f"op-{first + number}", body=body) for number in range(count)]


def a_model_without_a_price() -> None:
    usage.change_account(
        account_id="acme",
        version=Account.objects.get().version,
        actor=OPERATOR,
        allow_unpriced=True,
    )
    make_service(price_provider="openai", price_model="dated-2026-11-30")


def test_a_charge_without_a_price_is_told_once() -> None:
    a_model_without_a_price()
    ids = unpriced(3)
    assert settlement_page(cursor=None, limit=50).deferred == 3
    assert sorted(data["request_id"] for data in told("request.unpriced")) == sorted(ids)
    assert {data["reason"] for data in told("request.unpriced")} == {"unpriced"}
    settlement_page(cursor=None, limit=50)
    assert len(told("request.unpriced")) == 3, "a later pass has nothing new to say"


def test_a_unit_without_a_rate_is_told_too() -> None:
    make_service()
    audio = {**flow.USAGE, "prompt_tokens_details": {"audio_tokens": 5}}
    request_id = flow.answered("op-1", body=flow.body_with(audio))
    settlement_page(cursor=None, limit=50)
    (data,) = told("request.unpriced")
    assert (data["request_id"], data["reason"]) == (request_id, "unpriced_unit")


def test_many_charges_without_a_price_are_one_alert_that_counts_them() -> None:
    rule = post.rule("request.unpriced")
    a_model_without_a_price()
    for first in (0, 5, 10):
        unpriced(5, first=first)
        settlement_page(cursor=None, limit=50)
    (alert,) = Notification.objects.filter(event="alert.request.unpriced")
    assert json.loads(bytes(alert.content))["data"]["count"] == 5
    assert alerts.windows_of(rule_id=rule.id)[0].suppressed == 14


def test_settlers_at_once_tell_each_charge_once_and_alert_once() -> None:
    rule = post.rule("request.unpriced")
    a_model_without_a_price()
    ids = unpriced(12)

    def settle_all(order: list[str]) -> None:
        for request_id in order:
            usage.settle(items=[request_id])

    assert flow.at_once(*(partial(settle_all, order) for order in (ids, ids[::-1]))) == [None, None]
    assert sorted(data["request_id"] for data in told("request.unpriced")) == sorted(ids)
    assert Notification.objects.filter(event="alert.request.unpriced").count() == 1
    assert alerts.windows_of(rule_id=rule.id)[0].suppressed == 11


# --- executors ---------------------------------------------------------------------------------


def with_executor() -> Notification:
    """A message that an executor has."""
    post.destination("room", channel="executor", address="room-7")
    (one,) = post.queued(to="room")
    return post.reread(one)


def test_the_end_of_a_child_is_no_event_of_its_own() -> None:
    row = with_executor()
    (child,) = STORE.claim(owner="tok_exec", target="executor", limit=5)
    STORE.finish(fence=child.fence, state="done")
    assert told("job.finished") == []
    assert reclaim_page(limit=10).settled == 1
    assert post.reread(row.id).state == "delivered"


def test_a_child_that_was_cancelled_ends_its_notification_as_a_dead_letter() -> None:
    row = with_executor()
    assert reclaim_page(limit=10).settled == 0, "the executor has it"
    STORE.cancel(job_id=row.child_job_id, actor=post.ANN, reason="stop", also=lambda: None)
    assert reclaim_page(limit=10).settled == 1
    assert post.reread(row.id).state == "dead"
    letter = DeadLetter.objects.get()
    assert "cancelled" in letter.error_text and letter.notification_id == row.id
    assert reclaim_page(limit=10).settled == 0


def test_children_are_looked_through_page_by_page() -> None:
    post.destination("room", channel="executor", address="room-7")
    post.queued(5, to="room")
    cursor, seen = None, 0
    while True:
        report = reclaim_page(cursor=cursor, limit=2)
        seen += report.scanned
        cursor = report.cursor
        if cursor is None:
            break
    assert seen == 5
