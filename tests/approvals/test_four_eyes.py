"""Who is kept from deciding: the asker, under both names that the product knows (C11)."""

import pytest

from kernel.access import issue_token
from kernel.approvals.decisions import in_the_same_hands
from kernel.audit import Actor
from kernel.jobs import steps
from kernel.models import AuditRow
from tests.support.product import make_account

OLGA, BEN, SHELL = Actor("user", "olga"), Actor("user", "ben"), Actor("command", "root")


@pytest.fixture
def token(kernel_db: None):
    make_account()

    def issue(actor: Actor) -> str:
        row, _ = issue_token(account_id="acme", name="x", scopes=["jobs:write"], actor=actor)
        return f"token:{row.id}"

    return issue


def test_one_name_and_a_person_with_a_token_of_theirs_are_the_same_hands(token) -> None:
    hers, his, nobodys = token(OLGA), token(BEN), token(SHELL)
    for asker, decider in (("user:olga", "user:olga"), (hers, hers), (hers, "user:olga")):
        assert in_the_same_hands(asker, decider)
        assert in_the_same_hands(decider, asker)
    others = (("user:olga", "user:ben"), (hers, "user:ben"), (hers, his), (hers, token(OLGA)))
    for asker, decider in (*others, (nobodys, "user:olga"), (nobodys, token(SHELL))):
        assert not in_the_same_hands(asker, decider)
        assert not in_the_same_hands(decider, asker)
    assert not in_the_same_hands("token:ghost", "user:olga")


def test_a_job_whose_submitter_nobody_knows_has_no_requester(kernel_db: None) -> None:
    assert not AuditRow.objects.exists()
    assert steps.requester_of(job_id="job_1") == ""
