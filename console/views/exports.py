"""Exports as operations: planned from the filters of a list, downloaded from their page (F9)."""

from base64 import b64encode
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import actor_of
from console.csv_text import bytes_download
from console.filters import BadFilter, Chosen, read_filters
from console.forms import ConsoleForm, NoteField
from console.migrated import needs_migration
from console.queries import audit as audit_rows
from console.queries import requests as request_rows
from console.responses import Screen
from console.views.audit import CONTENT_TYPES
from console.views.form_page import Done, FormPage, run_form
from console.views.operation_page import operation_context, operation_or_404
from console.views.operations import DETAIL, PART, ReasonForm
from kernel import operations
from kernel.errors import KernelError
from kernel.operations import RequestFilter, exports
from kernel.schema import DELIVERY, RETENTION


class ExportForm(ConsoleForm):
    """Why an export is made, and as what."""

    reason = NoteField(label=gettext_lazy("Reason"))
    format = forms.ChoiceField(
        label=gettext_lazy("Format"),
        choices=[
            (exports.CSV, gettext_lazy("CSV, for spreadsheets")),
            (exports.JSONL, gettext_lazy("JSON lines, every value as it is stored")),
        ],
    )

    def clean_reason(self) -> str:
        """The kernel keeps one line."""
        return " ".join(str(self.cleaned_data["reason"]).split())


@needs("operate")
@needs_migration(DELIVERY, RETENTION)
def plan_audit(request: HttpRequest) -> HttpResponse:
    """Plan an export of the filtered acts, as an operation."""
    query = request.GET.copy()
    format = query.pop("format", [exports.CSV])[-1]
    chosen = read_filters(query, audit_rows.FILTERS)
    if audit_rows.actions_of(chosen) == ():
        raise BadFilter("act", chosen.values.get("act", ""), _("the filters exclude each other"))
    return _plan(
        request,
        chosen,
        audit_rows.export_filter(chosen),
        title=_("Export acts"),
        count=str(audit_rows.audit_count(chosen)),
        back="audit",
        crumb=_("Audit"),
        format=format,
    )


@needs("operate")
@needs_migration(DELIVERY, RETENTION)
def plan_requests(request: HttpRequest) -> HttpResponse:
    """Plan an export of the filtered requests; the times are those of admission."""
    chosen = read_filters(request.GET, request_rows.FILTERS)
    if "reason" in chosen.values:
        raise BadFilter("reason", chosen.values["reason"], _("an export knows no reasons"))
    values = chosen.values
    wanted = RequestFilter(
        account_id=values.get("account", ""),
        result_state=values.get("state", ""),
        billing_state=values.get("billing", ""),
        since=values.get("since"),
        before=values.get("until"),
    )
    return _plan(
        request,
        chosen,
        wanted,
        title=_("Export requests"),
        count="",
        back="requests",
        crumb=_("Requests"),
        format=exports.CSV,
    )


def _plan(
    request: HttpRequest,
    chosen: Chosen,
    wanted: operations.AuditFilter | RequestFilter,
    *,
    title: str,
    count: str,
    back: str,
    crumb: str,
    format: str,
) -> HttpResponse:
    page = FormPage(
        title=title,
        submit=_("Freeze the set and show the plan"),
        back=f"{reverse(back)}{chosen.query()}",
        crumb=crumb,
        permission="operate",
        lead=_("First the set is frozen: what matches now. The file is made when it is started."),
        facts=[
            *((chip.label, chip.text) for chip in chosen.chips),
            *(((_("Matches now"), count),) if count else ()),
        ],
    )

    def act(data: dict[str, Any]) -> Done:
        row = operations.plan_export(filter=wanted, actor=actor_of(request), **data)
        return Done(reverse("operation", args=[row.id]), _("The set is frozen. Nothing was done."))

    form = ExportForm(request.POST or None, initial={"format": format})
    return run_form(request, page, form, act)


@needs("operate")
@require_GET
@needs_migration(DELIVERY, RETENTION)
def file(request: HttpRequest, operation_id: str) -> HttpResponseBase:
    """The file of an export operation, a piece in memory at a time; 410 after its retention."""
    operation = operation_or_404(operation_id)
    if operation.kind not in exports.KINDS:
        raise Http404
    try:
        row = operations.whole_file(operation_id=operation.id)
    except KernelError as error:
        context = operation_context(request, operation) | {"form": ReasonForm()}
        return Screen(request, DETAIL, PART).problem(error, context)

    def piece_after(number: int) -> tuple[bytes, int | None]:
        piece = exports.piece_of(operation_id=operation.id, sequence=number)
        return piece or b"", number + 1 if number + 1 < row.chunk_count else None

    response = bytes_download(
        name=f"{operation.id}.{row.format}",
        content_type=CONTENT_TYPES[row.format],
        piece_after=piece_after,
        start=0,
    )
    response["Content-Length"] = str(row.byte_count)
    response["Repr-Digest"] = f"sha-256=:{b64encode(bytes.fromhex(row.sha256)).decode()}:"
    return response
