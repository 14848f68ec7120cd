"""Several decisions at once: a page that lists what will happen, then one result per row.

The set is frozen by the page that was rendered: each row carries its digest and its own decision
id, so a second send repeats the same decisions and cannot reach a row that was not listed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.db.models.functions import Length
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.access import needs
from console.acting import actor_of
from console.bodies import BodyView
from console.filters import BadFilter
from console.forms import ConsoleForm, NoteField
from console.migrated import needs_migration
from console.queries.actors import Who, who_of
from console.queries.approvals import state_now
from console.responses import Screen, form_key, see_other
from console.step_up import asked
from console.views.approval_page import (
    HIGH,
    arguments_view,
    has_drifted,
    who_was_first,
    why_not,
)
from console.waking import store_of, wake_worker
from kernel import clock
from kernel.approvals.continuations import decide_and_carry
from kernel.approvals.decisions import Decision
from kernel.conf import conf
from kernel.errors import Conflict, KernelError
from kernel.ids import is_id, new_id
from kernel.models import Approval, Tool
from kernel.schema import AGENT_JOBS, CONTINUATIONS
from kernel.state import RuntimeStateStore
from kernel.states import ApprovalState

DECISIONS = ("approved", "denied")
ITEM = re.compile(r"([A-Za-z0-9._:-]{1,64}) ([0-9a-f]{64}) ([A-Za-z0-9._:-]{1,128})")


@dataclass(frozen=True, slots=True)
class Planned:
    """One row of the page before the act: what will happen to it, or why it is left out."""

    row: Approval
    arguments: BodyView | None
    left_out: str  # '' = it takes part
    decision_id: str
    is_changed: bool  # its tool changed since: approved, it is not sent
    asker: Who

    @property
    def item(self) -> str:
        """What the form carries for this row."""
        return f"{self.row.id} {self.row.arguments_sha256} {self.decision_id}"


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the page after the act."""

    row: Approval | None
    approval_id: str
    status: str  # a name of console/statuses.py
    text: str


