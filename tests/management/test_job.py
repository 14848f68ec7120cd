"""manage.py job: submit, list, show, cancel, resume (D1, L4)."""

from datetime import timedelta

import pytest

from kernel import clock
from kernel.conf import override
from kernel.models import Job
from kernel.state import DatabaseStore
from tests.management.running import done, last_act, run
from tests.support.product import make_account, make_service

SUBMIT = ("job", "submit", "--account", "acme", "--route", "refunds", "--request-id")


@pytest.fixture(autouse=True)
def desk(kernel_db: None) -> None:
    make_account()
    make_service()
    done("route", "add", "refunds", "--service", "gpt")


def test_a_job_is_submitted_once_per_request_id() -> None:
    first = done(*SUBMIT, "req-1", "--prompt", "refund DE-1", "--json").document
    again = done(*SUBMIT, "req-1", "--input", '{"prompt": "refund DE-1"}', "--json").document
    assert (first["created"], again["created"]) == (True, False)
    assert first["job_id"] == again["job_id"] == Job.objects.get().id
    assert last_act().action == "job.submit"
    assert f"It is job {first['job_id']}, queued." in (
        done(*SUBMIT, "req-1", "--prompt", "refund DE-1").out
    )
    other = run(*SUBMIT, "req-1", "--prompt", "another")
    assert other.code == 1
    assert "belongs to another job" in other.error


def test_an_input_that_cannot_be_read_is_refused() -> None:
    assert "not JSON" in run(*SUBMIT, "req-1", "--input", "{").error
    assert "prompt or messages" in run(*SUBMIT, "req-1", "--input", '{"ask": 1}').error
    assert not Job.objects.exists()


def test_jobs_are_listed_and_shown_for_people_and_scripts() -> None:
    assert "No jobs." in done("job", "list").out
    job_id = done(*SUBMIT, "req-1", "--prompt", "refund\u202e DE-1", "--json").document["job_id"]
    (listed,) = done("job", "list", "--account", "acme", "--state", "queued", "--json").document
    shown = done("job", "show", job_id, "--json").document
    assert listed["job_id"] == shown["job_id"] == job_id
    assert shown["input"] == {"prompt": "refund\u202e DE-1"}
    assert "req-1" in done("job", "list").out
    text = done("job", "show", job_id).out
    assert f"Job {job_id}: queued" in text
    assert "refund\\u202e DE-1" in text
    assert done("job", "list", "--state", "done", "--json").document == []
    assert "no job job_none" in run("job", "show", "job_none").error.lower()


def test_a_job_is_cancelled_once_for_all() -> None:
    job_id = done(*SUBMIT, "req-1", "--prompt", "x", "--json").document["job_id"]
    assert "is cancelled" in done("job", "cancel", job_id, "--reason", "not needed").out
    assert (last_act().action, last_act().reason) == ("job.cancel", "not needed")
    assert Job.objects.get().state == "cancelled"
    assert "cancelled" in done("job", "show", job_id).out


def test_a_parked_job_is_put_back_into_the_queue() -> None:
    job_id = done(*SUBMIT, "req-1", "--prompt", "x", "--json").document["job_id"]
    assert "is not parked" in run("job", "resume", job_id).error
    with override(worker_lost_max=1):
        DatabaseStore.claim(owner="wrk_a", target="agent", limit=1)
        assert "held by wrk_a until" in done("job", "show", job_id).out
        Job.objects.update(lease_expires_at=clock.db_now() - timedelta(seconds=1))
        DatabaseStore.reclaim(limit=5)
    assert "worker_lost" in done("job", "show", job_id).out
    assert "is queued again" in done("job", "resume", job_id, "--reason", "fixed").out
    assert Job.objects.get().state == "queued"
