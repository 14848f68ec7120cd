"""One decorated function is one transaction: nesting, contention, lost connections and commits."""

import contextlib
import threading
from collections.abc import Callable
from unittest import mock

import pytest
from django.db import IntegrityError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from kernel import clock
from kernel.conf import override
from kernel.errors import (
    CommitOutcomeUnknown,
    Conflict,
    KernelError,
    RetryTransaction,
    Unavailable,
)
from kernel.models import PassStatus
from kernel.transactions import concerns_all, reading, requires_transaction, transaction


def insert(name: str) -> None:
    PassStatus.objects.create(name=name, owner="o", updated_at=clock.now())


def names() -> list[str]:
    return list(PassStatus.objects.order_by("name").values_list("name", flat=True))


class Runs:
    """A verb that inserts a row, then does what the test wants; counts its runs."""

    def __init__(self, then: Callable[[int], None] = lambda run: None):
        self.count, self.then = 0, then

    def __call__(self) -> int:
        return self._verb()

    @property
    def _verb(self) -> Callable[[], int]:
        @transaction
        def verb() -> int:
            self.count += 1
            insert(f"row-{self.count}")
            self.then(self.count)
            return self.count

        return verb


def raising(error: Exception, *, runs: int) -> Callable[[int], None]:
    def then(run: int) -> None:
        if run <= runs:
            raise error

    return then


@contextlib.contextmanager
def commit_that(act: Callable[[BaseDatabaseWrapper, Callable[[], None]], None]):
    """Replace the driver's commit, in every thread."""
    real = BaseDatabaseWrapper._commit
    with mock.patch.object(
        BaseDatabaseWrapper, "_commit", lambda self: act(self, lambda: real(self))
    ):
        yield


def test_an_error_leaves_nothing_behind(kernel_db: None) -> None:
    verb = Runs(raising(ValueError("no"), runs=1))
    with pytest.raises(ValueError, match="no"):
        verb()
    assert names() == []


def test_a_verb_inside_a_verb_is_refused(kernel_db: None) -> None:
    inner = Runs()
    outer = Runs(lambda run: inner() and None)
    with pytest.raises(RuntimeError, match="durable"):
        outer()
    assert names() == []
    assert inner.count == 0


def test_a_helper_for_transactions_refuses_to_run_without_one(kernel_db: None) -> None:
    helper_in_tx = requires_transaction(lambda: insert("row"))
    with pytest.raises(KernelError, match="needs a transaction"):
        helper_in_tx()
    Runs(lambda run: helper_in_tx())()
    assert names() == ["row", "row-1"]


def test_a_swallowed_database_error_raises_instead_of_losing_the_block(kernel_db: None) -> None:
    def swallow(run: int) -> None:
        with contextlib.suppress(IntegrityError):
            PassStatus(name="row-1", owner="o", updated_at=clock.now()).save(force_insert=True)

    with pytest.raises(RuntimeError, match="swallowed"):
        Runs(swallow)()
    assert names() == []


@pytest.mark.parametrize(
    "error",
    [
        RetryTransaction("again"),
        OperationalError(1213, "Deadlock found"),
        OperationalError(1020, "Record has changed since last read"),
    ],
    ids=lambda error: str(error.args[0]),
)
def test_contention_runs_the_whole_block_again(kernel_db: None, error: Exception) -> None:
    verb = Runs(raising(error, runs=2))
    assert verb() == 3
    assert names() == ["row-3"]


def test_a_lock_wait_is_tried_once_more_only(kernel_db: None) -> None:
    endless = Runs(raising(OperationalError(1205, "Lock wait timeout"), runs=100))
    with pytest.raises(OperationalError):
        endless()
    assert endless.count == 2, "each wait has already taken lock_wait_seconds"


def test_contention_without_end_is_bounded(kernel_db: None) -> None:
    verb = Runs(raising(RetryTransaction("again"), runs=100))
    with override(transaction_tries_max=3), pytest.raises(RetryTransaction):
        verb()
    assert verb.count == 3
    assert names() == []


