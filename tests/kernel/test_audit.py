"""The audit trail: written with the act, append-only, chained per subject (M2)."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from kernel import audit
from kernel.audit.trail import GENESIS, AlreadyDone, digest
from kernel.errors import KernelError
from kernel.models import AuditRow
from kernel.transactions import transaction

OLGA = audit.Actor("user", "olga", request_id="http_1")


@transaction
def act(*, object_id: str = "o-1", actor: audit.Actor = OLGA, fail: bool = False, **more: Any):
    row = audit.append_in_tx(
        actor=actor, action="thing.change", kind="thing", object_id=object_id, **more
    )
    if fail:
        raise ValueError("the act failed")
    return row


def rows(subject: str = "thing:o-1") -> list[AuditRow]:
    return list(AuditRow.objects.filter(subject=subject).order_by("sequence"))


def found() -> list[tuple[str, int]]:
    return [(fault.subject, fault.sequence) for fault in audit.verify()]


def test_a_row_says_who_did_what_to_which_object_and_why(kernel_db: None) -> None:
    act(before={"a": 1}, after={"a": 2}, reason="because")
    (row,) = rows()
    assert (row.actor_kind, row.actor_id, row.action) == ("user", "olga", "thing.change")
    assert (row.before_text, row.after_text, row.reason) == ('{"a": 1}', '{"a": 2}', "because")
    assert row.request_id == "http_1"
    assert (row.sequence, row.previous_sha256) == (1, GENESIS)


def test_a_failed_act_leaves_no_row(kernel_db: None) -> None:
    with pytest.raises(ValueError, match="the act failed"):
        act(fail=True)
    assert rows() == []


def test_a_row_is_never_written_outside_its_acts_transaction(kernel_db: None) -> None:
    with pytest.raises(KernelError, match="needs a transaction"):
        audit.append_in_tx(actor=OLGA, action="x", kind="thing", object_id="o-1")


def test_each_subject_has_its_own_chain(kernel_db: None) -> None:
    for object_id in ("o-1", "o-2", "o-1", "O-1"):
        act(object_id=object_id)
    assert [row.sequence for row in rows()] == [1, 2]
    assert [row.sequence for row in rows("thing:O-1")] == [1]
    first, second = rows()
    assert second.previous_sha256 == first.sha256
    assert found() == []


@pytest.mark.parametrize(
    "edit",
    [
        {"actor_id": "mallory"},
        {"actor_kind": "system"},
        {"action": "thing.other"},
        {"before_text": "{}"},
        {"after_text": "{}"},
        {"reason": "another"},
        {"request_id": "http_2"},
        {"act_key": "k"},
        {"sha256": "0" * 64},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_an_edit_of_any_field_is_found(kernel_db: None, edit: dict[str, str]) -> None:
    for _ in range(3):
        act(reason="because", after={"a": 2}, before={"a": 1})
    AuditRow.objects.filter(subject="thing:o-1", sequence=2).update(**edit)
    assert ("thing:o-1", 2) in found()


def test_a_moved_time_is_found(kernel_db: None) -> None:
    row = act()
    AuditRow.objects.filter(id=row.id).update(at=row.at + timedelta(microseconds=1))
    assert found() == [("thing:o-1", 1)]


def test_an_edit_that_hashes_itself_again_is_found_at_the_next_row(kernel_db: None) -> None:
    for _ in range(3):
        act()
    edited = rows()[1]
    edited.reason = "forged"
    AuditRow.objects.filter(id=edited.id).update(reason="forged", sha256=digest(edited))
    assert found() == [("thing:o-1", 3)]


def test_a_gap_and_a_reorder_are_found(kernel_db: None) -> None:
    for object_id in ("o-1", "o-2"):
        for _ in range(4):
            act(object_id=object_id)
    AuditRow.objects.filter(subject="thing:o-1", sequence=2).delete()
    second, third = rows("thing:o-2")[1:3]
    AuditRow.objects.filter(id=second.id).update(sequence=99)
    AuditRow.objects.filter(id=third.id).update(sequence=2)
    AuditRow.objects.filter(id=second.id).update(sequence=3)
    faults = found()
    assert ("thing:o-1", 3) in faults
    assert {("thing:o-2", 2), ("thing:o-2", 3)} <= set(faults)


def test_only_the_asked_subjects_are_walked(kernel_db: None) -> None:
    for object_id in ("o-1", "o-2"):
        act(object_id=object_id)
        AuditRow.objects.filter(subject=f"thing:{object_id}").update(reason="forged")
    assert [fault.subject for fault in audit.verify(subject_prefix="thing:o-2")] == ["thing:o-2"]


def test_one_form_acts_once(kernel_db: None) -> None:
    form = audit.Actor("user", "olga", act_key="form-1")
    act(actor=form)
    with pytest.raises(AlreadyDone):
        act(actor=form, object_id="o-2")
    assert rows("thing:o-2") == []
    act(actor=audit.Actor("user", "olga", act_key="form-2"))


def test_a_reason_no_database_could_store_does_not_lose_the_act(kernel_db: None) -> None:
    act(reason="lone \ud800 surrogate and \U0001f600", after={"text": "\ud800"})
    (row,) = rows()
    assert row.reason == "lone ? surrogate and \U0001f600"
    assert found() == []


def test_a_long_reason_is_cut_and_still_verifies(kernel_db: None) -> None:
    act(reason="é" * 5000)
    assert len(rows()[0].reason) == 4000
    assert found() == []


@transaction
def act_on_all(*, object_ids: list[str]) -> None:
    audit.append_all_in_tx(
        actor=OLGA, action="thing.all", kind="thing", after={one: {} for one in object_ids}
    )


def test_one_act_on_many_objects_goes_on_at_the_end_of_each_chain(kernel_db: None) -> None:
    for number in range(5):
        act(reason=f"{number}")
    act(object_id="o-2")
    act_on_all(object_ids=["o-2", "o-1", "o-3"])
    ends = {row.subject: row.sequence for row in AuditRow.objects.filter(action="thing.all")}
    assert ends == {"thing:o-1": 6, "thing:o-2": 2, "thing:o-3": 1}
    assert found() == []


def test_the_ends_of_chains_are_found_without_reading_the_chains(server_db: None) -> None:
    act()
    template = rows()[0]
    AuditRow.objects.bulk_create(
        AuditRow(
            id=f"aud_{subject}_{sequence}",
            subject=f"thing:x-{subject}",
            sequence=sequence,
            actor_kind="user",
            actor_id="olga",
            action="thing.change",
            previous_sha256=GENESIS,
            sha256=GENESIS,
            at=template.at,
        )
        for subject in range(10)
        for sequence in range(1, 301)
    )
    seen: list[tuple[str, Any]] = []

    def keep(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith("SELECT") and "MAX(sequence)" in sql:
            seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE bz_audit")
        cursor.fetchall()
    with connection.execute_wrapper(keep):
        act_on_all(object_ids=[f"x-{number}" for number in range(10)])
    ((sql, params),) = seen
    with connection.cursor() as cursor:
        cursor.execute("FLUSH STATUS")
        cursor.execute(sql, params)
        assert len(cursor.fetchall()) == 10
        cursor.execute("SHOW STATUS LIKE 'Handler_read%'")
        read = sum(int(count) for _name, count in cursor.fetchall())
    assert read < 200, "of 3,000 rows"


def test_two_appends_at_once_make_one_chain(server_db: None) -> None:
    met = threading.Barrier(4)

    def work() -> None:
        try:
            met.wait(timeout=10)
            for _ in range(5):
                act()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert [row.sequence for row in rows()] == list(range(1, 21))
    assert found() == []
