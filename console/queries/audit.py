"""The audit trail as the screens read it: newest first, one object's chain, one form's act."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.filters import BadFilter, Chosen, Id, Moment
from console.paging import Cursor, IdPage, page_ids, rows_by_id
from kernel.ids import is_id
from kernel.models import AuditRow

SUBJECT_CHARS_MAX = 160


@dataclass(frozen=True, slots=True)
class Subject(Id):
    """The subject of a chain, `<kind>:<id>`: longer than an id."""

    def read(self, text: str) -> str:
        if not is_id(text.strip(), chars_max=SUBJECT_CHARS_MAX):
            raise BadFilter(self.name, text, gettext("a kind and an id, such as account:acme"))
        return text.strip()


FILTERS = (
    Subject("subject", _("Object (kind:id)")),
    Moment("since", _("From")),
    Moment("until", _("To"), end=True),
)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """One page of the trail."""

    rows: Sequence[AuditRow]
    page: IdPage


def audit_page(chosen: Chosen, cursor: Cursor | None) -> AuditPage:
    """Two queries."""
    rows = AuditRow.objects.all()
    if "subject" in chosen.values:
        rows = rows.filter(subject=chosen.values["subject"])
    if "since" in chosen.values:
        rows = rows.filter(at__gte=chosen.values["since"])
    if "until" in chosen.values:
        rows = rows.filter(at__lt=chosen.values["until"])
    page = page_ids([rows], cursor=cursor, order_by="at")
    found = rows_by_id(AuditRow.objects.all(), page.ids)
    return AuditPage([row for row in found if isinstance(row, AuditRow)], page)


def acts_on(subject: str, *, count: int) -> list[AuditRow]:
    """The latest acts on one object (`<kind>:<id>`), newest first. One query, by its chain."""
    if not is_id(subject, chars_max=SUBJECT_CHARS_MAX):
        return []
    return list(AuditRow.objects.filter(subject=subject).order_by("-sequence")[:count])


def act_of_form(key: str) -> AuditRow | None:
    """The act that a rendered form led to, None when it led to none. One query, by its key."""
    return AuditRow.objects.filter(act_key=key).first() if key else None
