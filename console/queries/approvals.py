"""Approvals as the screens read them: one page per tab, and what became of each decision."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from console.filters import Chosen, Id
from console.paging import CappedCount, Cursor, IdPage, capped_count, page_ids, rows_by_id
from console.queries.actors import Who, who_of
from console.queries.walks import walk
from kernel import clock
from kernel.jobs.calls import deadlines_of, is_lost
from kernel.models import Approval, Continuation, Job, ToolCall
from kernel.states import ApprovalState, CallState, JobState, Owed

OPEN, DECIDED, EXPIRED = "open", "decided", "expired"
TAB_STATES = {
    OPEN: (ApprovalState.OPEN,),
    DECIDED: (ApprovalState.APPROVED, ApprovalState.CONSUMED, ApprovalState.DENIED),
    EXPIRED: (ApprovalState.EXPIRED, ApprovalState.CANCELLED),
}
FILTERS = (Id("account", _("Account")),)
BY_STATE, BY_ACCOUNT = "bz_approval_state", "bz_approval_acct"
# Long texts stay in the table: no page of another approval loads them.
HEAVY = ("arguments_text", "reason")
# What a list shows of a row, and what its fate is judged by: a column costs more than its bytes.
SHOWN = (
    *("id", "account_id", "job_id", "tool", "risk", "effect", "requested_by", "state"),
    *("decision", "decided_by_kind", "decided_by_id", "tool_call_id"),
    *("created_at", "expires_at", "decided_at", "updated_at"),
)
CALL_JUDGED = ("id", "job_id", "tool", "state", "error_code", "updated_at")
OWED_JUDGED = ("approval_id", "state", "attempts", "error_text")
BADGE_CAP = 99
# Written out, for the sidebar of every page asks.
_WAITING = """
SELECT COUNT(*) FROM (
  SELECT 1 AS one FROM bz_approvals WHERE state = %s AND expires_at > %s LIMIT %s) AS waiting
"""
NEWS_ROWS_MAX = 100


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One approval of a list: its row, its state now, and what became of its decision."""

    row: Approval
    state: str
    fate: str  # '' while open, else the second half of a status name (console/statuses.py)
    asker: Who
    decider: Who | None = None
    attempts: int = 0

    @property
    def is_actionable(self) -> bool:
        return self.state == ApprovalState.OPEN


@dataclass(frozen=True, slots=True)
class ApprovalPage:
    """One page of a tab."""

    rows: Sequence[ApprovalRow]
    page: IdPage


def approval_page(tab: str, chosen: Chosen, cursor: Cursor | None) -> ApprovalPage:
    """Three queries for the open ones, at most six else, whatever the size of the table."""
    page = page_ids(
        [_in_state(state, chosen) for state in TAB_STATES[tab]],
        cursor=cursor,
        order_by="created_at",
    )
    found = rows_by_id(Approval.objects.only(*SHOWN), page.ids)
    rows = [row for row in found if isinstance(row, Approval)]
    return ApprovalPage(approval_rows(rows), page)


def _in_state(state: str, chosen: Chosen) -> QuerySet[Approval]:
    rows = Approval.objects.filter(state=state)
    account = chosen.values.get("account")
    if account:
        rows = rows.filter(account_id=account)
    return walk(rows, BY_ACCOUNT if account else BY_STATE)


def approval_rows(rows: Sequence[Approval]) -> list[ApprovalRow]:
    """The rows with what became of them. At most five queries, one when all are open."""
    now = clock.now()
    closed = [row for row in rows if row.state != ApprovalState.OPEN]
    calls, owed = _fates_of(closed)
    lost = uncertain_calls(calls.values(), now=now)
    known = who_of([text for row in rows for text in (row.requested_by, decider_of(row))])
    return [
        ApprovalRow(
            row,
            state_now(row, now=now),
            fate(row, calls.get(row.tool_call_id), owed.get(row.id), uncertain=lost),
            asker=known[row.requested_by],
            decider=known[decider_of(row)] if row.decided_by_id else None,
            attempts=owed[row.id].attempts if row.id in owed else 0,
        )
        for row in rows
    ]


def decider_of(row: Approval) -> str:
    """`<kind>:<id>` of who decided it; '' for nobody."""
    return f"{row.decided_by_kind}:{row.decided_by_id}" if row.decided_by_id else ""


def _fates_of(
    rows: Sequence[Approval],
) -> tuple[dict[str, ToolCall], dict[str, Continuation]]:
    if not rows:
        return {}, {}
    call_ids = [row.tool_call_id for row in rows if row.tool_call_id]
    calls = ToolCall.objects.only(*CALL_JUDGED).in_bulk(call_ids)
    owed = Continuation.objects.only(*OWED_JUDGED).in_bulk([row.id for row in rows])
    return calls, owed


def state_now(row: Approval, *, now: datetime) -> str:
    """The state a person should see: open and past its time is expired, swept or not."""
    late = row.state == ApprovalState.OPEN and row.expires_at <= now
    return ApprovalState.EXPIRED if late else row.state


def fate(
    row: Approval,
    call: ToolCall | None,
    continuation: Continuation | None,
    *,
    uncertain: Set[str],
) -> str:
    """What became of a decision: one of the `fate_*` names of console/statuses.py, '' while open.

    `uncertain` holds the ids of uncertain calls, see `uncertain_calls`.
    Not started, running, done, uncertain and failed are five different answers (case 25).
    """
    if row.state == ApprovalState.OPEN:
        return ""
    if continuation is not None and continuation.state == Owed.OWED:
        return "owed_failing" if continuation.attempts and continuation.error_text else "owed"
    if row.state not in (ApprovalState.APPROVED, ApprovalState.CONSUMED):
        return "never"
    if call is None or call.state == CallState.PROPOSED:
        return "not_started"
    if call.state == CallState.DISPATCHING:
        return "uncertain" if call.id in uncertain else "runs"
    return "done" if call.state == CallState.DONE else "failed"


def uncertain_calls(calls: Iterable[ToolCall], *, now: datetime) -> set[str]:
    """The ids of the sent calls for whose answer nobody waits any more (D3). At most two queries.

    A job's call is uncertain when no run of the job is alive; the rule for the others is the
    kernel's.
    """
    sent = [call for call in calls if call.state == CallState.DISPATCHING]
    if not sent:
        return set()
    ids = [call.job_id for call in sent]
    states = dict(Job.objects.filter(id__in=ids).values_list("id", "state"))
    free = [call for call in sent if call.job_id not in states]
    deadlines = deadlines_of([call.tool for call in free]) if free else {}
    lost = {
        call.id
        for call in free
        if is_lost(call, deadline_seconds=deadlines.get(call.tool, 0), now=now)
    }
    owned = [call for call in sent if call.job_id in states]
    return lost | {call.id for call in owned if states[call.job_id] != JobState.RUNNING}


def waiting_count(*, cap: int = BADGE_CAP) -> CappedCount:
    """How many approvals a person could decide now. One query, served by an index."""
    now = connection.ops.adapt_datetimefield_value(clock.now())
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [ApprovalState.OPEN, now, cap + 1])
        (value,) = cursor.fetchone()
    return CappedCount(min(value, cap), capped=value > cap)


def opened_since(chosen: Chosen, moment: datetime) -> CappedCount:
    """How many were asked after `moment`, up to NEWS_ROWS_MAX. One query."""
    rows = _in_state(ApprovalState.OPEN, chosen).filter(created_at__gt=moment)
    return capped_count(rows, cap=NEWS_ROWS_MAX)
