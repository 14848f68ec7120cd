"""The audit trail: the list, one act, and the filtered acts as a file (M2)."""

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.access import needs
from console.csv_text import bytes_download
from console.filters import BadFilter, read_filters
from console.paging import Cursor
from console.places import place_of
from console.queries.actors import one_who, who_of
from console.queries.audit import FILTERS, audit_count, audit_page, neighbours_of
from console.responses import Screen, see_other
from console.words import act_text, changes_of
from kernel.ids import is_id
from kernel.models import AuditRow
from kernel.operations import exports

HEAD, NEWEST = "head", ""  # positions of a file before its first page of rows
CONTENT_TYPES = {exports.CSV: "text/csv; charset=utf-8", exports.JSONL: "application/x-ndjson"}


@needs("view")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """Who did what, newest first. Constant queries."""
    chosen = read_filters(request.GET, FILTERS)
    found = audit_page(chosen, Cursor.read(request.GET))
    known = who_of({f"{row.actor_kind}:{row.actor_id}" for row in found.rows})
    rows = [
        {
            "row": row,
            "who": known[f"{row.actor_kind}:{row.actor_id}"],
            "text": act_text(row.action),
            "changes": changes_of(row),
            "href": place_of(row.subject),
        }
        for row in found.rows
    ]
    return Screen(request, "console/audit/index.html", "console/audit/_list.html").show(
        {"rows": rows, "page": found.page, "chosen": chosen}
    )


@needs("view")
@require_GET
def act(request: HttpRequest, audit_id: str) -> HttpResponse:
    """One act: before and after, reason, HTTP request, its place in the chain."""
    row = AuditRow.objects.filter(id=audit_id).first() if is_id(audit_id, chars_max=64) else None
    if row is None:
        raise Http404
    return Screen(request, "console/audit/detail.html", "console/audit/_act.html").show(
        {
            "row": row,
            "text": act_text(row.action),
            "changes": changes_of(row),
            "href": place_of(row.subject),
            "around": neighbours_of(row),
            "who": one_who(row.actor_kind, row.actor_id),
        }
    )


@needs("view")
@require_GET
def export(request: HttpRequest) -> HttpResponseBase:
    """The filtered acts as a file, newest first; more than `count_cap` become an operation."""
    query = request.GET.copy()
    formats = query.pop("format", [exports.CSV])
    format = formats[-1]
    if format not in exports.FORMATS:
        raise BadFilter("format", format, _("must be one of: csv, jsonl"))
    chosen = read_filters(query, FILTERS)
    if audit_count(chosen).capped:
        return see_other(f"{reverse('audit-plan')}{chosen.query(format=format)}")

    def piece_after(position: str) -> tuple[bytes, str | None]:
        if position == HEAD:
            return exports.head_line(exports.EXPORT_AUDIT, format=format), NEWEST
        found = audit_page(chosen, Cursor.read({"after": position} if position else {}))
        return exports.audit_lines(found.rows, format=format), found.page.older

    return bytes_download(
        name=f"audit.{format}",
        content_type=CONTENT_TYPES[format],
        piece_after=piece_after,
        start=HEAD,
    )
