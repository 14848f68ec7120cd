"""The stock Django admin, read-only, for raw rows: what the screens do not show, for staff.

Its own site, so that nothing another app registers (people, groups) can be changed past the audit
trail. No COUNT, no sorting by a column without an index: rows come by primary key, newest first.
"""

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import BinaryField, Field, Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from console.access import ability
from kernel import models

ROWS_PER_PAGE = 50
ROWS_REACHED_MAX = 1_000
LIST_COLUMNS_MAX = 8
MODELS: tuple[type[Model], ...] = (
    models.Account,
    models.Service,
    models.Price,
    models.Request,
    models.Body,
    models.LedgerRow,
    models.Approval,
    models.Continuation,
    models.Job,
    models.ToolCall,
    models.Tool,
    models.Route,
    models.Notification,
    models.DeadLetter,
    models.Token,
    models.AuditRow,
    models.PassStatus,
    models.CheckReport,
    models.SchemaStep,
)
# Hashes of secrets, fences and the bytes of bodies have no business on a page; nor has what the
# screens show masked: arguments, a job's texts, a tool's answer, addresses that may hold a key.
HIDDEN = frozenset(
    {"secret_sha256", "fence_token", "act_key", "recipient"}
    | {"arguments_text", "input_text", "result_text", "response_text"}
)


class ReachedPaginator(Paginator):
    """Pages over the first ROWS_REACHED_MAX rows; looks ahead in the index instead of counting."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return len(rows.values_list("pk", flat=True)[:ROWS_REACHED_MAX])


class RawRows(admin.AdminSite):
    """The site: staff with a role, signed in at our page; no passwords here."""

    site_header = site_title = _("Bailing: raw rows, read-only")
    index_title = _("Tables")
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        user = request.user
        return bool(user.is_active and user.is_staff and ability(user, "view"))

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Never its own form: strangers were sent to ours before, others lack the right."""
        return redirect("home")

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> TemplateResponse:
        raise Http404

    password_change_done = password_change


class RawRowsAdmin(admin.ModelAdmin):
    """One table: looked at, never changed."""

    list_per_page = list_max_show_all = ROWS_PER_PAGE
    paginator = ReachedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    ordering = ("-pk",)
    actions = None
    view_on_site = False

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        names = [field.name for field in self._shown() if not field.primary_key]
        return ["pk", *names][:LIST_COLUMNS_MAX]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return [field.name for field in self._shown()]

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return ("=pk",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self._hidden())

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return raw_rows.has_permission(request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return raw_rows.has_permission(request)

    def _shown(self) -> "list[Field[Any, Any]]":
        hidden = self._hidden()
        return [field for field in self.model._meta.concrete_fields if field.name not in hidden]

    def _hidden(self) -> list[str]:
        return [
            field.name
            for field in self.model._meta.concrete_fields
            if field.name in HIDDEN or isinstance(field, BinaryField)
        ]


raw_rows = RawRows(name="admin")
for model in MODELS:
    raw_rows.register(model, RawRowsAdmin)
