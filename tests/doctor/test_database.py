"""The doctor on the database: each setting that would break a promise is found on a real server."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from kernel import clock, doctor, schema
from kernel.audit import Actor
from kernel.conf import MIB
from kernel.doctor import database
from kernel.models import AuditRow, CheckReport, PassStatus, SchemaStep
from tests.doctor.conftest import WELL, house, levels
from tests.management.running import done, run, run_process
from tests.support.fixtures import server_db

__all__ = ["house", "server_db"]
ANN = Actor("user", "ann", act_key="k" * 22)


@pytest.fixture
def well(house: None) -> None:
    """Verified, and maintained a moment ago."""
    done("db_verify")
    now = clock.db_now()
    PassStatus.objects.create(name="settlement", owner="krn-1", updated_at=now)


def test_a_sound_database_is_well_on_every_engine(well: None) -> None:
    ailing = {name: level for name, level in levels().items() if level != "ok"}
    assert ailing == {}, ailing


def test_a_session_that_something_overrides_is_found(server_db: None, well: None) -> None:
    is_mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]  # mysql only
    isolation = "tx_isolation" if is_mariadb else "transaction_isolation"
    for check, name, value in (
        ("database.time_zone", "time_zone", "'+02:00'"),
        ("database.charset", "character_set_connection", "latin1"),
        ("database.isolation", isolation, "'REPEATABLE-READ'"),
        ("database.sql_mode", "sql_mode", "''"),
        ("database.wait_timeout", "wait_timeout", "28800"),
        ("database.wait_timeout", "innodb_lock_wait_timeout", "50"),
    ):
        assert levels()[check] == "ok"
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION {name} = {value}")
        assert levels()[check] != "ok", name
        connection.close()


def test_a_server_that_may_lose_commits_or_takes_no_bodies_is_found(
    server_db: None, well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said, not set: the server belongs to every test of the run."""
    asked = database._variables
    said: dict[str, str] = {}
    monkeypatch.setattr(database, "_variables", lambda scope: {**asked(scope), **said})
    for check, name, value, level in (
        ("database.durability", "innodb_flush_log_at_trx_commit", "2", "failure"),
        ("database.durability", "innodb_doublewrite", "OFF", "failure"),
        ("database.max_allowed_packet", "max_allowed_packet", str(8 * MIB), "warning"),
        ("database.max_allowed_packet", "max_allowed_packet", str(MIB), "failure"),
        ("database.one_primary", "wsrep_on", "ON", "warning"),
        ("database.writable", "read_only", "ON", "failure"),
    ):
        said.clear()
        assert levels()[check] == "ok"
        said[name] = value
        assert levels()[check] == level, (name, value)


def test_a_server_without_skip_locked_is_found(
    server_db: None, well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert levels()["database.version"] == "ok"
    monkeypatch.setattr(connection.features, "has_select_for_update_skip_locked", False)
    assert levels()["database.version"] == "failure"


def test_binary_logs_must_be_synced_and_written_by_row(
    server_db: None, well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = database._variables
    more = {"log_bin": "ON", "sync_binlog": "0", "binlog_format": "STATEMENT"}
    monkeypatch.setattr(database, "_variables", lambda scope: {**asked(scope), **more})
    seen = levels()
    assert (seen["database.durability"], seen["database.binlog_format"]) == ("failure", "failure")


def test_a_table_without_transactions_is_found(server_db: None, well: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE zz_other (id INT) ENGINE=MyISAM")
        try:
            assert levels()["database.engine"] == "failure"
        finally:
            cursor.execute("DROP TABLE zz_other")


def test_an_embedded_file_that_is_not_synced_is_found(well: None) -> None:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous=OFF")
        assert levels()["database.durability"] == "failure"


@pytest.mark.parametrize(
    ("seconds", "level"), [(0, "ok"), (-5, "warning"), (5, "warning"), (90, "failure")]
)
def test_a_clock_that_is_off_is_found(
    well: None, monkeypatch: pytest.MonkeyPatch, seconds: int, level: str
) -> None:
    monkeypatch.setattr(clock, "db_now", lambda: clock.now() + timedelta(seconds=seconds))
    assert {each.check: each.level for each in database.check_database()}["host.clock"] == level


def test_missing_and_foreign_migrations_are_failures_that_name_the_way_out(
    well: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {**schema.checksums(), "0099_later": "0" * 64}
    monkeypatch.setattr(schema, "checksums", lambda: known)
    (found,) = (each for each in doctor.examine(environ=WELL) if "migrations" in each.check)
    assert (found.level, found.todo) == ("failure", "Run manage.py db_init.")
    assert "0099_later" in found.seen
    SchemaStep.objects.filter(name="0064_baseline").update(checksum="0" * 64)
    assert levels()["database.migrations"] == "failure"


def test_nobody_maintains_nobody_verified_and_what_is_broken_are_found(house: None) -> None:
    seen = levels()
    assert (seen["maintenance"], seen["database.invariants"]) == ("warning", "warning")
    old = clock.now() - timedelta(days=30)
    PassStatus.objects.create(name="settlement", owner="krn-1", updated_at=old)
    CheckReport.objects.create(name="I01.x", offenders=0, checked_at=old)
    seen = levels()
    assert (seen["maintenance"], seen["database.invariants"]) == ("failure", "warning")
    CheckReport.objects.update(offenders=1)
    assert levels()["database.invariants"] == "failure"


def test_a_database_that_is_away_is_one_finding_and_exit_code_2(tmp_path: Any) -> None:
    answer = run_process("doctor", url="mysql://root@127.0.0.1:9/none", folder=tmp_path)
    assert answer.code == 2
    assert "failure  database.answers: no (2" in answer.out
    assert "secrets.BAILING_API_TOKEN: set" in answer.out
    assert "Traceback" not in answer.error + answer.out
    assert "synthetic" not in answer.out


# --- the last findings ------------------------------------------------------------------------


def test_the_last_findings_are_kept_worst_first_audited_and_replaced(house: None) -> None:
    assert doctor.last_findings() == []
    done("db_verify")
    reports = CheckReport.objects.count()
    findings = doctor.examine(environ=WELL)
    doctor.store_findings(findings=findings, actor=ANN)
    kept = doctor.last_findings()
    assert {each.finding for each in kept} == set(findings)
    order = [doctor.LEVELS.index(each.finding.level) for each in kept]
    assert order == sorted(order, reverse=True)
    act = AuditRow.objects.get(action="doctor.run")
    assert (act.actor_id, f'"checks":{len(findings)}' in act.after_text.replace(" ", "")) == (
        "ann",
        True,
    )
    doctor.store_findings(findings=findings[:1], actor=Actor("user", "ann"))
    assert [each.finding for each in doctor.last_findings()] == findings[:1]
    done("db_verify")
    assert len(doctor.last_findings()) == 1, "db_verify leaves the doctor's rows"
    assert CheckReport.objects.count() == reports + 1


def test_the_exit_code_is_the_worst_level(house: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def visit(level: str) -> list[doctor.Finding]:
        return [doctor.Finding("a", "ok", "fine"), doctor.Finding("b", level, "seen", "do this")]

    for code, level in enumerate(doctor.LEVELS):
        monkeypatch.setattr(doctor, "examine", lambda level=level: visit(level))
        if code == 0:
            assert "2 checks: 2 ok, 0 warning, 0 failure." in done("doctor").out
            continue
        with pytest.raises(SystemExit) as ended:
            run("doctor", "--json")
        assert ended.value.code == code
