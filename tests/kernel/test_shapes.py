"""What somebody changed by hand is found: types, character sets, keys; nothing else is (H2)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from kernel import schema, shapes
from tests.support.fixtures import server_db

__all__ = ["server_db"]
pytestmark = pytest.mark.usefixtures("kernel_db")

ASCII = "CHARACTER SET ascii COLLATE ascii_"
# (table, column, what it becomes, what it was)
COLUMNS = [
    ("bz_usage_accounts", "consumed_nano", "int NOT NULL", "bigint NOT NULL"),
    ("bz_usage_accounts", "cap_nano", "bigint unsigned NULL", "bigint NULL"),
    ("bz_usage_accounts", "cap_nano", "bigint NOT NULL", "bigint NULL"),
    ("bz_usage_accounts", "active", "varchar(5) {0} NOT NULL", "tinyint NOT NULL"),
    ("bz_jobs", "due_at", "datetime NOT NULL", "datetime(6) NOT NULL"),
    ("bz_jobs", "finished_at", "datetime(3) NULL", "datetime(6) NULL"),
    ("bz_jobs", "result_text", "text {0} NOT NULL", "longtext NOT NULL"),
    ("bz_usage_services", "model", "varchar(20) {0} NOT NULL", "varchar(200) NOT NULL"),
    (
        "bz_usage_requests",
        "operation_id",
        f"varchar(128) {ASCII}general_ci NOT NULL",
        f"varchar(128) {ASCII}bin NOT NULL",
    ),
    ("bz_jobs", "id", "varchar(64) {0} NOT NULL", f"varchar(64) {ASCII}bin NOT NULL"),
    ("bz_jobs", "approval_continuation_keys", "longtext {1} NULL", "longtext NULL"),
    (
        "bz_usage_prices",
        "model",
        "varchar(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL",
        "varchar(200) NOT NULL",
    ),
]
CHARSETS = ("", "CHARACTER SET latin1 COLLATE latin1_general_ci")
REPLAY = "replay_identity"
# (table, index, its columns, unique or not, what it was)
KEYS = [
    ("bz_jobs", "bz_job_due", "state, id, due_at", "", "(state, due_at, id)"),
    ("bz_jobs", "bz_job_due", "state, due_at, id", "UNIQUE", "(state, due_at, id)"),
    ("bz_jobs", "bz_job_purge", "purged_at, id", "", "(purged_at, finished_at, id)"),
    (
        "bz_delivery_dlq",
        "bz_dlq_replay_identity",
        "replay_identity",
        "",
        "unique (replay_identity)",
    ),
]


def run(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def changed(change: str, back: str) -> Iterator[None]:
    run(change)
    try:
        yield
    finally:
        run(back)


def test_what_the_migrations_made_differs_nowhere_on_any_engine() -> None:
    assert shapes.gone() == []
    assert schema.differences() == []


@pytest.mark.parametrize(("table", "column", "now", "before"), COLUMNS)
def test_a_column_that_was_changed_by_hand_is_named_with_what_it_was(
    server_db: None, table: str, column: str, now: str, before: str
) -> None:
    now = " ".join(now.format(*CHARSETS).split())
    change = f"ALTER TABLE {table} MODIFY COLUMN {column} "
    with changed(change + now, change + before):
        assert schema.differences() == [f"column {table}.{column} is {now}, not {before}"]


@pytest.mark.parametrize(("table", "name", "columns", "unique", "before"), KEYS)
def test_an_index_over_other_columns_or_of_other_uniqueness_is_named(
    table: str, name: str, columns: str, unique: str, before: str
) -> None:
    on = f" ON {table}" if connection.vendor == "mysql" else ""
    was = before.replace("unique", "").strip()
    drop, was_unique = f"DROP INDEX {name}{on}", "UNIQUE" if "unique" in before else ""
    run(drop)
    try:
        assert f"index {name} on {table} is missing" in schema.differences()
        run(f"CREATE {unique} INDEX {name} ON {table} ({columns})")
        told = f"index {name} on {table} is {'unique ' if unique else ''}({columns}), not {before}"
        assert told in schema.differences()
        run(drop)
    finally:
        run(f"CREATE {was_unique} INDEX {name} ON {table} {was}")
    assert schema.differences() == []


def test_a_unique_key_that_folds_or_cuts_is_none(server_db: None) -> None:
    key = "bz_usage_request_operation"
    drop = f"ALTER TABLE bz_usage_requests DROP INDEX {key}, ADD UNIQUE INDEX {key} "
    missing = "unique key (account_id, operation_id) on bz_usage_requests is missing"
    for columns in ("(account_id, operation_id(8))", "(operation_id, account_id)"):
        with changed(drop + columns, drop + "(account_id, operation_id)"):
            assert schema.differences() == [missing]


def test_on_sqlite_a_declared_type_and_a_folding_key_are_found() -> None:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'bz_usage_accounts'")
            (text,) = cursor.fetchone()
        text = text.replace('"consumed_nano" bigint', '"consumed_nano" int')
        text = text.replace('"id" varchar(128)', '"id" varchar(128) COLLATE NOCASE')
        run("ALTER TABLE bz_usage_accounts RENAME TO zz_kept")
        with changed(text, "DROP TABLE bz_usage_accounts"):
            found = schema.differences()
        run("ALTER TABLE zz_kept RENAME TO bz_usage_accounts")
        assert found == [
            "column bz_usage_accounts.consumed_nano is int NOT NULL, not bigint NOT NULL",
            "unique key (id) on bz_usage_accounts is missing",
        ]


def test_what_somebody_added_is_nobodys_business() -> None:
    on = " ON bz_jobs" if connection.vendor == "mysql" else ""
    run("CREATE TABLE zz_own (id int)", "CREATE INDEX zz_own_index ON bz_jobs (owner)")
    try:
        assert schema.differences() == []
    finally:
        run("DROP TABLE zz_own", f"DROP INDEX zz_own_index{on}")
