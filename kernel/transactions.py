"""Transactions: one decorator; a decorated function is exactly one transaction.

What the database does to us, and what this file does about it:
- A lost COMMIT acknowledgement and a lost COMMIT request raise the same error (2013). So a block is
  never run again after its COMMIT was sent: CommitOutcomeUnknown, and the caller reads again by key
  and fence.
- Deadlock (1213), lock wait (1205), snapshot conflict (1020) and a busy SQLite are contention: the
  whole block runs again, bounded by `transaction_tries_max`.
- A connection lost before COMMIT left nothing behind: the block may run once more.
- A database error swallowed inside the block would roll back silently: it raises instead.

Lock order inside a block: requests by id, then ledger, then the account row last.
"""

import functools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from django.db import DatabaseError, IntegrityError, InterfaceError, connection
from django.db import transaction as django_transaction
from django.db.models import Model

from kernel.conf import conf
from kernel.errors import CommitOutcomeUnknown, KernelError, RetryTransaction, Unavailable

P = ParamSpec("P")
R = TypeVar("R")

_kept = threading.local()  # when this thread's connection was last looked at
# A connection that began a block this long ago is believed to be there still.
TRUSTED_SECONDS = 1.0
LOCK_WAIT_CODE = 1205
SHORT_LOCK_WAIT_SECONDS = 1
LOCK_WAITS_MAX = 10  # of one page
CONTENTION_CODES = frozenset({1213, 1205, 1020})
LOST_CONNECTION_CODES = frozenset({2002, 2003, 2006, 2013, 2055, 1927, 1053, 4031})


