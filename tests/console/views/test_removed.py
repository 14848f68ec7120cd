"""What retention removed says when and by which policy; nothing is an empty hole (A17, L1)."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from kernel import clock, retention
from kernel.access import ensure_roles
from kernel.conf import override
from kernel.delivery.replay import replay
from kernel.models import Body, DeadLetter, Job, JobPurge
from kernel.state import DatabaseStore
from kernel.states import JobState
from tests.support import delivery_data, lives, work_data

SAYS = "Removed by retention"


@pytest.fixture
def place(db: None) -> Iterator[None]:
    """An account, its tools and destinations; what has ended is old enough to be removed."""
    ensure_roles()
    lives.open_account(delivery_data.ACCOUNT)
    if work_data.ACCOUNT != delivery_data.ACCOUNT:
        lives.open_account(work_data.ACCOUNT)
    lives.add_service("gpt-main")
    work_data.tools_and_routes()
    delivery_data.make_destinations()
    with override(**{policy.setting: 0 for policy in retention.POLICIES}):
        yield


def purge(kind: str) -> None:
    """Run one policy to its end."""
    (policy,) = [one for one in retention.POLICIES if one.kind == kind]
    cursor: Any = None
    while (cursor := policy.run(cursor=cursor, limit=50).cursor) is not None:
        pass


def told(client: Client, name: str, object_id: str, *, policy: str) -> str:
    """The page of an object; it names the policy and its setting."""
    page = client.get(reverse(name, args=[object_id]))
    assert page.status_code == 200
    assert SAYS in page.text and policy in page.text
    return page.text


def ended_job() -> str:
    job_id = work_data.submit("order-1", prompt="Refund the whole order").id
    Job.objects.filter(id=job_id).update(state=JobState.CANCELLED, finished_at=clock.db_now())
    return job_id


def replayed_letter() -> DeadLetter:
    letter_id = delivery_data.dead_letter("HTTP 500")
    replay(dead_letter_id=letter_id, actor=delivery_data.OLGA, reason="", store=DatabaseStore())
    return DeadLetter.objects.get(id=letter_id)


def test_a_job_says_when_its_input_was_removed_and_keeps_its_digest(
    place: None, operator: Client
) -> None:
    job_id = ended_job()
    assert SAYS not in operator.get(reverse("job", args=[job_id])).text
    purge("jobs")
    text = told(operator, "job", job_id, policy="BAILING_JOB_RETENTION_DAYS")
    assert str(JobPurge.objects.get(id=job_id).input_sha256) in text


def test_a_dead_letter_says_so_of_its_content_and_of_its_attempts(
    place: None, operator: Client
) -> None:
    letter = replayed_letter()
    content = reverse("dead-letter-content", args=[letter.id])
    assert operator.get(content).status_code == 200
    purge("dead_letters")
    purge("attempts")
    text = told(operator, "dead-letter", letter.id, policy="BAILING_DEAD_LETTER_RETENTION_DAYS")
    assert "BAILING_ATTEMPT_RETENTION_DAYS" in text
    assert content not in text, "nothing is offered that is gone"
    gone = operator.get(content)
    assert gone.status_code == 410 and SAYS in gone.text
    told(
        operator,
        "notification",
        letter.notification_id,
        policy="BAILING_ATTEMPT_RETENTION_DAYS",
    )


def test_a_request_says_so_of_its_bodies_and_a_bookmarked_download_is_410(
    place: None, operator: Client
) -> None:
    row = lives.settled("op-1", account=delivery_data.ACCOUNT, service="gpt-main")
    download = reverse("request-body", args=[row.id, "result"])
    purge("result_bodies")
    assert not Body.objects.filter(request_id=row.id).exists()
    told(operator, "request", row.id, policy="BAILING_RESULT_RETENTION_DAYS")
    gone = operator.get(download)
    assert gone.status_code == 410 and SAYS in gone.text
    assert operator.get(reverse("request-body", args=[row.id, "other"])).status_code == 404
