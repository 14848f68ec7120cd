"""The explicit migrator: one lock, a ledger of checksums, fails closed on changed history (H2)."""

import fcntl
import hashlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    connection,
)
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from kernel import clock, shapes
from kernel.conf import conf
from kernel.errors import Conflict, Unavailable
from kernel.models import SchemaStep
from kernel.transactions import reading, transaction

LOCK_NAME = "bailing_db_init"
LOCK_WAIT_SECONDS = 30
LOCK_LOOK_SECONDS = 0.2
_inside = ContextVar("bailing_migrating", default=False)
DATABASE_ERRORS = (DatabaseError, InterfaceError)
# MySQL's answers to a DDL statement whose effect is there: table, column or key exists, or is gone.
DONE_ALREADY = frozenset({1050, 1060, 1061, 1022, 1826, 1091, 1054})
# Without these the paths that use them are unavailable; everything else works (H3).
CONTINUATIONS = "0066_approval_continuations"
REPLAY = "0067_delivery_dlq_replay"
AGENT_JOBS = "0068_agent_jobs"
DELIVERY = "0069_delivery"
SIGN_IN = "0070_sign_in"
RETENTION = "0071_retention"
PREFERENCES = "0072_preferences"
LETTER_LISTS = "0073_dead_letter_lists"
BY_HAND = (
    "Somebody changed the database by hand, and no migration runs twice: stop the writers and put"
    " it back, see 'When a table is not what it was' in docs/operations/upgrade.md."
)
OPTIONAL = frozenset(
    {
        CONTINUATIONS,
        REPLAY,
        AGENT_JOBS,
        DELIVERY,
        SIGN_IN,
        RETENTION,
        PREFERENCES,
        LETTER_LISTS,
    }
)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What the database holds against what this code knows.

    `unrecorded`: applied, but without a row in the ledger of checksums; the next db_init adds it.
    `gone`: tables and columns that applied migrations made, and that somebody took away since.
    """

    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    changed: tuple[str, ...]
    unrecorded: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What is not as it must be: `missing ['0066_approval_continuations']`."""
        names = ("missing", "unknown", "changed", "gone")
        parts = [f"{name} {list(found)}" for name in names if (found := getattr(self, name))]
        return ", ".join(parts) or "all applied, files unchanged"

    @property
    def ready(self) -> bool:
        """Everything is applied, nothing is foreign, nothing is gone."""
        return not (self.missing or self.unknown or self.changed or self.gone)

    @property
    def usable(self) -> bool:
        """The kernel can run: what is missing only makes its own paths unavailable (H3)."""
        is_foreign = self.unknown or self.changed
        return OPTIONAL.issuperset(self.missing) and not (is_foreign or self.gone)

    @property
    def way_out(self) -> str:
        """What to do when it is not ready: db_init is no way out of a foreign history."""
        if self.unknown or self.changed:
            return "Run the version that wrote it, or restore its migration files unchanged."
        return "Run manage.py db_init." if self.missing else BY_HAND


@cache
def checksums() -> Mapping[str, str]:
    """sha256 of each migration file of the kernel, by name, in order.

    Read once per process: what runs is what was there then.
    """
    files = MigrationLoader(None, load=False)  # its graph is not needed
    files.load_disk()
    names = sorted(name for app, name in files.disk_migrations if app == "kernel")
    return MappingProxyType({name: _file_sha256(name) for name in names})


def _file_sha256(name: str) -> str:
    module = importlib.import_module(f"kernel.migrations.{name}")
    assert module.__file__ is not None, "a migration is a file"
    return hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()


@reading
def state() -> SchemaState:
    """Compare the database's ledger with the files, and its tables with the models. Reads only."""
    known = checksums()
    recorded: dict[str, str] = {}
    applied = {
        name for app, name in MigrationRecorder(connection).applied_migrations() if app == "kernel"
    }
    if applied:
        try:
            recorded = dict(SchemaStep.objects.values_list("name", "checksum"))
        except (OperationalError, ProgrammingError) as error:
            if not _is_missing_table(error):
                raise
    missing = tuple(name for name in known if name not in applied)
    return SchemaState(
        missing=missing,
        unknown=tuple(sorted((applied | set(recorded)) - set(known))),
        changed=tuple(n for n in known if n in recorded and recorded[n] != known[n]),
        unrecorded=tuple(n for n in known if n in applied and n not in recorded),
        gone=() if missing else tuple(shapes.gone()),
    )


_found: set[str] = set()  # migrations seen in the database; they are never taken back (H4)


@reading
def require(name: str) -> None:
    """Unavailable, naming db_init, unless the migration `name` is applied (H3).

    Asks the database until it was seen once.
    """
    if name in _found:
        return
    if ("kernel", name) not in MigrationRecorder(connection).applied_migrations():
        raise Unavailable(
            f"The database lacks the migration {name}.",
            code="migration_missing",
            next_action="Run manage.py db_init, then repeat the same call.",
            migration=name,
        )
    _found.add(name)


def is_applied(name: str) -> bool:
    """Whether the migration `name` is applied: `require` as a question."""
    try:
        require(name)
    except Unavailable:
        return False
    return True


def migrate(*, say: Callable[[str], None] = lambda line: None) -> tuple[str, ...]:
    """Bring the schema up to this code; returns the names that were applied (H2).

    Holds an advisory lock: a second migrator says so and waits. Conflict when history is unknown or
    changed: nothing is touched then. Killed half-way, the next run finishes. `say` hears each
    migration, and each statement before it runs.
    """
    with _lock(say), _migrating():
        before = state()
        _check_history(before)
        _bound_lock_waits()
        _migrate_what_is_not_ours()
        for name in before.missing:
            say(f"applying {name}")
            with connection.execute_wrapper(_telling(say)):
                MigrationExecutor(connection).migrate([("kernel", name)])
            _record(name=name, checksum=checksums()[name])
        with connection.execute_wrapper(_walk_over_what_is_done):
            call_command("migrate", verbosity=0)
        _record_missing()
    return before.missing


