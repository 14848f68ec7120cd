"""The size of a proof: everyday in `make test`, full in `make crash`."""

import os
from typing import TypeVar

SIZE_VARIABLE = "BAILING_PROOF_SIZE"
EVERYDAY, FULL = "everyday", "full"

T = TypeVar("T")


def proof_size() -> str:
    """`everyday` (when BAILING_PROOF_SIZE is not set) or `full`; ValueError for anything else."""
    size = os.environ.get(SIZE_VARIABLE) or EVERYDAY
    if size not in (EVERYDAY, FULL):
        raise ValueError(f"{SIZE_VARIABLE} is {EVERYDAY} or {FULL}, not {size!r}")
    return size


def sized(everyday: T, full: T) -> T:
    """The one of the two that this run was asked for: `ROUNDS = sized(10, 500)`."""
    return full if proof_size() == FULL else everyday