def transaction(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` as exactly one transaction; never nested (A2, A4).

    Raises CommitOutcomeUnknown when the COMMIT was not acknowledged, RuntimeError when nested.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        reconnected = False
        tries = 0
        while True:
            tries += 1
            outermost = not connection.in_atomic_block
            if outermost:
                _heal_kept_connection()
            attempt = Attempt()
            try:
                return commit_unit(function.__name__, attempt, lambda: function(*args, **kwargs))
            except CommitOutcomeUnknown:
                raise
            except (DatabaseError, InterfaceError, RetryTransaction) as error:
                if not outermost:
                    raise
                if is_contention(error) and tries < _tries_max(error):
                    time.sleep(random.uniform(0, min(0.002 * 2**tries, 0.25)))
                    continue
                if is_lost_connection(error) and not reconnected:
                    reconnected = True
                    connection.close()
                    continue
                raise

    run.transaction = function  # type: ignore[attr-defined]  # read by in_tx and by the tidy tests
    return run


class Attempt:
    """Where one run of a block stands: before or at its COMMIT."""

    __slots__ = ("at_commit",)

    def __init__(self) -> None:
        self.at_commit = False


def commit_unit(name: str, attempt: Attempt, block: Callable[[], R]) -> R:
    """One BEGIN, one block, one COMMIT. Every write passes here; `name` is its verb."""
    try:
        with django_transaction.atomic(durable=True):
            result = block()
            if connection.needs_rollback:
                raise RuntimeError(f"{name} swallowed a database error inside its transaction")
            attempt.at_commit = True
    except (DatabaseError, InterfaceError) as error:
        if attempt.at_commit and not is_contention(error):
            connection.close()
            raise CommitOutcomeUnknown(
                f"The database did not acknowledge the commit of {name}."
            ) from error
        raise
    return result


def requires_transaction(function: Callable[P, R]) -> Callable[P, R]:
    """For functions named `..._in_tx`: they join their caller's transaction, never run without."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not connection.in_atomic_block:
            raise KernelError(f"{function.__name__} needs a transaction around it")
        return function(*args, **kwargs)

    return run


@requires_transaction
def after_commit_in_tx(hook: Callable[[], None]) -> None:
    """Call `hook` once this transaction is committed, never when it is not.

    An error of the hook is logged: it must not look like a lost commit.
    """

    def call_hook() -> None:  # Django logs an error by the name of a function, e.g. no partial
        hook()

    django_transaction.on_commit(call_hook, robust=True)


@requires_transaction
def insert_new_in_tx(row: Model) -> None:
    """INSERT a row.

    When its key was taken meanwhile the whole block runs again and then sees it.
    """
    try:
        row.save(force_insert=True)
    except IntegrityError as error:
        raise RetryTransaction(f"a row of {row._meta.db_table} met another") from error


def reading(function: Callable[P, R]) -> Callable[P, R]:
    """For functions that only read: heals the thread's connection first, and once on a lost one."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if connection.in_atomic_block:
            return function(*args, **kwargs)
        _heal_kept_connection()
        try:
            return function(*args, **kwargs)
        except (DatabaseError, InterfaceError) as error:
            if not is_lost_connection(error):
                raise
            connection.close()
            return function(*args, **kwargs)

    return run


def _heal_kept_connection() -> None:
    """Check a connection that outlives its work; one with CONN_MAX_AGE=0 belongs to its request.

    One that answered a moment ago is not asked again: if it broke since, BEGIN says so, and nothing
    was sent yet.
    """
    if connection.connection is None or connection.close_at is not None:
        return
    connection.close_if_unusable_or_obsolete()
    now = time.monotonic()
    if now - getattr(_kept, "used_at", 0.0) < TRUSTED_SECONDS:
        connection.health_check_done = True  # type: ignore[attr-defined]  # not in the stubs
    _kept.used_at = now


def _tries_max(error: BaseException) -> int:
    """A lock wait has already taken `lock_wait_seconds`.

    More of them would stop everybody's work.
    """
    if not is_lock_wait(error):
        return conf.transaction_tries_max
    return 1 if getattr(_kept, "waits_short", False) else 2


def _error_code(error: BaseException) -> Any:
    return error.args[0] if error.args else None


def is_contention(error: BaseException) -> bool:
    """Whether others held what the block needed: it may run again, no row is to blame."""
    if isinstance(error, RetryTransaction) or _error_code(error) in CONTENTION_CODES:
        return True
    return connection.vendor == "sqlite" and "locked" in str(error)


def is_lock_wait(error: BaseException) -> bool:
    """Whether a row, or its table, stayed locked by others for too long; other rows may be free."""
    return _error_code(error) == LOCK_WAIT_CODE


@contextmanager
def short_lock_waits() -> Iterator[None]:
    """In this block this thread waits SHORT_LOCK_WAIT_SECONDS for a lock, once.

    For who has waited in vain already, and for passes: what is busy is there at the next one.
    """
    if connection.vendor != "mysql":
        yield
        return
    _kept.waits_short = True
    _set_lock_wait(SHORT_LOCK_WAIT_SECONDS)
    try:
        yield
    finally:
        _kept.waits_short = False
        if connection.connection is not None:  # a new one begins with the usual wait
            _set_lock_wait(conf.lock_wait_seconds)


def _set_lock_wait(seconds: int) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [seconds])
    except (DatabaseError, InterfaceError):
        connection.close()


class LockWaits:
    """The lock waits of one page: what somebody has locked is left for a later one (B5).

    `are_enough`: the rest of the page is left, too, for each wait takes its time.
    """

    def __init__(self) -> None:
        self._waits: list[BaseException] = []

    def bears(self, error: BaseException) -> bool:
        """Whether this is a lock wait; then the page goes on with what is not locked."""
        if is_lock_wait(error):
            self._waits.append(error)
        return is_lock_wait(error)

    @property
    def are_enough(self) -> bool:
        """Whether the page should end."""
        return len(self._waits) >= LOCK_WAITS_MAX

    def end(self, *, done: int) -> None:
        """Raise the last wait where nothing but waits came of the page: that concerns all."""
        if self.are_enough and not done:
            raise self._waits[-1]


def is_lost_connection(error: BaseException) -> bool:
    """Whether the server is away: the same call may work later, no row is to blame."""
    return isinstance(error, InterfaceError) or _error_code(error) in LOST_CONNECTION_CODES


def concerns_all(error: BaseException) -> bool:
    """Whether a pass must back off, for no single row is to blame (B5).

    The database is away or busy, or something this installation lacks: a migration, a capability.
    Rows that are tried one by one would all be called faulty for it.
    """
    return isinstance(error, Unavailable) or is_contention(error) or is_lost_connection(error)
