"""Rows only: fields, constraints, indexes. Tables are named bz_*; rules live in the verbs."""

from kernel.models.access import AppliedSecret, Token
from kernel.models.approvals import Approval, Continuation
from kernel.models.audit import AuditRow
from kernel.models.delivery import DeadLetter, DeadLetterReplay, Notification
from kernel.models.jobs import Job, JobMarkers, ToolCall
from kernel.models.runtime import CheckReport, PassStatus, SchemaStep
from kernel.models.usage import Account, Body, LedgerRow, Price, Request, Service

__all__ = [
    "Account",
    "AppliedSecret",
    "Approval",
    "AuditRow",
    "Body",
    "CheckReport",
    "Continuation",
    "DeadLetter",
    "DeadLetterReplay",
    "Job",
    "JobMarkers",
    "LedgerRow",
    "Notification",
    "PassStatus",
    "Price",
    "Request",
    "SchemaStep",
    "Service",
    "Token",
    "ToolCall",
]
