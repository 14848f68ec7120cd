"""Who may do what: roles are groups, each view declares its permission, everything else is denied.

    @needs("view", post="operate")
    def request_detail(request, request_id): ...

`AccessMiddleware` refuses views that declare nothing, sends strangers to the sign-in page and keeps
what they typed. The decorator checks on every call: a button shown enabled is no permission.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.kept import kept_texts
from console.second_factor import missing_factor
from kernel import sql

PERMISSIONS: dict[str, str | Promise] = {
    "view": gettext_lazy("see the console"),
    "decide": gettext_lazy("approve or deny"),
    "operate": gettext_lazy("resolve, cancel, dispatch, correct, replay and run passes"),
    "configure": gettext_lazy("change accounts, services, prices and destinations"),
    "tokens": gettext_lazy("issue and revoke tokens"),
    "people": gettext_lazy("manage people and roles"),
}

# What each of the kernel's roles may do here; kernel/access/people.py makes the groups.
ROLES: dict[str, frozenset[str]] = {
    "viewer": frozenset({"view"}),
    "approver": frozenset({"view", "decide"}),
    "operator": frozenset({"view", "operate"}),
    "admin": frozenset(PERMISSIONS),
}

# Written out: every page asks.
_OF_PERSON = "WHERE id IN (SELECT group_id FROM auth_user_groups WHERE user_id = %s)"

View = Callable[..., HttpResponseBase]


class Denied(PermissionDenied):
    """The signed-in person lacks a permission. Answered with 403 and this reason."""

    def __init__(self, permission: str, reason: str):
        super().__init__(reason)
        self.permission, self.reason = permission, reason


@dataclass(frozen=True, slots=True)
class Ability:
    """Whether a person may do something and, if not, why: the text beside the disabled button."""

    allowed: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.allowed


def roles_of(user: Any) -> tuple[str, ...]:
    """The person's roles in the order of ROLES; a superuser is an admin. Read once per request."""
    if not getattr(user, "is_authenticated", False) or not user.is_active:
        return ()
    known = getattr(user, "_console_roles", None)
    if known is None:
        found = sql.values(Group, ("name",), {}, more=_OF_PERSON, parameters=[user.pk])
        names = {name for (name,) in found}
        if user.is_superuser:
            names.add("admin")
        known = user._console_roles = tuple(role for role in ROLES if role in names)
    return known


def permissions_of(user: Any) -> frozenset[str]:
    """All permissions of the person's roles."""
    return frozenset().union(*(ROLES[role] for role in roles_of(user)))


def ability(user: Any, permission: str) -> Ability:
    """May this person do this? Returns the reason in words when not."""
    if permission not in PERMISSIONS:
        raise ImproperlyConfigured(f"no such permission: {permission}")
    if permission in permissions_of(user):
        return Ability(True)
    able = [role for role, granted in ROLES.items() if permission in granted]
    reason = _("Your role (%(mine)s) may not %(act)s. Allowed: %(able)s.") % {
        "mine": ", ".join(roles_of(user)) or _("none"),
        "act": PERMISSIONS[permission],
        "able": ", ".join(able),
    }
    return Ability(False, reason)


def check(request: HttpRequest, permission: str) -> None:
    """Raises Denied when the signed-in person lacks the permission."""
    answer = ability(request.user, permission)
    if not answer:
        raise Denied(permission, answer.reason)


def needs(permission: str, *, post: str = "") -> Callable[[View], View]:
    """Declares and checks a view's permission; `post` is the one for unsafe methods, if another."""
    for name in filter(None, (permission, post)):
        if name not in PERMISSIONS:
            raise ImproperlyConfigured(f"no such permission: {name}")

    def declare(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            check(request, permission)
            if post and request.method not in ("GET", "HEAD", "OPTIONS"):
                check(request, post)
            return view(request, *args, **kwargs)

        checked.needs = (permission, post or permission)  # type: ignore[attr-defined]  # read below
        return checked

    return declare


def is_public(view: View) -> bool:
    """True for views marked with Django's `login_not_required`."""
    return getattr(view, "login_required", True) is False


class AccessMiddleware:
    """Denies by default: every view is public, declares `needs`, or belongs to the stock admin."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: View, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        if is_public(view):
            return None
        if not request.user.is_authenticated:
            return ask_to_sign_in(request)
        match = request.resolver_match
        missing = missing_factor(request, (match.url_name or "") if match else "")
        if missing is not None:
            return missing
        if hasattr(view, "needs"):
            return None
        if match is not None and match.app_names[:1] == ["admin"]:  # it checks is_staff itself
            check(request, "view")
            return None
        raise ImproperlyConfigured(f"{view.__module__}.{view.__qualname__} declares no permission")


def ask_to_sign_in(request: HttpRequest) -> HttpResponseBase:
    """GET: redirect to sign in. htmx: 401 with HX-Redirect. POST: 401 that keeps the typed text."""
    page = request.headers.get("HX-Current-URL") or request.get_full_path()
    if request.method not in ("GET", "HEAD") and not request.headers.get("HX-Request"):
        page = request.headers.get("Referer", "")
    query = urlencode({"next": local_path(request, page), "ended": "1"})
    address = f"{resolve_url('sign-in')}?{query}"
    if request.headers.get("HX-Request") == "true":
        return HttpResponse(status=401, headers={"HX-Redirect": address})
    if request.method in ("GET", "HEAD"):
        return redirect(f"{resolve_url('sign-in')}?{urlencode({'next': request.get_full_path()})}")
    context = {"sign_in_address": address, "kept": kept_texts(request)}
    return render(request, "console/errors/401.html", context, status=401)


def local_path(request: HttpRequest, address: str) -> str:
    """Path and query of an address of this host; '/' for any other."""
    prefix = f"{request.scheme}://{request.get_host()}"
    path = address.removeprefix(prefix)
    # Browsers read "\" as "/": what begins with two of either names a host.
    return path if path.startswith("/") and path[1:2] not in ("/", "\\") else "/"
