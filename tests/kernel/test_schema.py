"""db_init: numbered migrations, a lock, a ledger of checksums; upgrades keep every row (H1-H4)."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import load_backend
from django.utils import timezone  # only to fill rows

from console.database import database
from kernel import ddl, schema, usage
from kernel.errors import Conflict, Unavailable
from kernel.models import Continuation, DeadLetter, Job, Request, SchemaStep
from kernel.usage.dispatch import dispatch, order
from kernel.usage.outcomes import Answered, classify
from tests.support.environment import PLAIN, SYNTHETIC
from tests.support.product import admitted, ask, make_account, make_service, reread

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "0064_baseline",
    "0065_usage_reconciliation_scan",
    "0066_approval_continuations",
    "0067_delivery_dlq_replay",
    "0068_agent_jobs",
    "0069_delivery",
    "0070_sign_in",
    "0071_retention",
    "0072_preferences",
    "0073_dead_letter_lists",
)
# However slow the machine is, the second one waits until the first one has ended.
PATIENT_DB_INIT = """
import django
django.setup()
from django.core.management import call_command
from kernel import schema
schema.LOCK_WAIT_SECONDS = 300
call_command("db_init")
"""
LONG_TEXT = "日本語 🙂 naïve " * 5000


@pytest.fixture
def fresh_url(request: pytest.FixtureRequest, kernel_db: None, tmp_path: Path) -> str:
    """The URL of an empty database of the run's engine."""
    if connection.vendor == "mysql":
        return request.getfixturevalue("mysql_schema")
    return f"sqlite:///{tmp_path / 'fresh.sqlite3'}"


@pytest.fixture
def fresh_db(fresh_url: str, tmp_path: Path, settings: Any) -> Iterator[None]:
    """This thread works on an empty database without tables."""
    settings.VAR_DIR = tmp_path
    entry = database(fresh_url, default_path=tmp_path / "unused.sqlite3")
    entry = connections.configure_settings({"default": entry})["default"]
    before = connections["default"]
    connections["default"] = load_backend(entry["ENGINE"]).DatabaseWrapper(entry, "default")
    yield
    connections["default"].close()
    connections["default"] = before


def shape() -> dict[str, Any]:
    """Columns, types and keys of every table of ours."""
    found = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table.startswith("bz_"):
                columns = connection.introspection.get_table_description(cursor, table)
                keys = connection.introspection.get_constraints(cursor, table)
                found[table] = (
                    sorted((column.name, column.type_code, column.null_ok) for column in columns),
                    sorted((tuple(k["columns"]), k["unique"], k["index"]) for k in keys.values()),
                )
    return found


@pytest.fixture
def expected_shape(kernel_db: None) -> dict[str, Any]:
    """The shape of the run's own database, which plain migrations made undisturbed."""
    before = connections["default"]
    connections["default"] = connection.copy()
    try:
        return shape()
    finally:
        connections["default"].close()
        connections["default"] = before


def only(name: str) -> None:
    """Apply the migrations up to `name`, as an older version of the product did."""
    call_command("migrate", "kernel", name, verbosity=0)


# --- from nothing -----------------------------------------------------------------------------


