"""Long acts over frozen sets: plan, apply, pause, resume, cancel, report (F9)."""

from kernel.operations.acts import (
    apply,
    cancel,
    get_operation,
    list_operations,
    outcomes_of,
    pause,
    resume,
)
from kernel.operations.filters import Filter
from kernel.operations.plan import Preview, plan_archive, plan_replay, preview
from kernel.operations.work import Operations

__all__ = [
    "Filter",
    "Operations",
    "Preview",
    "apply",
    "cancel",
    "get_operation",
    "list_operations",
    "outcomes_of",
    "pause",
    "plan_archive",
    "plan_replay",
    "preview",
    "resume",
]