def test_a_real_deadlock_is_run_again_and_both_end(server_db: None) -> None:
    insert("a")
    insert("b")
    met = threading.Barrier(2)
    runs = {"ab": 0, "ba": 0}

    @transaction
    def touch(*, order: str) -> None:
        runs[order] += 1
        for index, name in enumerate(order):
            PassStatus.objects.select_for_update().get(name=name)
            if index == 0 and runs[order] == 1:
                met.wait(timeout=10)
        PassStatus.objects.filter(name="a").update(pages=runs["ab"] + runs["ba"])

    def work(order: str) -> None:
        try:
            touch(order=order)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(order,)) for order in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert sorted(runs.values()) == [1, 2], "one of the two was the deadlock's victim, once"


def test_a_connection_lost_before_commit_runs_the_block_once_more(kernel_db: None) -> None:
    verb = Runs(raising(OperationalError(2006, "gone"), runs=1))
    assert verb() == 2
    assert names() == ["row-2"]


def test_a_connection_lost_twice_is_an_error(kernel_db: None) -> None:
    verb = Runs(raising(OperationalError(2013, "lost"), runs=2))
    with pytest.raises(OperationalError, match="lost"):
        verb()
    assert verb.count == 2
    assert names() == []


def test_a_killed_connection_heals_itself(server_db: None) -> None:
    def kill(run: int) -> None:
        if run == 1:
            with connection.cursor() as cursor, contextlib.suppress(OperationalError):
                cursor.execute("KILL CONNECTION_ID()")
            names()

    verb = Runs(kill)
    assert verb() == 2
    assert names() == ["row-2"]


@pytest.mark.parametrize("landed", [True, False], ids=["it landed", "it did not"])
def test_a_lost_commit_is_never_run_again(kernel_db: None, landed: bool) -> None:
    def act(wrapper: BaseDatabaseWrapper, commit: Callable[[], None]) -> None:
        if landed:
            commit()
        raise OperationalError(2013, "Lost connection to MySQL server during query")

    verb = Runs()
    connection.ensure_connection()
    before = connection.connection
    with commit_that(act), pytest.raises(CommitOutcomeUnknown, match="verb"):
        verb()
    assert verb.count == 1
    assert connection.connection is not before, "the connection is not used again"
    assert names() == (["row-1"] if landed else [])


def test_contention_found_at_commit_runs_again(kernel_db: None) -> None:
    refused = []

    def act(wrapper: BaseDatabaseWrapper, commit: Callable[[], None]) -> None:
        if not refused:
            refused.append(1)
            raise OperationalError(1213, "Deadlock found at commit")
        commit()

    verb = Runs()
    with commit_that(act):
        assert verb() == 2
    assert names() == ["row-2"]


def test_a_reader_heals_once_and_joins_a_transaction(kernel_db: None) -> None:
    failures = [OperationalError(2013, "lost")]

    @reading
    def read() -> list[str]:
        if failures:
            raise failures.pop()
        return names()

    assert read() == []
    seen: list[list[str]] = []
    Runs(lambda run: seen.append(read()))()
    assert seen == [["row-1"]], "inside a transaction it sees what the transaction wrote"
    failures += [OperationalError(2013, "again"), OperationalError(2013, "lost")]
    with pytest.raises(OperationalError):
        read()


def test_every_session_has_the_settings_the_verbs_rely_on(server_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT @@session.time_zone, @@session.innodb_lock_wait_timeout, @@session.sql_mode,"
            " @@character_set_client, @@autocommit"
        )
        zone, lock_wait, mode, charset, autocommit = cursor.fetchone()
        cursor.execute("SHOW SESSION VARIABLES LIKE '%%_isolation'")
        levels = {value for name, value in cursor.fetchall() if name.startswith("t")}
    assert (zone, lock_wait, charset, autocommit) == ("+00:00", 5, "utf8mb4", 1)
    assert "STRICT_TRANS_TABLES" in mode
    assert levels == {"READ-COMMITTED"}


def test_what_the_installation_lacks_is_no_rows_fault() -> None:
    away = [
        OperationalError(2013, "lost"),
        OperationalError(1213, "deadlock"),
        RetryTransaction("met"),
    ]
    lacking = [CommitOutcomeUnknown("lost"), Unavailable("no such capability")]
    assert [concerns_all(error) for error in away + lacking] == [True] * 5
    own = [ValueError("x"), OperationalError(1366, "wrong text"), Conflict("changed")]
    assert [concerns_all(error) for error in own] == [False] * 3
