"""Seeded mutants in the test's own process, for the length of a block.

They are written for children that die with them, so what they replaced is put back here.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from tests.support import delivery_mutants, job_mutants, mutants

MUTANTS = {**mutants.MUTANTS, **job_mutants.MUTANTS, **delivery_mutants.MUTANTS}


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    """The kernel with this mistake; '' = without any."""
    before = _everything()
    try:
        if name:
            MUTANTS[name]()
        yield
    finally:
        for owner, attributes in before:
            for attribute, value in attributes.items():
                if vars(owner).get(attribute) is not value:
                    setattr(owner, attribute, value)


def _everything() -> list[tuple[Any, dict[str, Any]]]:
    """Each module of the kernel and each class in it, with what it holds."""
    modules = [
        module for name, module in sys.modules.items() if name.split(".")[0] == "kernel" and module
    ]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    return [
        (owner, {name: value for name, value in vars(owner).items() if not name.startswith("__")})
        for owner in [*modules, *classes]
    ]
