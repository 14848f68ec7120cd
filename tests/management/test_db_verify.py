"""manage.py db_verify: schema, ledger of migrations, invariants; the result is kept (H2, K2)."""

from pathlib import Path
from typing import Any

import pytest

from kernel import schema
from kernel.invariants import INVARIANTS
from kernel.models import CheckReport, LedgerRow, SchemaStep
from tests.management.running import done, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")
SUMS = "I11.consumed_is_the_sum_of_the_ledger"


@pytest.fixture(autouse=True)
def house(kernel_db: None, settings: Any, tmp_path: Path) -> None:
    """A database as db_init leaves it, with one charge."""
    settings.VAR_DIR = tmp_path
    schema._record_missing()  # the rest is there: the run's database is migrated
    lives.open_account()
    lives.add_service()
    lives.settled("op-1")


def lose_the_ledger() -> None:
    LedgerRow.objects.all().delete()


def test_a_sound_database_holds_every_invariant_and_the_result_is_kept() -> None:
    out = done("db_verify").out
    assert f"All {len(INVARIANTS)} invariants hold." in out
    assert CheckReport.objects.count() == len(INVARIANTS)
    assert set(CheckReport.objects.values_list("offenders", flat=True)) == {0}
    assert f"{SUMS} (" in done("db_verify", "--all").out


def test_offenders_are_named_kept_and_give_exit_code_1() -> None:
    lose_the_ledger()
    answer = run("db_verify")
    assert answer.code == 1
    assert "invariants do not hold." in answer.error
    assert f"{SUMS} (" in answer.out
    assert "  - acme: " in answer.out
    assert CheckReport.objects.get(name=SUMS).offenders == 1
    document = run("db_verify", "--json").document
    assert document["holds"] is False
    (broken,) = (each for each in document["invariants"] if each["key"] == SUMS)
    assert (broken["holds"], broken["offenders"][0]["id"]) == (False, "acme")


def test_a_look_can_leave_no_trace() -> None:
    done("db_verify", "--no-store")
    assert not CheckReport.objects.exists()


def test_a_missing_migration_is_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**schema.checksums(), "0099_later": "0" * 64}
    monkeypatch.setattr(schema, "checksums", lambda: known)
    answer = run("db_verify")
    assert answer.code == 2
    assert "missing ['0099_later']" in answer.error
    assert "Run manage.py db_init." in answer.error
    assert not CheckReport.objects.exists()


def test_unknown_or_changed_history_is_exit_code_2_and_db_init_is_no_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    SchemaStep.objects.filter(name="0064_baseline").update(checksum="0" * 64)
    answer = run("db_verify")
    assert answer.code == 2
    assert "changed ['0064_baseline']" in answer.error
    assert "Run the version that wrote it" in answer.error
    known = dict(schema.checksums())
    del known["0067_delivery_dlq_replay"]
    monkeypatch.setattr(schema, "checksums", lambda: known)
    assert "unknown ['0067_delivery_dlq_replay']" in run("db_verify").error


def test_a_migration_without_its_ledger_row_is_exit_code_2_until_db_init_adds_it() -> None:
    SchemaStep.objects.filter(name="0065_usage_reconciliation_scan").delete()
    answer = run("db_verify")
    assert answer.code == 2
    assert "lacks ['0065_usage_reconciliation_scan']" in answer.error
    done("db_init")
    done("db_verify")
