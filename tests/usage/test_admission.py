"""Admission: durable once per (account, operation id); what a repeat gets (A1, A2, A8)."""

import dataclasses
import threading
from collections.abc import Callable
from unittest import mock

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from kernel import usage
from kernel.errors import (
    CommitOutcomeUnknown,
    Conflict,
    Forbidden,
    InvalidId,
    InvalidInput,
    NotFound,
)
from kernel.models import Account, Body, Request
from kernel.usage.admission import (
    Admission,
    Submission,
    admit_again,
    check_operation_id,
    content_sha256,
)
from kernel.usage.bodies import read_body
from tests.support.commits import LANDED, VANISHED, at_commit
from tests.support.product import (
    OPERATOR,
    admitted,
    again,
    ask,
    assert_invariants,
    make_account,
    make_service,
)
from tests.usage.flow import Statements, admit_all, at_once

# 1.00 USD of cap; a body of B bytes and 100 output tokens hold B x 2500 + 100 x 10000 nano-USD.
CAP = 1_000_000_000


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_service(max_output_tokens=100)


def only(found: list[Admission | Exception]) -> Admission:
    (one,) = found
    assert isinstance(one, Admission), one
    return one


def refusal_of(found: list[Admission | Exception]) -> Exception:
    (one,) = found
    assert isinstance(one, Exception), one
    return one


# --- identity ---------------------------------------------------------------------------------


def test_the_same_content_under_the_same_id_is_the_same_request(acme: None) -> None:
    item = ask("op-1")
    first, repeat = only(admit_all(item)), only(admit_all(again(item)))
    assert first.created
    assert not repeat.created
    assert repeat.request.id == first.request.id
    assert Request.objects.count() == 1
    assert Body.objects.count() == 1
    assert_invariants()


def test_other_content_under_the_same_id_is_a_conflict_and_changes_nothing(acme: None) -> None:
    original = admitted(ask("op-1"))
    refusal = refusal_of(admit_all(ask("op-1", temperature=0.5)))
    assert isinstance(refusal, Conflict)
    assert refusal.error_code == "operation_conflict"
    assert Request.objects.get().content_sha256 == original.content_sha256
    assert read_body(request_id=original.id, kind="request") == ask("op-1").body


def test_ids_are_per_account(acme: None) -> None:
    make_account("other")
    first, second = admitted(ask("op-1")), admitted(ask("op-1", account_id="other"))
    assert first.id != second.id


def test_content_is_account_path_and_raw_body_without_ambiguity() -> None:
    def sha(account: str = "a", path: str = "/p", body: bytes = b"{}") -> str:
        return content_sha256(account_id=account, path=path, body=body)

    assert len({sha(), sha("ab"), sha(path="/q"), sha(body=b"{ }"), sha("a/", "p")}) == 5


@pytest.mark.parametrize("value", ["", "a b", "é", "x" * 129, None, 5])
def test_an_operation_id_outside_the_alphabet_is_refused(value: object) -> None:
    with pytest.raises(InvalidId):
        check_operation_id(value)


