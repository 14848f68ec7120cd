"""The audit trail as the screen reads it: newest first, or one subject's chain."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext_lazy as _

from console.filters import Chosen, Id, Moment
from console.paging import Cursor, IdPage, page_ids, rows_by_id
from kernel.models import AuditRow

FILTERS = (
    Id("subject", _("Object (kind:id)")),
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
