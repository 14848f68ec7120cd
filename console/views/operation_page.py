"""What the page of one long act shows: its frozen set, how far it came, what it did to each."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.acting import version_of
from console.filters import BadFilter, Chosen, read_filters
from console.queries.actors import who_of
from console.queries.audit import acts_on
from console.queries.dead_letters import sample_of
from console.queries.operations import (
    DOUBTFUL_OF_ROWS,
    ITEM_FILTERS,
    filter_of,
    item_page,
    set_view,
)
from console.queries.retention import removed_at
from console.words import act_text
from kernel import clock
from kernel.errors import NotFound
from kernel.ids import is_id
from kernel.models import Export, Operation
from kernel.operations import exports, get_operation, plan
from kernel.states import OperationState

ACTS_SHOWN = 20
LIVE = (OperationState.PLANNING, OperationState.RUNNING, OperationState.PAUSED)
KINDS: dict[str, str | Promise] = {
    plan.REPLAY: gettext_lazy("Replay of dead letters"),
    plan.ARCHIVE: gettext_lazy("Archiving of dead letters"),
    exports.EXPORT_AUDIT: gettext_lazy("Export of acts"),
    exports.EXPORT_REQUESTS: gettext_lazy("Export of requests"),
}
FILTER_WORDS: dict[str, str | Promise] = {
    "fingerprint": gettext_lazy("Group"),
    "destination_id": gettext_lazy("Destination"),
    "account_id": gettext_lazy("Account"),
    "channel": gettext_lazy("Channel"),
    "actor_id": gettext_lazy("Who"),
    "actions": gettext_lazy("Acts"),
    "subject": gettext_lazy("Object"),
    "result_state": gettext_lazy("Result"),
    "billing_state": gettext_lazy("Billing"),
    "since": gettext_lazy("From"),
    "before": gettext_lazy("To"),
}


@dataclass(frozen=True, slots=True)
class Course:
    """How far a long act came, from its real counts."""

    handled: int
    left: int
    per_second: float  # measured since it started; 0 = not known
    left_seconds: float | None
    is_whole: bool  # every item of the set is accounted for


def operation_or_404(operation_id: str) -> Operation:
    """The operation of this id, or Http404."""
    if not is_id(operation_id, chars_max=64):
        raise Http404
    try:
        row: Operation = get_operation(operation_id=operation_id)
    except NotFound:
        raise Http404 from None
    return row


def operation_context(request: HttpRequest, row: Operation) -> dict[str, Any]:
    """Everything templates/console/operations/detail.html names."""
    chosen, after = _items_wanted(request)
    is_frozen = bool(row.digest)
    found = item_page(row, state=chosen.values.get("item", ""), after=after)
    of_letters = row.kind in plan.KINDS
    file = export_of(row)
    return {
        "row": row,
        "kind": kind_text(row.kind),
        "planned_by": who_of([row.created_by])[row.created_by],
        "version": version_text(row),
        "is_live": row.state in LIVE,
        "course": course_of(row, now=clock.now()),
        "wanted": wanted_of(row),
        "sample": sample_of(filter_of(row).get("fingerprint", "")),
        "set": set_view(row) if of_letters and is_frozen else None,
        "doubtful_of": min(DOUBTFUL_OF_ROWS, row.item_count),
        "of_letters": of_letters,
        "items": found.rows,
        "items_chosen": chosen,
        "items_next": chosen.query(after=str(found.after)) if found.after else "",
        "items_later": after > 0,
        "why": why_not(row),
        "file": file,
        "removed": removed_at("exports", file.purged_at) if file else None,
        "acts": [
            {"row": act, "text": act_text(act.action)}
            for act in acts_on(f"operation:{row.id}", count=ACTS_SHOWN)
        ],
    }


def export_of(row: Operation) -> Export | None:
    """The file that an export makes; None for other operations."""
    if row.kind not in exports.KINDS:
        return None
    found: Export = exports.get_export(operation_id=row.id)
    return found


def kind_text(kind: str) -> str:
    """The kind of an operation in words."""
    return str(KINDS.get(kind, kind.replace("_", " ")))


def version_text(row: Operation) -> str:
    """What a poll compares."""
    handled = row.done_count + row.skipped_count + row.failed_count
    return f"{version_of(row.updated_at)}-{handled}-{row.state}"


def course_of(row: Operation, *, now: datetime) -> Course:
    """Counts, speed and what is left; nothing is guessed before something was done."""
    handled = row.done_count + row.skipped_count + row.failed_count
    left = max(row.item_count - handled, 0)
    seconds = ((row.finished_at or now) - row.started_at).total_seconds() if row.started_at else 0
    per_second = handled / seconds if handled and seconds > 0 else 0.0
    runs = row.state == OperationState.RUNNING
    left_seconds = left / per_second if runs and per_second else None
    is_whole = row.state != OperationState.DONE or handled == row.item_count
    return Course(handled, left, per_second, left_seconds, is_whole)


def wanted_of(row: Operation) -> list[tuple[str, str, str]]:
    """The filter of the plan: label, value, where it leads ('' = nowhere)."""
    found = []
    for name, value in filter_of(row).items():
        text, href = ", ".join(value) if isinstance(value, list) else str(value), ""
        if name == "destination_id" and is_id(text):
            href = reverse("destination", args=[text])
        elif name == "account_id" and is_id(text):
            href = reverse("account", args=[text])
        elif name == "fingerprint" and is_id(text):
            href = f"{reverse('dead-letters-list')}?group={text}"
        found.append((str(FILTER_WORDS.get(name, name.replace("_", " "))), text, href))
    return found


def why_not(row: Operation) -> dict[str, str]:
    """Why an act is not possible, in words; '' when it is."""
    state = row.state
    ended = state in (OperationState.DONE, OperationState.CANCELLED)
    empty = _("The set is empty; there is nothing to do.") if not row.item_count else ""
    planned = state == OperationState.PLANNED
    late = _("It was started before, or ended.")
    if state == OperationState.PLANNING:
        late = _("Its set is still being frozen.")
    return {
        "apply": empty if planned else late,
        "pause": "" if state == OperationState.RUNNING else _("Only a running one can be paused."),
        "resume": "" if state == OperationState.PAUSED else _("Only a paused one can go on."),
        "cancel": _("It has ended; there is nothing to cancel.") if ended else "",
    }


def _items_wanted(request: HttpRequest) -> tuple[Chosen, int]:
    """The item filter and the number to go on after. BadFilter (400) when they make no sense."""
    chosen = read_filters(request.GET, ITEM_FILTERS)
    text = request.GET.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadFilter("after", text, _("not a position in this list"))
    return chosen, int(text)
