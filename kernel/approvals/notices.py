"""What is told about an approval: when it opens, and when it is decided (C11, F1).

Arguments are masked and cut; the digest is the whole one. The link opens a page: nothing is decided
by following it.
"""

from typing import Any

from kernel.approvals.arguments import masked
from kernel.conf import conf
from kernel.http import view_utf8
from kernel.models import Approval
from kernel.outbox import APPROVAL_DECIDED, APPROVAL_OPENED, Event

CHARS_TOLD = 1000


def opened(row: Approval) -> Event:
    """The notice that a person is asked."""
    view = view_utf8(masked(row.arguments_text), conf.audit_view_bytes_max)
    return _event(
        row,
        APPROVAL_OPENED,
        {
            "effect": row.effect[:CHARS_TOLD],
            "arguments_text": view.text,
            "arguments_cut": view.cut,
            "requested_by": row.requested_by,
            "expires_at": row.expires_at.isoformat(),
            "supersedes_id": row.supersedes_id,
        },
    )


def decided(row: Approval) -> Event:
    """The notice that it was approved or denied, or that nobody decided in time."""
    return _event(
        row,
        APPROVAL_DECIDED,
        {
            "decision": row.decision,
            "decision_id": row.decision_id,
            "decided_by_kind": row.decided_by_kind,
            "decided_by": row.decided_by_id,
            "decided_at": row.decided_at.isoformat() if row.decided_at else None,
            "reason": row.reason[:CHARS_TOLD],
        },
    )


def _event(row: Approval, name: str, more: dict[str, Any]) -> Event:
    data = {
        "approval_id": row.id,
        "job_id": row.job_id,
        "invocation_id": row.invocation_id,
        "request_id": row.request_id,
        "tool": row.tool,
        "tool_version": row.tool_version,
        "risk": row.risk,
        "arguments_sha256": row.arguments_sha256,
        "link": f"/approvals/{row.id}/",
        **more,
    }
    return Event(row.account_id, name, data, request_id=row.request_id, job_id=row.job_id)
