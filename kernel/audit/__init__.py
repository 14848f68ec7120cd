"""Audit: who did what, when and why; append-only and chained."""

from kernel.audit.trail import (
    SYSTEM,
    Actor,
    AlreadyDone,
    append_all_in_tx,
    append_in_tx,
    length,
    refuse_repeat_in_tx,
)
from kernel.audit.verification import ChainFault, compare, heads, verify

__all__ = [
    "SYSTEM",
    "Actor",
    "AlreadyDone",
    "ChainFault",
    "append_all_in_tx",
    "append_in_tx",
    "compare",
    "heads",
    "length",
    "refuse_repeat_in_tx",
    "verify",
]
