"""Checks of the database: its version, the settings the verbs rely on, its clock, the schema."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db import connection

from kernel import clock, schema
from kernel.checks import DOCTOR_PREFIX
from kernel.conf import MIB, conf
from kernel.doctor.findings import FAILURE, OK, WARNING, Finding, judge, listed
from kernel.models import CheckReport, PassStatus
from kernel.transactions import reading

PACKET_BYTES_MIN = 16 * MIB
GOOD_ZONES = ("+00:00", "UTC")
VERIFY_DAYS_MAX = 8
DIFFERENCES_SHOWN_MAX = 10
Variables = dict[str, str]


@reading
def check_database() -> list[Finding]:
    """Every check that asks the database. Database errors pass through."""
    is_server = connection.vendor == "mysql"
    found = list(_check_server() if is_server else _check_sqlite())
    found.append(_check_clock())
    applied = schema.state()
    found.append(_check_migrations(applied))
    if not (applied.missing or applied.unknown or applied.changed):
        found.append(_check_tables())
    if applied.usable:
        found += [_check_invariants(), _check_maintenance()]
    return found


def _variables(scope: str) -> Variables:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {scope} VARIABLES")
        return {name: str(value) for name, value in cursor.fetchall()}


def _check_server() -> Iterator[Finding]:
    mine, all_of_it = _variables("SESSION"), _variables("GLOBAL")
    yield _check_version(all_of_it)
    yield judge(
        "database.one_primary",
        "several writers (Galera)" if all_of_it.get("wsrep_on") == "ON" else "one primary",
        good=all_of_it.get("wsrep_on") != "ON",
        todo="Let only one node be written to, and set wsrep_sync_wait=1: of two writers one is"
        " refused at COMMIT, after its verb believed that it held the row.",
        otherwise=WARNING,
    )
    yield judge(
        "database.writable",
        f"read_only={all_of_it.get('read_only', 'OFF')}",
        good=all_of_it.get("read_only", "OFF") in ("OFF", "0", "NO_LOCK"),
        todo="This is a replica or was set read-only: point BAILING_DATABASE_URL at the primary.",
    )
    yield from _check_session(mine)
    yield from _check_durability(all_of_it)
    yield _check_engines()


def _check_version(variables: Variables) -> Finding:
    lowest = connection.features.minimum_database_version or (0,)
    version: tuple[int, ...] = connection.mysql_version  # type: ignore[attr-defined]  # mysql only
    has_skip = connection.features.has_select_for_update_skip_locked
    return judge(
        "database.version",
        variables.get("version", "unknown"),
        good=version >= lowest and has_skip,
        todo="Upgrade to MySQL 8.4 or MariaDB 10.11 or later (SKIP LOCKED is needed).",
    )


def _check_session(mine: Variables) -> Iterator[Finding]:
    zone = mine.get("time_zone", "")
    yield judge(
        "database.time_zone",
        zone,
        good=zone in GOOD_ZONES,
        todo="Something overrides the session's time zone: remove init_connect from the server.",
    )
    charset, default = mine.get("character_set_connection"), mine.get("character_set_database")
    yield judge(
        "database.charset",
        f"connection {charset}, new tables {default}",
        good=charset == default == "utf8mb4",
        todo="ALTER DATABASE ... CHARACTER SET utf8mb4; else text of later tables is cut.",
    )
    level = mine.get("transaction_isolation") or mine.get("tx_isolation", "")
    yield judge(
        "database.isolation",
        level,
        good=level == "READ-COMMITTED",
        todo="Something overrides the isolation level: remove init_connect from the server.",
    )
    mode = mine.get("sql_mode", "")
    yield judge(
        "database.sql_mode",
        mode,
        good="STRICT_TRANS_TABLES" in mode or "STRICT_ALL_TABLES" in mode,
        todo="Without a strict mode values are cut silently: remove init_connect.",
    )
    waits = {
        "wait_timeout": conf.idle_connection_seconds,
        "innodb_lock_wait_timeout": conf.lock_wait_seconds,
    }
    yield judge(
        "database.wait_timeout",
        ", ".join(f"{name}={mine.get(name)}" for name in waits),
        good=all(mine.get(name) == str(value) for name, value in waits.items()),
        todo=f"The session should have {waits}: something overrides it.",
        otherwise=WARNING,
    )


def _check_durability(variables: Variables) -> Iterator[Finding]:
    wanted = {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"}
    logs = variables.get("log_bin") == "ON"
    if logs:
        wanted["sync_binlog"] = "1"
    seen = {name: variables.get(name, wanted[name]) for name in wanted}
    yield judge(
        "database.durability",
        ", ".join(f"{name}={value}" for name, value in seen.items()),
        good=seen == wanted,
        todo=f"Set {_assignments(wanted)}: else a power cut takes commits back that were confirmed"
        " - a request that was sent may look as if it never was.",
    )
    if logs:
        form = variables.get("binlog_format", "ROW")
        yield judge(
            "database.binlog_format",
            form,
            good=form in ("ROW", "MIXED"),
            todo="Set binlog_format=ROW: READ COMMITTED cannot be logged by statement.",
        )
    size = int(variables.get("max_allowed_packet", "0"))
    needed = 2 * conf.body_chunk_bytes + MIB
    yield judge(
        "database.max_allowed_packet",
        f"{size // MIB} MiB",
        good=size >= max(PACKET_BYTES_MIN, needed),
        todo="Set max_allowed_packet=16M on the server.",
        otherwise=FAILURE if size < needed else WARNING,
    )


def _assignments(wanted: Variables) -> str:
    return ", ".join(f"{name}={value}" for name, value in wanted.items())


def _check_engines() -> Finding:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
            " AND table_type = 'BASE TABLE' AND engine <> 'InnoDB' ORDER BY table_name"
        )
        others = [name for (name,) in cursor.fetchall()]
    return judge(
        "database.engine",
        "InnoDB" if not others else f"not InnoDB: {', '.join(others)}",
        good=not others,
        todo="ALTER TABLE ... ENGINE=InnoDB: the others have no transactions.",
    )


def _pragma(name: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        return cursor.fetchone()[0]


def _check_sqlite() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sqlite_version()")
        (version,) = cursor.fetchone()
    yield Finding("database.version", OK, f"SQLite {version}")
    journal, synchronous = _pragma("journal_mode"), _pragma("synchronous")
    yield judge(
        "database.durability",
        f"journal_mode={journal}, synchronous={synchronous}",
        good=journal == "wal" and synchronous in (2, 3),
        todo="Keep the file on a local disk: a network file system takes no write-ahead log.",
    )
    yield judge(
        "database.foreign_keys",
        _pragma("foreign_keys"),
        good=_pragma("foreign_keys") == 1,
        todo="Something overrides the connection's settings.",
        otherwise=WARNING,
    )


def _check_clock() -> Finding:
    """Host against database, within half of the question's own duration."""
    before = clock.now()
    theirs = clock.db_now()
    after = clock.now()
    middle = before + (after - before) / 2
    skew = abs((theirs - middle).total_seconds())
    skew = max(0.0, skew - (after - before).total_seconds() / 2)
    level = OK
    if skew >= conf.clock_skew_seconds_warn:
        level = FAILURE if skew >= conf.clock_skew_seconds_max else WARNING
    todo = "" if level == OK else "Run a time service (chrony, ntpd) on both hosts."
    return Finding("host.clock", level, f"{skew:.1f} s from the database's", todo)


