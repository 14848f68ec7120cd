"""Decisions: one winner, one key, all or nothing; expired by the database's clock; who may."""

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from kernel import approvals, schema
from kernel.approvals import decisions
from kernel.audit import Actor
from kernel.errors import (
    CommitOutcomeUnknown,
    Conflict,
    Forbidden,
    InvalidInput,
    KernelError,
    NotFound,
    Unavailable,
)
from kernel.models import Approval, AuditRow, Continuation
from tests.approvals.place import (
    ANN,
    BEN,
    CALLER,
    STORE,
    Boom,
    acts_of,
    asked,
    carried,
    consume,
    everything,
    job_of,
    let_expire,
    make_due,
    one,
    order,
    owed_of,
    reread,
    sweep,
    voided,
    without,
)
from tests.support.commits import LANDED, VANISHED, at_commit

pytestmark = pytest.mark.usefixtures("kernel_db")


def refused(kind: type[KernelError], asked_for: approvals.Decision) -> KernelError:
    """The error of a decision that changed nothing."""
    before = everything()
    with pytest.raises(kind) as caught:
        approvals.decide(order=asked_for)
    assert everything() == before
    return caught.value


@pytest.mark.parametrize(("word", "state"), [("approved", "approved"), ("denied", "denied")])
def test_a_decision_its_continuation_and_its_audit_row_are_one_act(word: str, state: str) -> None:
    row = one()
    decided = approvals.decide(order=order(row, word, reason="looks right"))
    found = reread(row)
    assert decided.approval.id == row.id and not decided.replayed
    assert (found.state, found.decision, found.decision_id) == (state, word, f"dec-{row.id}")
    assert (found.decided_by_kind, found.decided_by_id) == ("user", "ann")
    assert found.reason == "looks right" and found.decided_at is not None
    owed = owed_of(row)
    assert (owed.state, owed.decision, owed.decision_id) == ("owed", word, f"dec-{row.id}")
    assert (owed.job_id, owed.request_id) == (row.job_id, row.request_id)
    assert owed.arguments_sha256 == row.arguments_sha256
    assert owed.next_attempt_at == found.decided_at, "due at once"
    assert acts_of(row) == ["opened", "decided"]
    last = AuditRow.objects.filter(action="approval.decided").get()
    assert (last.actor_kind, last.actor_id, last.reason) == ("user", "ann", "looks right")
    assert job_of(row).state == "waiting", "deciding alone admits nothing"


@pytest.mark.parametrize("where", ["insert_new_row_in_tx", "audit"])
def test_when_one_of_the_three_fails_none_is_there(where: str) -> None:
    row = one()
    target = decisions if where == "insert_new_row_in_tx" else decisions.audit
    name = where if where == "insert_new_row_in_tx" else "append_in_tx"
    before = everything()
    with mock.patch.object(target, name, side_effect=Boom), pytest.raises(Boom):
        approvals.decide(order=order(row))
    assert everything() == before


@pytest.mark.parametrize(
    "word", [None, "", "APPROVED", "Approved", "approved ", True, 1, "yes", "expired", ["approved"]]
)
def test_only_the_exact_words_decide(word: Any) -> None:
    error = refused(InvalidInput, order(one(), word))
    assert (error.error_code, error.status) == ("invalid_decision", 400)
    assert error.details["accepted"] == ["approved", "denied"]


@pytest.mark.parametrize("key", ["", "é", "a b", "x" * 129, "timeout:apr_1", None, 7])
def test_a_decision_needs_a_key_of_its_own(key: Any) -> None:
    error = refused(InvalidInput, order(one(), decision_id=key))
    assert (error.status, error.details["field"]) == (400, "decision_id")


def test_the_same_decision_again_is_the_same_decision() -> None:
    row = one()
    first = approvals.decide(order=order(row, reason="because"))
    before = everything()
    for actor in (ANN, BEN, Actor("token", "tok_2")):
        again = approvals.decide(order=order(row, actor=actor, reason="another text"))
        assert again.replayed
        assert again.approval.__dict__ | {"_state": 0} == first.approval.__dict__ | {"_state": 0}
    assert everything() == before


def test_the_same_key_with_another_decision_is_refused_and_says_who_decided() -> None:
    row = one()
    approvals.decide(order=order(row, reason="fine"))
    error = refused(Conflict, order(row, "denied", actor=BEN))
    assert error.error_code == "decision_id_conflict"
    assert (error.details["by"], error.details["by_kind"]) == ("ann", "user")
    assert (error.details["decision"], error.details["reason"]) == ("approved", "fine")
    assert error.details["decided_at"] == reread(row).decided_at.isoformat()


@pytest.mark.parametrize("word", ["approved", "denied"])
def test_another_key_on_a_decided_approval_names_the_winner(word: str) -> None:
    row = one()
    approvals.decide(order=order(row))
    error = refused(Conflict, order(row, word, decision_id="dec-2", actor=BEN))
    assert (error.error_code, error.details["by"]) == ("already_decided", "ann")
    assert "ann" in error.message