class BulkForm(ConsoleForm):
    """One reason for all rows; needed where one of them is high risk."""

    reason = NoteField(label=gettext_lazy("Reason"))

    def __init__(self, *args: Any, needs_reason: bool, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = needs_reason


@needs("decide")
@needs_migration(CONTINUATIONS, AGENT_JOBS)
def bulk(request: HttpRequest) -> HttpResponseBase:
    """GET lists what will happen and decides nothing; POST decides exactly the listed rows."""
    screen = Screen(request, "console/approvals/bulk.html", "console/approvals/_bulk.html")
    if request.method == "POST":
        return _decide_all(request, screen)
    decision = _decision(request.GET.get("decision", ""))
    ids = list(dict.fromkeys(request.GET.getlist("id")))
    _check_count(ids)
    if not ids:
        messages.error(request, _("Nothing was ticked. Tick at least one question first."))
        return see_other(reverse("approvals"))
    wanted = [(one, new_id("dec")) for one in ids if is_id(one)]
    planned = _plan(request, wanted, decision=decision)
    return screen.show(_context(decision, planned, None))


def _decide_all(request: HttpRequest, screen: Screen) -> HttpResponseBase:
    decision = _decision(request.POST.get("decision", ""))
    items = [ITEM.fullmatch(one) for one in request.POST.getlist("item")]
    if not items or None in items:
        raise BadRequest(_("This form carries no rows. Tick them again and repeat."))
    parts = [one.groups() for one in items if one is not None]
    _check_count(parts)
    form_key(request)  # a form of ours
    wanted = [(approval_id, key) for approval_id, _sha, key in parts]
    planned = _plan(request, wanted, decision=decision)
    form = BulkForm(request.POST, needs_reason=_needs_reason([one.row for one in planned]))
    if not form.is_valid():
        return screen.invalid(_context(decision, planned, form))
    if decision == "approved" and _needs_reason([one.row for one in planned]):
        proof = asked(request, lambda: _approving(planned))
        if proof is not None:
            return proof
    reason = form.cleaned_data["reason"]
    actor, store = actor_of(request), store_of(request)
    rows = {one.row.id: one for one in planned}
    results = [
        _decide_one(
            rows.get(approval_id), Decision(approval_id, decision, key, reason, actor, sha), store
        )
        for approval_id, sha, key in parts
    ]
    wake_worker(request)
    done = sum(one.status != "bulk_not_done" for one in results)
    context = {"decision": decision, "results": results, "done": done, "total": len(results)}
    return screen.show(context)


def _decide_one(planned: Planned | None, order: Decision, store: RuntimeStateStore) -> Result:
    row = planned.row if planned else None
    try:
        answer = decide_and_carry(order=order, store=store)
    except KernelError as error:
        text = f"{error.message} {error.way_out}".strip()
        now = Approval.objects.defer("arguments_text").filter(id=order.approval_id).first()
        if isinstance(error, Conflict) and now is not None and now.decided_at is not None:
            text = who_was_first(now)
        return Result(row, order.approval_id, "bulk_not_done", text)
    status = f"approval_{order.decision}"
    if answer.http_status == 503:
        return Result(row, order.approval_id, status, _("Recorded, continuing: a step failed."))
    if answer.continuation_pending:
        return Result(row, order.approval_id, status, _("Recorded; the job is still busy."))
    is_unused = answer.approval.state in (ApprovalState.APPROVED, ApprovalState.CANCELLED)
    if planned and planned.is_changed and is_unused:
        text = _("Recorded, but not sent: the tool changed since. It is asked anew.")
        return Result(row, order.approval_id, status, text)
    return Result(row, order.approval_id, status, _("Carried through."))


def _plan(
    request: HttpRequest, wanted: Sequence[tuple[str, str]], *, decision: str
) -> list[Planned]:
    """Four queries: the rows, their tools, the short arguments, the names of tokens."""
    now = clock.now()
    found = Approval.objects.defer("arguments_text").annotate(size=Length("arguments_text"))
    rows = found.in_bulk([approval_id for approval_id, _key in wanted])
    short = [row.id for row in rows.values() if row.size <= conf.audit_view_bytes_max]
    texts = dict(Approval.objects.filter(id__in=short).values_list("id", "arguments_text"))
    tools = Tool.objects.only("id", "version").in_bulk({row.tool for row in rows.values()})
    known = who_of({row.requested_by for row in rows.values()})
    planned = []
    for approval_id, key in wanted:
        row = rows.get(approval_id)
        if row is None:
            continue
        why = why_not(request, row, state_now(row, now=now))
        if not why and row.id not in texts:
            why = _("Its arguments are too long for this list; decide it on its own page.")
        is_changed = has_drifted(row, tools.get(row.tool))
        if not why and is_changed and decision == "approved":
            why = _("Its tool changed since it was asked; decide it on its own page.")
        view = arguments_view(texts[row.id]) if row.id in texts else None
        planned.append(Planned(row, view, why, key, is_changed, known[row.requested_by]))
    return planned


def _context(decision: str, planned: list[Planned], form: BulkForm | None) -> dict[str, Any]:
    taking_part = [one for one in planned if not one.left_out]
    needed = _needs_reason([one.row for one in taking_part])
    return {
        "decision": decision,
        "planned": taking_part,
        "left_out": [one for one in planned if one.left_out],
        "needs_reason": needed,
        "form": form or BulkForm(needs_reason=needed),
    }


def _needs_reason(rows: Sequence[Approval]) -> bool:
    return any(row.risk == HIGH for row in rows)


def _approving(planned: Sequence[Planned]) -> str:
    first, more = planned[0].row, len(planned) - 1
    what = first.effect or first.tool
    if not more:
        return _("Approve: %(what)s") % {"what": what}
    return ngettext(
        "Approve: %(what)s And %(n)s more call.", "Approve: %(what)s And %(n)s more calls.", more
    ) % {"what": what, "n": more}


def _decision(text: str) -> str:
    if text not in DECISIONS:
        raise BadFilter("decision", text, _("must be one of: %(names)s") % {"names": DECISIONS})
    return text


def _check_count(items: Sequence[Any]) -> None:
    if len(items) > conf.list_page_rows:
        most = {"n": conf.list_page_rows}
        raise BadRequest(_("At most %(n)s at once: as many as one page lists.") % most)