def _check_migrations(found: schema.SchemaState) -> Finding:
    seen = replace(found, gone=())  # that is the next check's
    return judge("database.migrations", seen, good=seen.ready, todo=seen.way_out)


def _check_tables() -> Finding:
    """Whether each table, column and index is what the migrations made."""
    wrong = schema.differences()
    seen = listed(wrong, most=DIFFERENCES_SHOWN_MAX) or "as the migrations made them"
    return judge("database.tables", seen, good=not wrong, todo=schema.BY_HAND)


def _check_invariants() -> Finding:
    rows = list(CheckReport.objects.exclude(name__startswith=DOCTOR_PREFIX))
    broken = [row.name for row in rows if row.offenders]
    if broken:
        todo = "Read docs/operations/stuck-work.md; manage.py db_verify names the rows."
        return Finding("database.invariants", FAILURE, f"broken: {', '.join(broken)}", todo)
    if not rows:
        return Finding("database.invariants", WARNING, "never checked", "Run manage.py db_verify.")
    age = (clock.now() - min(row.checked_at for row in rows)).days
    return judge(
        "database.invariants",
        f"{len(rows)} held {age} days ago",
        good=age <= VERIFY_DAYS_MAX,
        todo="Run manage.py db_verify; once a week is enough.",
        otherwise=WARNING,
    )


def _check_maintenance() -> Finding:
    seen_at = max((row.updated_at for row in PassStatus.objects.all()), default=None)
    todo = "Start a web process, or manage.py maintain: nothing settles without one."
    if seen_at is None:
        return Finding("maintenance", WARNING, "no pass has run yet", todo)
    age = (clock.db_now() - seen_at).total_seconds()
    return judge(
        "maintenance",
        f"the last pass reported {age:.0f} s ago",
        good=age <= 3 * conf.settlement_interval_seconds,
        todo=todo,
    )
