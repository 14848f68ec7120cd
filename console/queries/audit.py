"""The audit trail as the screens read it: newest first, one object's chain, one form's act."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.filters import BadFilter, Choice, Chosen, Filter, Id, Moment
from console.paging import CappedCount, Cursor, IdPage, capped_count, page_ids, rows_by_id
from console.words import ACTS
from kernel.ids import is_id
from kernel.models import AuditRow
from kernel.operations import AuditFilter

SUBJECT_CHARS_MAX = ACTOR_CHARS_MAX = 160
REFUSED = ("person.refused", "sign_in.throttled")
KINDS = {
    "account": _("Accounts"),
    "service": _("Services"),
    "price": _("Prices"),
    "token": _("Tokens"),
    "signing_key": _("Signing keys"),
    "person": _("People"),
    "sign_in": _("Signing in"),
    "request": _("Requests"),
    "approval": _("Approvals"),
    "invocation": _("Direct calls"),
    "job": _("Jobs"),
    "call": _("Tool calls"),
    "tool": _("Tools"),
    "route": _("Routes"),
    "pause": _("Pauses"),
    "notification": _("Notifications"),
    "dead_letter": _("Dead letters"),
    "destination": _("Destinations"),
    "alert_rule": _("Alert rules"),
    "operation": _("Operations"),
    "pass": _("Maintenance passes"),
    "doctor": _("Examinations"),
}


@dataclass(frozen=True, slots=True)
class Subject(Id):
    """The subject of a chain, `<kind>:<id>`: longer than an id."""

    def read(self, text: str) -> str:
        if not is_id(text.strip(), chars_max=SUBJECT_CHARS_MAX):
            raise BadFilter(self.name, text, gettext("a kind and an id, such as account:acme"))
        return text.strip()


@dataclass(frozen=True, slots=True)
class ActorFilter(Filter):
    """Who acted: the name of a person, or the id of a token."""

    def read(self, text: str) -> str:
        if len(text.strip()) > ACTOR_CHARS_MAX:
            raise BadFilter(self.name, text, gettext("a name or the id of a token"))
        return text.strip()


FILTERS = (
    ActorFilter("who", _("Who")),
    Choice("kind", _("Acts on"), tuple(KINDS.items())),
    Choice("act", _("Act"), tuple(ACTS.items())),
    Choice("only", _("Only"), (("refused", _("refused acts")),)),
    Subject("subject", _("Object (kind:id)")),
    Moment("since", _("From")),
    Moment("until", _("To"), end=True),
)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page of the trail."""

    rows: Sequence[AuditRow]
    page: IdPage


def actions_of(chosen: Chosen) -> tuple[str, ...] | None:
    """The acts that the filters leave: None for all, () when they exclude each other."""
    sets = []
    if "act" in chosen.values:
        sets.append({chosen.values["act"]})
    if "kind" in chosen.values:
        sets.append({code for code in ACTS if code.split(".")[0] == chosen.values["kind"]})
    if "only" in chosen.values:
        sets.append(set(REFUSED))
    return tuple(sorted(set.intersection(*sets))) if sets else None


def audit_page(chosen: Chosen, cursor: Cursor | None) -> AuditPage:
    """Two queries; without unions in the database one more per act of the chosen kind."""
    page = page_ids(_branches(chosen), cursor=cursor, order_by="at")
    found = rows_by_id(AuditRow.objects.all(), page.ids)
    return AuditPage([row for row in found if isinstance(row, AuditRow)], page)


def audit_count(chosen: Chosen) -> CappedCount:
    """How many acts match, up to `count_cap`."""
    actions = actions_of(chosen)
    rows = export_filter(chosen).rows()
    return capped_count(AuditRow.objects.none() if actions == () else rows)


def export_filter(chosen: Chosen) -> AuditFilter:
    """The same filter as the kernel's, for exports."""
    values = chosen.values
    return AuditFilter(
        subject=values.get("subject", ""),
        actor_id=values.get("who", ""),
        actions=actions_of(chosen) or (),
        since=values.get("since"),
        before=values.get("until"),
    )


def _branches(chosen: Chosen) -> list[QuerySet[Any]]:
    """One per act, so that an index serves each; one for all acts."""
    actions = actions_of(chosen)
    if actions == ():
        return [AuditRow.objects.none()]
    values = chosen.values
    rows = AuditFilter(
        subject=values.get("subject", ""),
        actor_id=values.get("who", ""),
        since=values.get("since"),
        before=values.get("until"),
    ).rows()
    return [rows] if actions is None else [rows.filter(action=action) for action in actions]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The acts before and after one in its chain; '' where there is none."""

    before_id: str
    after_id: str


def neighbours_of(row: AuditRow) -> Neighbours:
    """One query, by the chain."""
    around = AuditRow.objects.filter(
        subject=row.subject, sequence__in=[row.sequence - 1, row.sequence + 1]
    )
    ids = dict(around.values_list("sequence", "id"))
    return Neighbours(ids.get(row.sequence - 1, ""), ids.get(row.sequence + 1, ""))


def acts_on(subject: str, *, count: int) -> list[AuditRow]:
    """The latest acts on one object (`<kind>:<id>`), newest first. One query, by its chain."""
    if not is_id(subject, chars_max=SUBJECT_CHARS_MAX):
        return []
    return list(AuditRow.objects.filter(subject=subject).order_by("-sequence")[:count])


def act_of_form(key: str) -> AuditRow | None:
    """The act that a rendered form led to, None when it led to none. One query, by its key."""
    return AuditRow.objects.filter(act_key=key).first() if key else None
