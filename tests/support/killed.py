"""The end of a process in the middle of a verb, in this process: what it had committed stays.

with killed_at("_record", after=False), pytest.raises(Killed):
    work_off(worker)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from kernel import transactions


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(verb: str, *, after: bool) -> Iterator[None]:
    """End at the next commit of `verb`: before it, or `after` it."""
    real = transactions.commit_unit

    def commit_unit(name: str, attempt: transactions.Attempt, block: Callable[[], Any]) -> Any:
        if name == verb and not after:
            raise Killed
        result = real(name, attempt, block)
        if name == verb:
            raise Killed
        return result

    with mock.patch.object(transactions, "commit_unit", commit_unit):
        yield
