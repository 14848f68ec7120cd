"""Rows only: fields, constraints, indexes. Tables are named bz_*; rules live in the verbs."""

from kernel.models.access import AppliedSecret, Token
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
    "Continuation",
    "DeadLetter",
    "DeadLetterGroup",
    "DeadLetterReplay",
    "DeliveryAttempt",
    "Destination",
    "Invocation",
    "Job",
    "JobMarkers",
    "LedgerRow",
    "Notification",
    "Operation",
    "OperationItem",
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
