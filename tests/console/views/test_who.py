"""Who asked, sent and decided: tokens by name, people by name, never an id alone (C2, C11, L1)."""

import pytest
from django.urls import reverse

from console.queries.actors import who_of
from kernel import clock
from kernel.models import AuditRow, Token
from tests.support import work_data

NAME = "Checkout <b>bot</b>"


@pytest.fixture
def token(desk):
    """A token of this name stands for `tok_checkout`, which sends the jobs of work_data."""
    return Token.objects.create(
        id=work_data.CHECKOUT.id,
        account_id=work_data.ACCOUNT,
        name=NAME,
        scopes="jobs:write",
        prefix="tok",
        secret_sha256="0" * 64,
        created_by="user:olga",
        created_at=clock.db_now(),
    )


def shown(page):
    return page.count("Checkout &lt;b&gt;bot&lt;/b&gt;")


def test_approvals_say_the_name_of_the_token_that_asks(token, approver):
    (open_id,) = work_data.refund("order-1").approval_ids
    decided = work_data.refund("order-2")
    work_data.decide(decided.approval_ids[0], "approved")
    for address in (
        reverse("approvals"),
        reverse("approvals-decided"),
        reverse("approval", args=[open_id]),
        reverse("approval-approve", args=[open_id]),
        f"{reverse('approvals-bulk')}?decision=denied&id={open_id}",
    ):
        page = approver.get(address).text
        assert shown(page), address
        assert "<b>bot" not in page
        assert 'title="token:tok_checkout"' in page, "the id is beside it"
    page = approver.get(reverse("approval", args=decided.approval_ids)).text
    assert "petra</bdi>" in page and "user:petra" not in page


def test_a_job_its_acts_and_the_trail_say_it_too(token, operator):
    job_id = work_data.submit("order-1").id
    page = operator.get(reverse("job", args=[job_id])).text
    assert "Sent by" in page and shown(page) >= 2
    act = AuditRow.objects.get(action="job.submit")
    assert shown(operator.get(reverse("act", args=[act.id])).text)
    assert shown(operator.get(reverse("audit"), {"subject": f"job:{job_id}"}).text)


def test_somebody_who_came_second_reads_a_name(token, approver):
    (asked,) = work_data.refund("order-1").approval_ids
    work_data.decide(asked, "denied", by="petra", reason="No parcel was lost.")
    page = approver.get(reverse("approval-approve", args=[asked])).text
    assert "petra</bdi>" in page and "user:petra" not in page


def test_the_kinds_of_actors_are_told_apart_in_one_query(token, django_assert_num_queries):
    texts = ["token:tok_checkout", "token:tok_gone", "user:olga", "system:demo", "odd", ""]
    with django_assert_num_queries(1):
        known = who_of(texts)
    assert [known[text].text for text in texts] == [
        f"{NAME} (token)", "tok_gone (token)", "olga", "demo (system)", "odd", ""
    ]  # fmt: skip
    assert known["token:tok_checkout"].token_id == "tok_checkout"
    assert known["token:tok_gone"].token_id == "", "its id is shown already"
    with django_assert_num_queries(0):
        who_of(["user:olga"])
