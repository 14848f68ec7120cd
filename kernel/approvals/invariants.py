"""The invariants of approvals, their decisions and grants. kernel/invariants.py asks them all.

They hold for what was decided since migration 0066; older decisions owe nothing (C8).
"""

import hashlib

from kernel.checks import Find, Invariant, Offender, either, select, since
from kernel.conf import conf
from kernel.models import ToolCall
from kernel.schema import AGENT_JOBS, CONTINUATIONS
from kernel.states import CallState

# How often an act of one kind is in the audit of each approval ('approval:' has nine characters).
_ACTS = (
    "(SELECT SUBSTR(subject, 10) AS approval_id, COUNT(*) AS n FROM bz_audit"
    " WHERE action = '{}' AND subject LIKE 'approval:%' GROUP BY subject)"
)
_DECIDED = _ACTS.format("approval.decided")
_CARRIED = _ACTS.format("approval.carried_through")
# Decided when there were no continuations yet.
_SINCE_0066 = (
    f"(SELECT applied FROM django_migrations WHERE app = 'kernel' AND name = '{CONTINUATIONS}')"
)
# A call that was sent: also one that an operator found not done, after it was sent.
_LEFT = (
    "(t.state IN ('dispatching', 'done')"
    " OR (t.state = 'failed' AND t.error_code = 'resolved_not_done'))"
)


def _of_approvals(text: str) -> Find:
    return since((CONTINUATIONS, AGENT_JOBS), select(text))


def _changed_texts(limit: int) -> list[Offender]:
    """Newest calls made under a grant whose stored text is not what was hashed (C1)."""
    made = ToolCall.objects.filter(state__in=(CallState.DISPATCHING, CallState.DONE))
    newest = made.exclude(approval_id="").order_by("-id")
    rows = newest.values_list("id", "arguments_text", "arguments_sha256")
    return [
        Offender(call_id, "the arguments do not have the approved sha256")
        for call_id, text, sha256 in rows[: conf.check_sample_rows]
        if hashlib.sha256(text.encode()).hexdigest() != sha256
    ][:limit]


APPROVALS: tuple[Invariant, ...] = (
    Invariant(
        26,
        "one_decision_per_approval",
        "An approval has one decision with who, when and under which id, or none; it fits its"
        " state; the audit says `decided` at most once.",
        "C2, C3",
        _of_approvals(
            "SELECT a.id, a.state, a.decision, a.decision_id, d.n AS audited FROM bz_approvals a"
            f" LEFT JOIN {_DECIDED} d ON d.approval_id = a.id"
            " WHERE d.n > 1 OR (a.state = 'open' AND a.decision <> '')"
            " OR (a.state = 'expired' AND a.decision NOT IN ('expired', 'approved'))"
            " OR (a.state = 'cancelled' AND a.decision NOT IN ('', 'approved'))"
            " OR (a.state = 'denied' AND a.decision <> 'denied')"
            " OR (a.state IN ('approved', 'consumed') AND a.decision <> 'approved')"
            f" OR (a.decision <> '' AND a.decided_at IS NULL)"
            f" OR (a.decision <> '' AND a.decided_at >= {_SINCE_0066}"
            " AND (a.decision_id IS NULL OR a.decided_by_kind = '' OR a.decided_by_id = ''))"
        ),
    ),
    Invariant(
        27,
        "decision_audit_and_continuation_are_one",
        "A decision, its audit row and its continuation: all of them or none.",
        "C2",
        _of_approvals(
            "SELECT a.id, a.decision, c.decision AS owed, d.n AS audited FROM bz_approvals a"
            " LEFT JOIN bz_approval_continuations c ON c.approval_id = a.id"
            f" LEFT JOIN {_DECIDED} d ON d.approval_id = a.id"
            " WHERE (c.approval_id IS NULL) <> (d.n IS NULL)"
            " OR (c.approval_id IS NOT NULL AND a.decision = '')"
            " OR (c.approval_id IS NULL AND a.decision <> ''"
            f" AND a.decided_at >= {_SINCE_0066})"
        ),
    ),
    Invariant(
        28,
        "continuations_fit_their_approval",
        "A continuation carries the coordinates of its approval's decision, unchanged.",
        "C2",
        _of_approvals(
            "SELECT c.approval_id, c.decision_id, a.decision_id AS decided"
            " FROM bz_approval_continuations c LEFT JOIN bz_approvals a ON a.id = c.approval_id"
            " WHERE a.id IS NULL OR a.decision_id IS NULL OR a.decision_id <> c.decision_id"
            " OR a.decision <> c.decision OR a.job_id <> c.job_id"
            " OR a.request_id <> c.request_id OR a.arguments_sha256 <> c.arguments_sha256"
        ),
    ),
    Invariant(
        29,
        "what_was_carried_through_was_observed",
        "A continuation that is done has its end and the audit row `carried_through`.",
        "C4",
        _of_approvals(
            "SELECT c.approval_id, c.finished_at, d.n AS audited FROM bz_approval_continuations c"
            f" LEFT JOIN {_CARRIED} d ON d.approval_id = c.approval_id"
            " WHERE (c.state = 'done' AND d.n IS NULL)"
            " OR (c.state = 'done') <> (c.finished_at IS NOT NULL)"
        ),
    ),
    Invariant(
        30,
        "what_was_executed_is_what_was_approved",
        "A call made under a grant has the approved tool, version and arguments, byte for byte.",
        "C1",
        either(
            _of_approvals(
                "SELECT t.id, t.approval_id, t.tool_version, a.tool_version AS approved"
                " FROM bz_tool_calls t LEFT JOIN bz_approvals a ON a.id = t.approval_id"
                f" WHERE t.approval_id <> '' AND {_LEFT} AND (a.id IS NULL OR a.tool <> t.tool"
                " OR a.tool_version <> t.tool_version"
                " OR a.arguments_sha256 <> t.arguments_sha256)"
            ),
            since((AGENT_JOBS,), _changed_texts),
        ),
    ),
    Invariant(
        31,
        "what_was_refused_was_not_made",
        "No call was made under a question that is open, or was denied, expired or cancelled.",
        "C8",
        _of_approvals(
            "SELECT t.id, t.approval_id, a.state FROM bz_tool_calls t"
            " JOIN bz_approvals a ON a.id = t.approval_id"
            f" WHERE a.state IN ('open', 'denied', 'expired', 'cancelled') AND {_LEFT}"
        ),
    ),
    Invariant(
        32,
        "a_grant_is_used_by_one_call",
        "A used grant belongs to exactly one call that was made, and such a call has used its own.",
        "C12",
        _of_approvals(
            "SELECT a.id, a.state, COUNT(t.id) AS calls FROM bz_approvals a"
            f" LEFT JOIN bz_tool_calls t ON t.approval_id = a.id AND {_LEFT}"
            " WHERE a.tool_call_id <> '' AND a.state IN ('approved', 'consumed')"
            " GROUP BY a.id, a.state, a.consumed_at"
            " HAVING COUNT(t.id) <> (a.state = 'consumed')"
            " OR (a.state = 'consumed') <> (a.consumed_at IS NOT NULL)"
        ),
    ),
)