@pytest.mark.parametrize("value", ["job:", "job:1:2"])
def test_ids_of_the_kernels_own_jobs_are_reserved(value: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_operation_id(value)
    assert refusal.value.error_code == "reserved_operation_id"
    assert check_operation_id("JOB:1") == "JOB:1"
    assert check_operation_id("myjob:1") == "myjob:1"


# --- one transaction --------------------------------------------------------------------------


def test_killed_before_its_commit_nothing_exists(acme: None) -> None:
    def lost(wrapper: BaseDatabaseWrapper) -> None:
        raise OperationalError(2013, "lost")

    with mock.patch.object(BaseDatabaseWrapper, "_commit", lost):
        with pytest.raises(CommitOutcomeUnknown):
            admit_all(ask("op-1"))
        connection.close()
    assert not Request.objects.exists()
    assert not Body.objects.exists()


def test_a_replacement_waits_for_the_commit_of_the_other_and_finds_it(
    server_db: None, acme: None
) -> None:
    item = ask("op-1")
    found = _while_another_commits(lambda: admit_all(item), lambda: admit_all(again(item)))
    first, repeat = (only(outcome) for outcome in found)
    assert first.created
    assert not repeat.created, "an insert on the unique key waits where a SELECT would have missed"
    assert repeat.request.id == first.request.id


def test_a_replacement_of_a_rolled_back_admission_creates_the_request(
    server_db: None, acme: None
) -> None:
    item = ask("op-1")
    found = _while_another_commits(
        lambda: admit_all(item), lambda: admit_all(again(item)), land=False
    )
    assert isinstance(found[0], CommitOutcomeUnknown)
    assert only(found[1]).created
    assert Request.objects.count() == 1


def _while_another_commits(
    first: Callable[[], object], second: Callable[[], object], *, land: bool = True
) -> list:
    """Start `second` while `first` is at its COMMIT; then the commit lands, or is lost."""
    real = BaseDatabaseWrapper._commit
    at_it, go, names = threading.Event(), threading.Event(), []

    def commit(wrapper: BaseDatabaseWrapper) -> None:
        if not names:
            names.append(threading.current_thread().name)
            at_it.set()
            assert go.wait(timeout=10)
            if not land:
                raise OperationalError(2013, "lost")
        real(wrapper)

    def follow() -> object:
        assert at_it.wait(timeout=10)
        threading.Timer(0.2, go.set).start()
        return second()

    with mock.patch.object(BaseDatabaseWrapper, "_commit", commit):
        return at_once(first, follow)


@pytest.mark.parametrize("what", [LANDED, VANISHED])
def test_after_a_lost_acknowledgement_the_submission_knows_its_own_row(
    acme: None, what: str
) -> None:
    item = ask("op-1")
    with at_commit("admit", what), pytest.raises(CommitOutcomeUnknown):
        admit_all(item)
    found = only(admit_again(items=[item]))
    assert found.created, "it is the one to go on"
    assert Request.objects.count() == 1
    assert Body.objects.count() == 1
    assert not only(admit_all(again(item))).created


@pytest.mark.parametrize("last", [LANDED, VANISHED])
def test_two_lost_acknowledgements_in_a_row_do_not_make_it_a_stranger(
    acme: None, last: str
) -> None:
    item = ask("op-1")
    with at_commit("admit", VANISHED), pytest.raises(CommitOutcomeUnknown):
        admit_all(item)
    with at_commit("admit_again", last), pytest.raises(CommitOutcomeUnknown):
        admit_again(items=[item])
    assert only(admit_again(items=[item])).created
    assert Request.objects.count() == 1


def test_another_caller_is_not_taken_for_the_one_that_lost_its_acknowledgement(acme: None) -> None:
    item = ask("op-1")
    with at_commit("admit", LANDED), pytest.raises(CommitOutcomeUnknown):
        admit_all(item)
    assert not only(admit_again(items=[again(item)])).created


def test_a_lost_acknowledgement_under_a_cap_holds_once(kernel_db: None) -> None:
    make_account(cap_nano=CAP)
    make_service(max_output_tokens=100)
    item = ask("op-1")
    with at_commit("admit", LANDED), pytest.raises(CommitOutcomeUnknown):
        admit_all(item)
    found = only(admit_again(items=[item]))
    assert Account.objects.get().held_nano == found.request.hold_nano > 0
    assert_invariants()


# --- many at once -----------------------------------------------------------------------------


def test_a_batch_answers_each_submission_in_its_place(acme: None) -> None:
    old = ask("old")
    admitted(old)
    new = ask("new")
    found = admit_all(
        again(old),
        new,
        ask("old", temperature=1),
        ask("no-service", model="nothing"),
        again(new),
        ask("new", temperature=1),
        ask("no-account", account_id="ghost"),
    )
    kinds = [
        (one.created, one.request.operation_id) if isinstance(one, Admission) else type(one)
        for one in found
    ]
    assert kinds == [
        (False, "old"),
        (True, "new"),
        Conflict,
        NotFound,
        (False, "new"),
        Conflict,
        NotFound,
    ]
    assert_invariants()


@pytest.mark.parametrize("model", ["日本", "x" * 200, "a b", "İ", "gpt\x00"])
def test_a_model_that_is_no_id_is_its_callers_error_alone(acme: None, model: str) -> None:
    good, bad = admit_all(ask("good"), ask("bad", model=model))
    assert isinstance(good, Admission)
    assert isinstance(bad, NotFound)
    assert bad.error_code == "service_not_found"


def test_sixteen_at_once_with_one_key_create_one_request(acme: None) -> None:
    item = ask("op-1")
    found = at_once(*(lambda: admit_all(again(item)) for _ in range(16)))
    admissions = [only(outcome) for outcome in found]
    assert sum(one.created for one in admissions) == 1
    assert len({one.request.id for one in admissions}) == 1
    assert_invariants()


# --- who may, and on what ---------------------------------------------------------------------


def test_a_closed_account_is_forbidden_and_its_repeats_are_still_answered(acme: None) -> None:
    item = ask("op-1")
    admitted(item)
    usage.change_account(account_id="acme", version=1, actor=OPERATOR, active=False)
    assert isinstance(refusal_of(admit_all(ask("op-2"))), Forbidden)
    assert not only(admit_all(again(item))).created


def test_a_service_serves_its_own_account_only(kernel_db: None) -> None:
    make_account("a")
    make_account("b")
    make_service("private", account_id="a")
    admitted(ask("op-1", account_id="a", model="private"))
    refusal = refusal_of(admit_all(ask("op-1", account_id="b", model="private")))
    assert isinstance(refusal, NotFound)


def test_a_retired_service_takes_no_request_and_its_repeats_are_still_answered(acme: None) -> None:
    item = ask("op-1")
    admitted(item)
    usage.change_service(service_id="gpt", version=1, actor=OPERATOR, active=False)
    assert isinstance(refusal_of(admit_all(ask("op-2"))), NotFound)
    assert not only(admit_all(again(item))).created


def test_many_repeats_of_a_closed_account_are_looked_up_together(acme: None) -> None:
    items = [ask(f"op-{number}") for number in range(12)]
    admit_all(*items)
    usage.change_account(account_id="acme", version=1, actor=OPERATOR, active=False)

    def statements(*batch: Submission) -> int:
        seen = Statements()
        with connection.execute_wrapper(seen):
            found = admit_all(*map(again, batch))
        assert [one.request.operation_id for one in found if isinstance(one, Admission)] == [
            item.operation_id for item in batch
        ]
        return len(seen.texts)

    assert statements(*items) == statements(items[0])


def test_without_a_price_a_request_is_refused_unless_the_account_allows_it(kernel_db: None) -> None:
    make_account("strict")
    make_account("loose", allow_unpriced=True)
    make_service(price_provider="", price_model="")
    refusal = refusal_of(admit_all(ask("op-1", account_id="strict")))
    assert isinstance(refusal, InvalidInput)
    assert (refusal.error_code, refusal.field) == ("unpriced_service", "model")
    row = admitted(ask("op-1", account_id="loose"))
    assert (row.price_text, row.hold_nano) == ("", 0)


def test_price_and_multiplier_are_frozen_at_admission(acme: None) -> None:
    usage.change_account(
        account_id="acme", version=1, actor=OPERATOR, multiplier_millionths=1_500_000
    )
    row = admitted(ask("op-1"))
    usage.change_account(
        account_id="acme", version=2, actor=OPERATOR, multiplier_millionths=9_000_000
    )
    stored = Request.objects.get(id=row.id)
    assert stored.multiplier_millionths == 1_500_000
    assert '"gpt-4o"' in stored.price_text


# --- bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filler",
    [b'\\"' * 100, "日本 🙂".encode(), b" ", b"\\u0000"],
    ids=["quotes", "unicode", "blanks", "nul"],
)
def test_the_callers_bytes_are_kept_exactly(acme: None, filler: bytes) -> None:
    head, tail = b'{"model":"gpt","messages":[{"role":"user","content":"', b'"}]}'
    raw = head + filler * 7 + tail
    row = admitted(ask("op-1", raw=raw))
    assert read_body(request_id=row.id, kind="request") == raw


def test_a_batch_of_large_bodies_of_quotes_fits_the_servers_packets(acme: None) -> None:
    """Every byte is escaped on its way to MySQL, which doubles the statement."""
    head, tail = b'{"model":"gpt","messages":[{"role":"user","content":"', b'"}]}'
    large = head + b'\\"' * (4 * 1024 * 1024) + tail
    items = [ask("large", raw=large)]
    items += [ask(f"op-{n}", raw=head + b'\\"' * 200_000 + tail) for n in range(20)]
    assert all(isinstance(one, Admission) for one in admit_all(*items))
    row = Request.objects.get(operation_id="large")
    assert read_body(request_id=row.id, kind="request") == large
    assert Body.objects.filter(request_id=row.id).count() == 9


def test_a_submission_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ask("op-1").operation_id = "op-2"  # type: ignore[misc]  # that is the point
