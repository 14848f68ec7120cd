"""What db_init says and refuses: the plan, progress, waiting, busy tables, foreign history (H2)."""

import contextlib
import threading
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from kernel import doctor, schema
from kernel.conf import override
from kernel.errors import Conflict
from kernel.models import SchemaStep
from tests.kernel.test_schema import NAMES, fresh_db, fresh_url, only, shape
from tests.management.running import run
from tests.support.wait import wait_until

__all__ = ["fresh_db", "fresh_url"]


def test_a_dry_run_lists_every_step_and_changes_nothing(
    fresh_db: None, capsys: pytest.CaptureFixture[str]
) -> None:
    only(NAMES[1])
    before = shape()
    call_command("db_init", dry_run=True)
    out = capsys.readouterr().out
    files = MigrationLoader(None).disk_migrations
    for name in NAMES[2:]:
        steps = files["kernel", name].operations
        assert f"would apply {name}: {len(steps)} steps" in out
        assert all(f"  {step.describe()}" in out for step in steps)
    assert NAMES[1] not in out
    assert (shape(), schema.state().missing) == (before, NAMES[2:])


def test_progress_names_each_statement_before_it_runs(fresh_db: None) -> None:
    only(NAMES[0])
    said: list[str] = []
    assert schema.migrate(say=said.append) == NAMES[1:]
    first = said.index(f"applying {NAMES[1]}")
    assert said[first + 1].startswith("  CREATE INDEX"), said[:3]
    assert any(line.startswith("  ALTER TABLE") and "bz_jobs" in line for line in said)
    assert max(map(len, said)) <= 120


def test_history_that_only_the_ledger_knows_is_unknown_too(kernel_db: None) -> None:
    schema.migrate()
    SchemaStep.objects.create(
        name="0099_from_the_future", checksum="0" * 64, applied_at="2026-01-01T00:00:00Z"
    )
    assert schema.state().unknown == ("0099_from_the_future",)
    with pytest.raises(Conflict, match="0099_from_the_future"):
        schema.plan()
    answer = run("db_init")
    assert (answer.code, "0099_from_the_future" in answer.error) == (2, True)
    assert run("db_init", "--check").code == 1


def test_a_second_migrator_says_that_it_waits_and_goes_on_when_the_first_has_ended(
    kernel_db: None, settings: Any, tmp_path: Any
) -> None:
    settings.VAR_DIR = tmp_path
    said: list[str] = []
    ended = threading.Event()

    def second() -> None:
        try:
            schema.migrate(say=said.append)
            ended.set()
        finally:
            connection.close()

    with schema._lock(said.append):
        thread = threading.Thread(target=second)
        thread.start()
        wait_until(lambda: bool(said), about="the second migrator says that it waits")
        assert "another db_init holds the lock" in said[0]
        assert not ended.is_set()
    thread.join(timeout=20)
    assert ended.is_set()


def test_what_somebody_dropped_is_said_by_every_command_that_looks(fresh_db: None) -> None:
    schema.migrate()
    assert schema.state().ready
    with connection.cursor() as cursor:
        on = " ON bz_usage_requests" if connection.vendor == "mysql" else ""
        cursor.execute(f"DROP INDEX bz_usage_req_settlement{on}")
    assert schema.state().ready, "slow is not wrong"
    lost = ["index bz_usage_req_settlement on bz_usage_requests is missing"]
    assert schema.differences() == lost
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE bz_check_reports")
        cursor.execute("ALTER TABLE bz_jobs DROP COLUMN approval_continuation_keys")
    found = schema.state()
    parts = ("table bz_check_reports", "column bz_jobs.approval_continuation_keys")
    assert (set(found.gone), found.usable) == (set(parts), False)
    for words in (["db_verify"], ["db_init"], ["db_init", "--check"]):
        answer = run(*words)
        assert answer.code == (1 if "--check" in words else 2), words
        assert all(part in answer.error for part in parts), answer.error
        assert lost[0] in answer.error
        assert "stop the writers" in answer.error and "upgrade.md" in answer.error
    findings = {each.check: each for each in doctor.examine()}
    tables = findings["database.tables"]
    assert (tables.level, findings["database.answers"].level) == ("failure", "ok")
    assert all(part in tables.seen for part in parts) and "upgrade.md" in tables.todo


def test_a_busy_table_ends_the_run_in_time_and_the_next_one_goes_on(
    server_db: None, fresh_db: None
) -> None:
    only(NAMES[0])
    other = connection.copy()
    with contextlib.closing(other), other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT COUNT(*) FROM bz_usage_requests")  # holds its metadata lock
        with override(ddl_lock_wait_seconds=1):
            answer = run("db_init")
        assert answer.code == 1
        assert "run manage.py db_init again" in answer.error
    assert run("db_init").code == 0
    assert schema.state().ready


def test_every_migration_since_0066_refuses_reversal() -> None:
    files = MigrationLoader(None).disk_migrations
    reversible = [
        name
        for (app, name), migration in files.items()
        if app == "kernel" and name >= "0066"
        if all(operation.reversible for operation in migration.operations)
    ]
    assert reversible == []


def test_the_codes_are_in_the_help() -> None:
    for name in ("db_init", "db_verify"):
        text = _help_of(name)
        assert all(word in text for word in ("0", "1", "2")), name
        assert "xit code" in text


def _help_of(name: str) -> str:
    return load_command_class("kernel", name).create_parser("manage.py", name).format_help()


def test_a_refused_option_is_no_migration() -> None:
    with pytest.raises(CommandError):
        call_command("db_init", "--no-such-option")