def plan() -> list[tuple[str, list[str]]]:
    """What `migrate` would do now: the missing migrations of the kernel, each with its steps.

    Reads only. Conflict as in `migrate`.
    """
    found = state()
    _check_history(found)
    files = MigrationLoader(None).disk_migrations
    steps = {name: files["kernel", name].operations for name in found.missing}
    return [(name, [step.describe() for step in steps[name]]) for name in found.missing]


@reading
def differences() -> list[str]:
    """Where tables, columns and indexes are not what the migrations made, see `shapes.differences`.

    For db_init, db_verify and the doctor. [] while a migration is missing.
    """
    return [] if state().missing else shapes.differences()


def _check_history(found: SchemaState) -> None:
    if found.unknown or found.changed:
        raise Conflict(
            "The migration history does not fit this version:"
            f" unknown {list(found.unknown)}, changed {list(found.changed)}.",
            code="schema_history",
            next_action=found.way_out,
        )


def _bound_lock_waits() -> None:
    """A statement that waits for a busy table keeps everybody else from it: give up in time."""
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = %s", [conf.ddl_lock_wait_seconds])


def _telling(say: Callable[[str], None]) -> Callable[..., Any]:
    """Say each statement that changes the schema before it runs: some take minutes."""

    def tell(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith(("CREATE", "ALTER")):
            say(f"  {sql.partition(' (')[0][:100]}")
        return execute(sql, *rest)

    return tell


@transaction
def _record(*, name: str, checksum: str) -> None:
    SchemaStep.objects.update_or_create(
        name=name, defaults={"checksum": checksum, "applied_at": clock.db_now()}
    )


def _record_missing() -> None:
    """A kill between a migration and its ledger row leaves the row to the next run."""
    recorded = set(SchemaStep.objects.values_list("name", flat=True))
    for name, checksum in checksums().items():
        if name not in recorded:
            _record(name=name, checksum=checksum)


def _migrate_what_is_not_ours() -> None:
    """Django's and allauth's own tables, before ours: where 0070 is applied, theirs are there."""
    executor = MigrationExecutor(connection)
    leaves = [node for node in executor.loader.graph.leaf_nodes() if node[0] != "kernel"]
    with connection.execute_wrapper(_walk_over_what_is_done), _forgiving_editor():
        executor.migrate(leaves)


@contextmanager
def _forgiving_editor() -> Iterator[None]:
    """A unique key that a killed run dropped already cannot be found, which is no error (H1)."""
    editor: Any = connection.SchemaEditorClass

    class Forgiving(editor):  # type: ignore[misc]  # the vendor's own class
        def _delete_composed_index(self, *args: Any, **kwargs: Any) -> None:
            try:
                super()._delete_composed_index(*args, **kwargs)
            except ValueError as error:
                if connection.vendor != "mysql" or "wrong number (0)" not in str(error):
                    raise

    connection.SchemaEditorClass = Forgiving
    try:
        yield
    finally:
        connection.SchemaEditorClass = editor


def _walk_over_what_is_done(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
    """The migrations of Django's own apps do not look first; after a kill they run again (H1)."""
    try:
        return execute(sql, *rest)
    except DatabaseError as error:
        is_ddl = sql.startswith(("CREATE", "ALTER", "DROP"))
        if connection.vendor == "mysql" and is_ddl and _is_done_already(error):
            return None
        raise


def _is_done_already(error: DatabaseError) -> bool:
    # MariaDB reports a foreign key that is there as 1005 with InnoDB's errno 121.
    code, text = (*error.args, "", "")[:2]
    return code in DONE_ALREADY or (code == 1005 and "errno: 121" in text)


@contextmanager
def _lock(say: Callable[[str], None]) -> Iterator[None]:
    """One migrator at a time; another one waits LOCK_WAIT_SECONDS. Unavailable then."""
    with _mysql_lock() if connection.vendor == "mysql" else _file_lock() as take:
        until = time.monotonic() + LOCK_WAIT_SECONDS
        if not take():
            say(f"another db_init holds the lock; waiting up to {LOCK_WAIT_SECONDS} s for it")
            while not take():
                if time.monotonic() >= until:
                    raise Unavailable(
                        "Another db_init holds the lock; try again when it has ended."
                    )
                time.sleep(LOCK_LOOK_SECONDS)
        yield


@contextmanager
def _mysql_lock() -> Iterator[Callable[[], bool]]:
    with connection.cursor() as cursor:

        def take() -> bool:
            cursor.execute("SELECT GET_LOCK(%s, 0)", [_lock_name()])
            return bool(cursor.fetchone() == (1,))

        try:
            yield take
        finally:
            cursor.execute("SELECT RELEASE_LOCK(%s)", [_lock_name()])


@contextmanager
def _file_lock() -> Iterator[Callable[[], bool]]:
    path = Path(settings.VAR_DIR) / "db_init.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:

        def take() -> bool:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            return True

        yield take


@contextmanager
def _migrating() -> Iterator[None]:
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def is_migrating() -> bool:
    """Whether this very call stack is a db_init; the `migrate` command asks."""
    return _inside.get()


def _lock_name() -> str:
    # Advisory locks are server-wide; two schemas of one server must not wait for each other.
    schema = hashlib.sha256(str(connection.settings_dict["NAME"]).encode()).hexdigest()[:24]
    return f"{LOCK_NAME}_{schema}"


def _is_missing_table(error: Exception) -> bool:
    return "no such table" in str(error) or (bool(error.args) and error.args[0] == 1146)
