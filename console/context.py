"""What every page needs: the sidebar, the person's roles and preferences. Two queries."""

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from console.access import permissions_of, roles_of
from console.migrated import is_migrated
from console.navigation import address_of, sidebar
from console.preferences import preferences_of
from console.queries.approvals import waiting_count


def _approvals_waiting() -> str:
    """How many approvals a person could decide now, '' for none. One query."""
    waiting = waiting_count() if is_migrated() else None
    return str(waiting) if waiting and waiting.value else ""


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor: preferences; lazily the sidebar, the roles, addresses, what waits."""
    user = getattr(request, "user", None)  # absent when an outer middleware refused the request
    waiting = SimpleLazyObject(_approvals_waiting)
    return {
        "approvals_waiting": waiting,
        "preferences": preferences_of(request),
        "roles": SimpleLazyObject(lambda: roles_of(user)),
        "sidebar": SimpleLazyObject(
            lambda: sidebar(
                permissions=permissions_of(user),
                path=request.path,
                counts={"approvals": str(waiting)},
            )
        ),
        "go_to": SimpleLazyObject(lambda: address_of("go-to")),
        "preferences_address": SimpleLazyObject(lambda: address_of("preferences")),
    }