def test_db_init_applies_the_numbered_migrations_in_order_one_statement_per_operation(
    fresh_db: None, capsys: pytest.CaptureFixture[str]
) -> None:
    statements: list[str] = []

    def listen(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith(("CREATE", "ALTER", "DROP")) and "bz_" in sql:
            statements.append(sql)
        return execute(sql, *rest)

    assert schema.state().missing == NAMES
    with connection.execute_wrapper(listen):
        call_command("db_init")
    assert [line for line in capsys.readouterr().out.splitlines() if "applying" in line] == [
        f"applying {name}" for name in NAMES
    ]
    assert schema.state().ready
    assert dict(SchemaStep.objects.values_list("name", "checksum")) == schema.checksums()
    files = MigrationLoader(None).disk_migrations
    operations = [operation for name in NAMES for operation in files["kernel", name].operations]
    assert len(statements) == sum(
        type(one).__module__ == "kernel.ddl" and not isinstance(one, ddl.Irreversible)
        for one in operations
    )


def test_a_second_db_init_has_nothing_to_do(
    kernel_db: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        call_command("db_init")
        assert "nothing to do" in capsys.readouterr().out
    call_command("db_init", check=True)


def test_the_check_says_what_is_missing_and_changes_nothing(fresh_db: None) -> None:
    with pytest.raises(CommandError, match="0064_baseline"):
        call_command("db_init", check=True)
    assert connection.introspection.table_names() == []


def test_the_models_are_what_the_migrations_make(kernel_db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_what_is_there_is_walked_over(expected_shape: dict[str, Any], fresh_db: None) -> None:
    schema.migrate()
    forgotten = MigrationRecorder(connection).migration_qs
    forgotten.filter(app="kernel").delete()
    assert schema.migrate() == NAMES
    if connection.vendor == "mysql":
        # SQLite runs Django's own migrations in transactions: nothing half done is left of them.
        forgotten.all().delete()
        assert schema.migrate() == NAMES
    assert shape() == expected_shape


def test_a_kill_between_a_migration_and_its_ledger_row_is_made_good(kernel_db: None) -> None:
    assert not SchemaStep.objects.exists(), "the run's database was made without db_init"
    assert schema.migrate() == ()
    assert dict(SchemaStep.objects.values_list("name", "checksum")) == schema.checksums()


# --- history ----------------------------------------------------------------------------------


def test_a_changed_migration_file_stops_everything(kernel_db: None) -> None:
    schema.migrate()
    SchemaStep.objects.filter(name=NAMES[0]).update(checksum="0" * 64)
    assert schema.state().changed == (NAMES[0],)
    assert not schema.state().usable
    with pytest.raises(Conflict, match=NAMES[0]) as refusal:
        schema.migrate()
    assert refusal.value.error_code == "schema_history"


def test_an_unknown_migration_stops_everything_before_anything_is_touched(fresh_db: None) -> None:
    recorder = MigrationRecorder(connection)
    recorder.ensure_schema()
    recorder.record_applied("kernel", "0099_from_the_future")
    with pytest.raises(Conflict, match="0099_from_the_future"):
        schema.migrate()
    assert shape() == {}
    assert not schema.state().usable


def test_plain_migrate_refuses_and_names_db_init(kernel_db: None, settings: Any) -> None:
    settings.ALLOW_PLAIN_MIGRATE = False
    with pytest.raises(CommandError, match="db_init"):
        call_command("migrate")
    schema.migrate()


@pytest.mark.parametrize("back_to", NAMES[1:3])
def test_a_code_rollback_keeps_rows_and_markers(kernel_db: None, back_to: str) -> None:
    before = shape()
    with pytest.raises(IrreversibleError):
        only(back_to)
    assert shape() == before
    assert schema.state().missing == ()


# --- the lock ---------------------------------------------------------------------------------


def db_init_process(url: str, var: Path) -> "subprocess.Popen[str]":
    environment = {
        **{name: os.environ[name] for name in PLAIN if name in os.environ},
        **SYNTHETIC,
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "BAILING_DATABASE_URL": url,
        "BAILING_VAR_DIR": str(var),
    }
    return subprocess.Popen(
        [sys.executable, "-c", PATIENT_DB_INIT],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.timeout(300)
def test_of_two_processes_at_once_one_migrates_and_the_other_waits(
    fresh_url: str, tmp_path: Path
) -> None:
    processes = [db_init_process(fresh_url, tmp_path) for _ in range(2)]
    outputs = sorted(process.communicate(timeout=240)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert f"applied {len(NAMES)} migrations" in "".join(outputs)
    assert "nothing to do" in "".join(outputs)


def test_a_migrator_that_gets_no_lock_says_so(server_db: None) -> None:
    other = connection.copy()
    with contextlib.closing(other), other.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, 0)", [schema._lock_name()])
        with mock.patch.object(schema, "LOCK_WAIT_SECONDS", 0), pytest.raises(Unavailable):
            schema.migrate()
    schema.migrate()


# --- upgrades ---------------------------------------------------------------------------------


def models_of(name: str) -> Callable[[str], Any]:
    """The models as the migration `name` left them: what an older version wrote with."""
    apps = MigrationLoader(None).project_state(("kernel", name)).apps
    return lambda kind: apps.get_model("kernel", kind)


def old_rows(name: str) -> None:
    """One row of each kind an older version may have left, long Unicode included."""
    model = models_of(name)
    now = timezone.now()
    make_account(name="Müller & Söhne 日本")
    make_service()
    row = admitted(ask("alt-1", content=LONG_TEXT))
    Request.objects.filter(id=row.id).update(error_text=LONG_TEXT)
    model("Job").objects.create(
        id="job-1",
        account_id="acme",
        request_id="r-1",
        input_text=LONG_TEXT,
        due_at=now,
        created_at=now,
        updated_at=now,
    )
    model("Approval").objects.create(
        id="apr-1",
        account_id="acme",
        job_id="job-1",
        request_id="r-1",
        tool="mail",
        arguments_text=LONG_TEXT,
        arguments_sha256="0" * 64,
        risk="high",
        requested_by="agent",
        state="approved",
        decision="approved",
        decision_id="dec-1",
        created_at=now,
        expires_at=now,
        updated_at=now,
    )
    model("DeadLetter").objects.create(
        id="dlq-1",
        account_id="acme",
        notification_id="n-1",
        channel="webhook",
        recipient="https://example.org/日本",
        content=LONG_TEXT.encode(),
        error_fingerprint="f",
        created_at=now,
        updated_at=now,
    )


def all_rows(name: str) -> list[Any]:
    """Every row, in the columns that existed at `name`."""
    kinds = [models_of(name)(kind) for kind in ("Request", "Job", "Approval", "DeadLetter")]
    return [list(kind.objects.order_by("id").values()) for kind in kinds]


@pytest.mark.parametrize("start", NAMES[:-1])
def test_an_upgrade_keeps_every_row_as_it_was(fresh_db: None, start: str) -> None:
    only(start)
    old_rows(start)
    before = all_rows(start)
    applied = schema.migrate()
    assert applied == NAMES[NAMES.index(start) + 1 :]
    assert all_rows(start) == before
    assert schema.state().ready
    assert Job.objects.get().input_text == LONG_TEXT
    assert bytes(DeadLetter.objects.get().content) == LONG_TEXT.encode()
    assert not Continuation.objects.exists(), "old decisions get no continuation"


def test_without_0066_and_0067_model_requests_work_end_to_end(fresh_db: None) -> None:
    only(NAMES[1])
    old_rows(NAMES[1])
    found = schema.state()
    assert found.missing == NAMES[2:]
    assert found.usable
    assert not found.ready
    row = admitted(ask("op-1"))
    (fence,) = dispatch(items=[order(request_id=row.id, owner="krn-1")])
    body = b'{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}'
    answer = Answered(status=200, content_type="application/json", body=body)
    usage.save_results(items=[classify(request_id=row.id, fence_token=fence.token, answer=answer)])
    usage.settle(items=[row.id])
    assert reread(row).billing_state == "settled"
    assert Job.objects.get().state == "queued"
    assert DeadLetter.objects.values_list("state", flat=True).get() == "open"