def test_a_key_belongs_to_one_approval_of_all_accounts() -> None:
    """The same external key in two accounts: a clear conflict, never silently dropped."""
    first, second = one(), one("req-2")
    other = one("req-3", account_id="other")
    approvals.decide(order=order(first, decision_id="key-1"))
    for row in (second, other):
        error = refused(Conflict, order(row, decision_id="key-1"))
        assert error.error_code == "decision_id_conflict"
        assert "by" not in error.details, "another account's decision is not told"
        assert reread(row).state == "open"
    approvals.decide(order=order(second, decision_id="key-2"))


def test_a_key_that_differs_only_in_case_is_another_key() -> None:
    first, second = one(), one("req-2")
    approvals.decide(order=order(first, decision_id="Key-1"))
    assert not approvals.decide(order=order(second, decision_id="key-1")).replayed


def test_a_second_question_is_not_answered_by_the_first_decision() -> None:
    first, second = asked(count=2)
    carried(first)
    assert (reread(first).state, reread(second).state) == ("approved", "open")


@pytest.mark.parametrize("kind", ["user", "token"])
def test_who_asked_cannot_decide_on_any_path(kind: str) -> None:
    row = one()
    requester = Actor(kind, "tok_app")
    if kind == "token":
        error = refused(Forbidden, order(row, actor=requester))
        assert error.error_code == "four_eyes"
        carried(row)
        assert refused(Forbidden, order(row, actor=CALLER)).error_code == "four_eyes"
    else:
        approvals.decide(order=order(row, actor=requester))


@pytest.mark.parametrize("actor", [Actor("system", "x"), Actor("timeout", "x"), Actor("user", "")])
def test_every_decision_has_a_named_decider_of_a_known_kind(actor: Actor) -> None:
    assert refused(Forbidden, order(one(), actor=actor)).error_code == "not_a_decider"


@pytest.mark.parametrize("kind", ["user", "token", "signature", "policy"])
def test_the_kind_of_decider_is_recorded(kind: str) -> None:
    row = one()
    approvals.decide(order=order(row, actor=Actor(kind, "x")))
    assert (reread(row).decided_by_kind, reread(row).decided_by_id) == (kind, "x")


def test_an_approval_of_another_account_does_not_exist() -> None:
    row = one(account_id="acme")
    refused(NotFound, order(row, account_id="other"))
    refused(NotFound, replace(order(row), approval_id="apr_none"))
    approvals.decide(order=order(row, account_id="acme"))
    refused(NotFound, order(row, account_id="other"))


def test_denying_a_high_risk_needs_a_reason() -> None:
    row = one(risk="high")
    for reason in ("", "  \n"):
        error = refused(InvalidInput, order(row, "denied", reason=reason))
        assert error.details["field"] == "reason"
    approvals.decide(order=order(row, "denied", reason="wrong customer"))
    assert approvals.decide(order=order(row, "denied")).replayed, "a repeat needs no reason"
    approvals.decide(order=order(one("req-2", risk="high"), "approved"))
    approvals.decide(order=order(one("req-3", risk="medium"), "denied"))


@pytest.mark.parametrize("reason", ["x" * 4001, "\x00", "\ud800", None])
def test_a_reason_is_text_that_every_database_stores(reason: Any) -> None:
    assert refused(InvalidInput, order(one(), reason=reason)).details["field"] == "reason"


def test_a_form_that_showed_other_arguments_does_not_decide() -> None:
    row = one()
    error = refused(Conflict, order(row, seen_sha256="0" * 64))
    assert error.error_code == "changed"
    approvals.decide(order=order(row, seen_sha256=row.arguments_sha256))


# --- time ---------------------------------------------------------------------------------------


def test_a_late_decision_finds_the_question_expired_and_nothing_runs() -> None:
    row = one()
    let_expire(row)
    with pytest.raises(Conflict) as caught:
        carried(row)
    assert (caught.value.error_code, caught.value.details["by_kind"]) == ("expired", "timeout")
    found = reread(row)
    assert (found.state, found.decision, found.decided_by_kind) == ("expired", "expired", "timeout")
    assert found.decided_by_id and acts_of(row) == ["opened", "decided"]
    sweep()
    job = job_of(row)
    assert (job.state, job.error_code) == ("refused", "approval_expired")
    assert "expired" in job.error_text, "the model and people are told the final state"
    assert refused(Conflict, order(row, decision_id="dec-2")).error_code == "expired"


def test_the_first_pass_after_a_stop_expires_what_became_late() -> None:
    late, young = [one(f"req-{n}") for n in range(5)], one("req-9")
    for row in late:
        let_expire(row)
    report = approvals.expire_page(limit=50)
    assert (report.scanned, report.settled, report.failed, report.cursor) == (5, 5, 0, None)
    assert {reread(row).state for row in late} == {"expired"}
    assert reread(young).state == "open"
    assert approvals.expire_page(limit=50).scanned == 0


