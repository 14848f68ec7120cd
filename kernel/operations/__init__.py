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
from kernel.operations.exports import pieces_of, plan_export, whole_file
from kernel.operations.filters import Filter
from kernel.operations.plan import Preview, plan_archive, plan_replay, preview
from kernel.operations.sets import AuditFilter, RequestFilter
from kernel.operations.work import Operations

__all__ = [
    "AuditFilter",
    "Filter",
    "Operations",
    "Preview",
    "RequestFilter",
    "apply",
    "cancel",
    "get_operation",
    "list_operations",
    "outcomes_of",
    "pause",
    "pieces_of",
    "plan_archive",
    "plan_export",
    "plan_replay",
    "preview",
    "resume",
    "whole_file",
]
