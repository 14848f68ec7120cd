"""Exports of acts and requests: whole, once, through kills; removed in time (F9, M2)."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from unittest import mock

import pytest

from kernel import audit, operations, transactions
from kernel.audit.trail import append_in_tx
from kernel.conf import override
from kernel.errors import Conflict, Gone, InvalidInput
from kernel.models import AuditRow, Export, ExportChunk, Operation, OperationItem, Request
from kernel.operations import AuditFilter, RequestFilter, exports, freezing
from kernel.operations.sets import ExportFilter
from kernel.retention import purge_exports
from kernel.transactions import transaction
from tests.delivery.letters import ANN
from tests.operations.place import acts_of, let_lease_end, reread, work_off, worker
from tests.support.product import admitted, ask, make_account, make_service

pytestmark = pytest.mark.usefixtures("kernel_db")

EVIL = '=HYPERLINK("http://evil")'


@transaction
def acts(*, count: int, action: str = "thing.change", object_id: str = "o-1") -> None:
    for number in range(count):
        append_in_tx(
            actor=audit.Actor("user", "olga"),
            action=action,
            kind="thing",
            object_id=object_id,
            after={"n": number},
            reason=EVIL,
        )


def planned(wanted: ExportFilter, format: str = "jsonl") -> Operation:
    return operations.plan_export(filter=wanted, format=format, actor=ANN, reason="for the auditor")


def running(wanted: ExportFilter, format: str = "jsonl") -> Operation:
    row = planned(wanted, format)
    return operations.apply(operation_id=row.id, actor=ANN, seen_digest=row.digest)


def file_of(row: Operation) -> bytes:
    return b"".join(operations.pieces_of(operation_id=row.id))


def is_told_right(row: Operation) -> bool:
    """Whether the stored facts are those of the file."""
    export, data = operations.whole_file(operation_id=row.id), file_of(row)
    return (export.sha256, export.byte_count, export.chunk_count) == (
        hashlib.sha256(data).hexdigest(),
        len(data),
        ExportChunk.objects.filter(operation_id=row.id).count(),
    )


def test_acts_become_lines_that_verify_in_the_order_of_time() -> None:
    acts(count=25)
    acts(count=3, action="thing.other", object_id="o-2")
    row = running(AuditFilter(actions=("thing.change",), actor_id="olga", subject="thing:o-1"))
    assert row.item_count == 25 and json.loads(row.split_text) == {"thing.change": 25}
    acts(count=2)
    work_off(worker(), limit=10)
    assert reread(row).state == "done" and is_told_right(row)
    found = file_of(row).splitlines(keepends=True)
    assert [json.loads(line)["sequence"] for line in found] == list(range(1, 26)), "no newcomer"
    assert list(audit.compare(found)) == []
    assert operations.whole_file(operation_id=row.id).row_count == 25
    assert acts_of(row) == ["plan", "apply"]


def test_a_csv_has_one_head_and_no_cell_that_a_spreadsheet_runs() -> None:
    acts(count=12)
    row = running(AuditFilter(subject="thing:o-1"), "csv")
    work_off(worker(), limit=5)
    lines = list(csv.reader(io.StringIO(file_of(row).decode("utf-8-sig"))))
    assert tuple(lines[0]) == exports.AUDIT_HEAD and len(lines) == 13
    assert {line[lines[0].index("reason")] for line in lines[1:]} == {f"'{EVIL}"}
    assert is_told_right(row)


@pytest.mark.parametrize("format", exports.FORMATS)
def test_requests_are_exported_without_their_bodies(format: str) -> None:
    make_account()
    make_account("globex")
    make_service(base_url="http://127.0.0.1:9")
    ids = [admitted(ask(f"op-{number}")).id for number in range(5)]
    row = running(RequestFilter(account_id="acme", result_state="admitted"), format)
    work_off(worker(), limit=2)
    assert reread(row).state == "done" and is_told_right(row)
    data = file_of(row).decode("utf-8-sig")
    if format == "csv":
        found = list(csv.DictReader(io.StringIO(data)))
    else:
        found = [json.loads(line) for line in data.splitlines()]
    assert [one["id"] for one in found] == sorted(ids)
    assert set(found[0]) == set(exports.REQUEST_HEAD)
    assert "messages" not in data
    with pytest.raises(Conflict) as refusal:
        planned(RequestFilter(account_id="globex"))
    assert refusal.value.error_code == "nothing_matches"


def test_what_is_no_filter_and_no_format_is_refused() -> None:
    acts(count=1)
    for wanted, format in (
        (AuditFilter(), "xml"),
        (AuditFilter(subject="ä"), "csv"),
        (AuditFilter(actions=("a b",)), "csv"),
        (RequestFilter(account_id="?"), "csv"),
    ):
        with pytest.raises(InvalidInput):
            planned(wanted, format)
    assert not Export.objects.exists() and not Operation.objects.exists()


def test_pause_resume_and_cancel_hold_and_a_part_is_no_file() -> None:
    acts(count=30)
    row, one = running(AuditFilter(subject="thing:o-1")), worker()
    one.page(limit=10)
    operations.pause(operation_id=row.id, actor=ANN)
    assert one.page(limit=10).scanned == 0
    with pytest.raises(Conflict) as refusal:
        operations.whole_file(operation_id=row.id)
    assert refusal.value.error_code == "export_unfinished"
    operations.resume(operation_id=row.id, actor=ANN)
    one.page(limit=10)
    operations.cancel(operation_id=row.id, actor=ANN)
    assert work_off(one, limit=10) == 0
    assert Export.objects.get(operation_id=row.id).row_count == 20
    with pytest.raises(Conflict):
        operations.whole_file(operation_id=row.id)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_exporter_is_followed_by_another_without_gap_or_repeat(after: bool) -> None:
    acts(count=40)
    row = running(AuditFilter(subject="thing:o-1"), "csv")
    dead = worker("krn_dead")
    dead.page(limit=10)
    real = transactions.commit_unit

    def commit_unit(name: str, attempt: object, block: object) -> object:
        if name == "_record" and not after:
            raise Killed
        result = real(name, attempt, block)  # type: ignore[arg-type]  # passed on
        if name == "_record":
            raise Killed
        return result

    with mock.patch.object(transactions, "commit_unit", commit_unit), pytest.raises(Killed):
        dead.page(limit=10)
    let_lease_end(row)
    work_off(worker("krn_heir"), limit=10)
    assert (reread(row).state, reread(row).interruptions) == ("done", 1)
    lines = list(csv.reader(io.StringIO(file_of(row).decode("utf-8-sig"))))
    column = lines[0].index("sequence")
    assert [int(line[column]) for line in lines[1:]] == list(range(1, 41))
    assert is_told_right(row)


def test_an_owner_that_was_too_slow_writes_no_piece() -> None:
    acts(count=20)
    row, slow = running(AuditFilter(subject="thing:o-1")), worker("krn_slow")
    real = exports.render

    def overtaken(*args: object) -> object:
        piece = real(*args)  # type: ignore[arg-type]  # passed on
        let_lease_end(row)
        with mock.patch.object(exports, "render", real):
            work_off(worker("krn_heir"), limit=10)
        return piece

    with mock.patch.object(exports, "render", overtaken):
        slow.page(limit=10)
    assert reread(row).state == "done" and is_told_right(row)
    assert len(file_of(row).splitlines()) == 20


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(freezing, "CHUNK_ROWS", 4)
    with override(body_chunk_bytes=1024):
        yield


@pytest.mark.parametrize("kind", ["acts", "requests"])
def test_a_large_set_is_frozen_in_the_background_and_written_in_small_pieces(
    small_chunks: None, kind: str
) -> None:
    acts(count=30)
    if kind == "requests":
        make_account()
        make_service(base_url="http://127.0.0.1:9")
        for number in range(30):
            admitted(ask(f"op-{number}"))
    wanted = AuditFilter(subject="thing:o-1") if kind == "acts" else RequestFilter()
    row = planned(wanted)
    assert (row.state, row.item_count) == ("planning", 0)
    work_off(worker())
    row = reread(row)
    count = 30 if kind == "acts" else Request.objects.count()
    assert (row.state, row.item_count) == ("planned", count)
    items = OperationItem.objects.filter(operation_id=row.id).order_by("sequence")
    ids = list(items.values_list("object_id", flat=True))
    assert hashlib.sha256("".join(f"{one}\n" for one in ids).encode()).hexdigest() == row.digest
    operations.apply(operation_id=row.id, actor=ANN, seen_digest=row.digest)
    work_off(worker(), limit=10)
    assert is_told_right(row) and len(file_of(row).splitlines()) == count
    sizes = [len(piece) for piece in operations.pieces_of(operation_id=row.id)]
    assert max(sizes) <= 1024 < sum(sizes)


def test_a_file_whose_retention_is_over_is_gone_and_says_so() -> None:
    acts(count=3)
    row = running(AuditFilter(subject="thing:o-1"))
    work_off(worker())
    sha256 = operations.whole_file(operation_id=row.id).sha256
    with override(export_retention_days=0):
        while purge_exports(limit=2).has_more:
            pass
    with pytest.raises(Gone) as refusal:
        operations.whole_file(operation_id=row.id)
    assert refusal.value.error_code == "export_expired"
    assert file_of(row) == b"" and Export.objects.get(operation_id=row.id).sha256 == sha256
    assert AuditRow.objects.filter(subject="thing:o-1").count() == 3