def test_expiry_pages_and_never_stops_at_a_bad_row() -> None:
    rows = [one(f"req-{n}") for n in range(5)]
    for row in rows:
        let_expire(row)
    real = decisions._expired_in_tx

    def failing(row: Approval, **fields: Any) -> Approval:
        if row.id == rows[0].id:
            raise Boom
        return real(row, **fields)

    with mock.patch.object(decisions, "_expired_in_tx", failing):
        cursor, reports = None, []
        for _ in range(3):
            reports.append(approvals.expire_page(cursor=cursor, limit=2))
            cursor = reports[-1].cursor
    assert cursor is None and sum(report.failed for report in reports) == 1
    assert [reread(row).state for row in rows] == ["open"] + ["expired"] * 4


def test_a_decided_question_never_expires() -> None:
    row = one()
    approvals.decide(order=order(row))
    let_expire(row)
    assert not decisions.expire(approval_id=row.id)
    assert reread(row).state == "approved"


# --- what has ended -------------------------------------------------------------------------------


def test_a_cancelled_question_is_never_approved() -> None:
    row = one()
    voided(row)
    error = refused(Conflict, order(row))
    assert (error.error_code, error.details["state"]) == ("cancelled", "cancelled")
    assert job_of(row).state == "cancelled"


def test_the_decision_of_a_void_or_used_grant_is_still_answered_by_its_key() -> None:
    used, void = one(), one("req-2")
    for row in (used, void):
        carried(row)
    consume(used)
    voided(void)
    before = everything()
    for row, state in ((used, "consumed"), (void, "cancelled")):
        again = approvals.decide(order=order(row))
        assert (again.replayed, again.approval.decision) == (True, "approved")
        assert again.approval.state == state
    assert everything() == before
    codes = [
        refused(Conflict, order(row, decision_id=f"new-{row.id}")).error_code
        for row in (used, void)
    ]
    assert codes == ["already_decided", "cancelled"]


# --- unavailable, unknown -------------------------------------------------------------------------


@pytest.mark.parametrize("migration", [schema.CONTINUATIONS, schema.AGENT_JOBS])
def test_without_the_migration_nothing_is_decided_and_the_answer_names_it(migration: str) -> None:
    row = one()
    let_expire(row)
    with without(migration):
        for call in (
            approvals.decide,
            lambda order: approvals.decide_and_carry(order=order, store=STORE),
        ):
            before = everything()
            with pytest.raises(Unavailable) as caught:
                call(order=order(row))
            assert caught.value.details["migration"] == migration
            assert everything() == before
        assert approvals.expire_page(limit=10).scanned == 0
        assert approvals.continuation_page(store=STORE)(limit=10).scanned == 0
        assert everything() == before


def test_a_store_without_the_capability_takes_no_decision() -> None:
    row = one()

    class Plain:
        capabilities: frozenset[str] = frozenset()

    before = everything()
    with pytest.raises(Unavailable) as caught:
        approvals.decide_and_carry(order=order(row), store=Plain())  # type: ignore[arg-type]
    assert caught.value.error_code == "capability_missing"
    assert everything() == before


@pytest.mark.parametrize("what", [LANDED, VANISHED])
def test_a_decision_whose_commit_was_not_acknowledged_is_asked_again_by_its_key(what: str) -> None:
    row = one()
    with at_commit("_decide", what) as fault:
        answer = carried(row)
    assert fault.fired == 1
    assert (answer.http_status, answer.approval.decision) == (200, "approved")
    assert answer.replayed is (what == LANDED)
    assert acts_of(row).count("decided") == 1
    assert Continuation.objects.count() == 1 and job_of(row).state == "queued"


def test_a_decision_that_another_one_overtook_in_the_silence_is_not_claimed() -> None:
    """The commit vanished and somebody else decided meanwhile: 409 with the winner."""
    row = one()
    real = approvals.decide

    def overtaken(*, order: approvals.Decision) -> approvals.Decided:
        if order.actor == ANN and not Continuation.objects.exists():
            real(order=replace(order, decision="denied", decision_id="dec-ben", actor=BEN))
            raise CommitOutcomeUnknown("nobody acknowledged the commit")
        return real(order=order)

    with mock.patch.object(decisions, "decide", overtaken), pytest.raises(Conflict) as caught:
        carried(row)
    assert (caught.value.error_code, caught.value.details["by"]) == ("already_decided", "ben")


def test_when_nothing_is_acknowledged_the_answer_says_to_retry_the_same_key() -> None:
    row = one()
    with at_commit("_decide", LANDED, times=2), pytest.raises(CommitOutcomeUnknown) as caught:
        carried(row)
    # The second one only replayed; what it could not confirm is still one decision.
    assert "same decision_id" in caught.value.way_out
    make_due(row)
    answer = carried(row)
    assert (answer.http_status, answer.replayed) == (200, True)
    assert acts_of(row).count("decided") == 1
