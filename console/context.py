"""What every page needs: the sidebar, the person's roles and preferences. Two queries."""

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString
from django.utils.translation import get_language

from console.access import permissions_of, roles_of
from console.migrated import is_migrated
from console.navigation import address_of, current_screen, own_screens, sidebar
from console.preferences import preferences_of
from console.queries.approvals import waiting_count


def _approvals_waiting() -> str:
    """How many approvals a person could decide now, '' for none. One query."""
    waiting = waiting_count() if is_migrated() else None
    return str(waiting) if waiting and waiting.value else ""


@lru_cache(maxsize=512)
def navigation(
    template: str, permissions: frozenset[str], current: str, waiting: str, _language_and_urls: Any
) -> SafeString:
    """The screens as links or as keys: the same for everybody who may see the same ones."""
    groups = sidebar(permissions=permissions, current=current, counts={"approvals": waiting})
    return render_to_string(template, {"sidebar": groups, "own": own_screens()})


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor: preferences; lazily the screens, the roles, addresses, what waits."""
    user = getattr(request, "user", None)  # absent when an outer middleware refused the request
    waiting = SimpleLazyObject(_approvals_waiting)
    words = (get_language(), settings.ROOT_URLCONF)
    return {
        "approvals_waiting": waiting,
        "preferences": preferences_of(request),
        "roles": SimpleLazyObject(lambda: roles_of(user)),
        "nav": SimpleLazyObject(
            lambda: navigation(
                "console/_nav.html",
                permissions_of(user),
                current_screen(request.path),
                str(waiting),
                words,
            )
        ),
        "nav_keys": SimpleLazyObject(
            lambda: navigation("console/_keys.html", permissions_of(user), "", "", words)
        ),
        "go_to": SimpleLazyObject(lambda: address_of("go-to")),
        "preferences_address": SimpleLazyObject(lambda: address_of("preferences")),
    }
