"""Rows only: fields, constraints, indexes. Tables are named bz_*; rules live in the verbs."""

from kernel.models.access import AppliedSecret, ConsoleSession, SignInTry, Token
from kernel.models.approvals import Approval, Continuation, SigningKey, WebhookReceipt
from kernel.models.audit import AuditRow
from kernel.models.delivery import (
    AlertRule,
    AlertWindow,
    DeadLetter,
    DeadLetterGroup,
    DeadLetterReplay,
    DeliveryAttempt,
    Destination,
    Notification,
)
from kernel.models.jobs import Invocation, Job, JobMarkers, Pause, Route, Tool, ToolCall
from kernel.models.operations import Operation, OperationItem
from kernel.models.preferences import Preference
from kernel.models.retention import (
    DeadLetterPurge,
    Export,
    ExportChunk,
    JobPurge,
    NotificationPurge,
    RetentionStatus,
)
from kernel.models.runtime import CheckReport, PassStatus, SchemaStep
from kernel.models.usage import Account, Body, LedgerRow, Price, Request, Service

__all__ = [
    "Account",
    "AlertRule",
    "AlertWindow",
    "AppliedSecret",
    "Approval",
    "AuditRow",
    "Body",
    "CheckReport",
    "ConsoleSession",
    "Continuation",
    "DeadLetter",
    "DeadLetterGroup",
    "DeadLetterPurge",
    "DeadLetterReplay",
    "DeliveryAttempt",
    "Destination",
    "Export",
    "ExportChunk",
    "Invocation",
    "Job",
    "JobMarkers",
    "JobPurge",
    "LedgerRow",
    "Notification",
    "NotificationPurge",
    "Operation",
    "OperationItem",
    "PassStatus",
    "Pause",
    "Preference",
    "Price",
    "Request",
    "RetentionStatus",
    "Route",
    "SchemaStep",
    "Service",
    "SignInTry",
    "SigningKey",
    "Token",
    "Tool",
    "ToolCall",
    "WebhookReceipt",
]
