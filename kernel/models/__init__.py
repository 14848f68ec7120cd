"""Rows only: fields, constraints, indexes. Tables are named bz_*; rules live in the verbs."""

from kernel.models.access import AppliedSecret, Token
from kernel.models.approvals import Approval, Continuation, SigningKey, WebhookReceipt
from kernel.models.audit import AuditRow
from kernel.models.delivery import DeadLetter, DeadLetterReplay, Notification
from kernel.models.jobs import Invocation, Job, JobMarkers, Pause, Route, Tool, ToolCall
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
    "Invocation",
    "Job",
    "JobMarkers",
    "LedgerRow",
    "Notification",
    "PassStatus",
    "Pause",
    "Price",
    "Request",
    "Route",
    "SchemaStep",
    "Service",
    "SigningKey",
    "Token",
    "Tool",
    "ToolCall",
    "WebhookReceipt",
]
