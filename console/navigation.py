"""The sidebar: every screen once, with its icon, its `g` key and the permission that shows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from django.conf import settings
from django.urls import NoReverseMatch, reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Screen:
    """One entry: the URL's name, label, icon and the second key of its `g` sequence."""

    name: str
    label: str | Promise
    icon: str
    key: str
    permission: str = "view"


@dataclass(frozen=True, slots=True)
class Section:
    """A titled group of entries."""

    title: str | Promise
    screens: tuple[Screen, ...]


SECTIONS = (
    Section("", (Screen("home", _("Home"), "home", "h"),)),
    Section(
        _("Usage"),
        (
            Screen("requests", _("Requests"), "requests", "r"),
            Screen("accounts", _("Accounts"), "accounts", "a"),
            Screen("reconciliation", _("Reconciliation"), "reconcile", "c"),
        ),
    ),
    Section(
        _("Work"),
        (
            Screen("approvals", _("Approvals"), "approvals", "p"),
            Screen("jobs", _("Jobs and workers"), "jobs", "j"),
            Screen("operations", _("Operations"), "operations", "o"),
        ),
    ),
    Section(
        _("Delivery"),
        (
            Screen("notifications", _("Notifications"), "bell", "n"),
            Screen("dead-letters", _("Dead letters"), "dead-letters", "d"),
        ),
    ),
    Section(
        _("Set-up"),
        (
            Screen("tools", _("Tools"), "tools", "m"),
            Screen("routes", _("Routes"), "routes", "w"),
            Screen("destinations", _("Destinations"), "destinations", "f"),
            Screen("alert-rules", _("Alert rules"), "alert-rules", "b"),
            Screen("services", _("Services"), "services", "s"),
            Screen("prices", _("Prices"), "prices", "i"),
            Screen("tokens", _("Tokens"), "tokens", "t"),
            Screen("people", _("People"), "people", "e"),
        ),
    ),
    Section(
        _("System"),
        (
            Screen("audit", _("Audit"), "audit", "u"),
            Screen("health", _("Health"), "health", "l"),
        ),
    ),
)

# One's own: no entries of the sidebar, for its foot and the sheet of shortcuts lead there.
OWN = (
    Screen("you", _("Your account"), "people", "y"),
    Screen("preferences", _("Preferences"), "keyboard", "v"),
)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry as one page shows it."""

    screen: Screen
    address: str
    is_current: bool
    count: str  # '' or what waits there, e.g. '7'


@dataclass(frozen=True, slots=True)
class LinkGroup:
    """A section as one page shows it."""

    title: str | Promise
    links: list[Link]


def address_of(name: str) -> str:
    """The address of a URL name, '' when that screen does not exist (yet)."""
    try:
        return reverse(name)
    except NoReverseMatch:
        return ""


@lru_cache(maxsize=8)
def _addresses(_urlconf: str) -> Mapping[str, str]:
    """The address of every screen that exists."""
    names = [screen.name for section in SECTIONS for screen in section.screens]
    return {name: address for name in names if (address := address_of(name))}


def addresses() -> Mapping[str, str]:
    """The address of every screen that exists, by name; looked up once."""
    return _addresses(str(settings.ROOT_URLCONF))


def current_screen(path: str) -> str:
    """The name of the screen that `path` is or lies below, the closest one; '' for none."""
    found = {name: address for name, address in addresses().items() if _is_below(path, address)}
    return max(found, key=lambda name: len(found[name]), default="")


def sidebar(
    *, permissions: frozenset[str], current: str = "", counts: dict[str, str] | None = None
) -> list[LinkGroup]:
    """The groups this person sees; `current` names the screen that is open."""
    groups = []
    for section in SECTIONS:
        links = [
            Link(
                screen,
                addresses()[screen.name],
                screen.name == current,
                (counts or {}).get(screen.name, ""),
            )
            for screen in section.screens
            if screen.permission in permissions and screen.name in addresses()
        ]
        if links:
            groups.append(LinkGroup(section.title, links))
    return groups


def own_screens() -> list[Link]:
    """What leads to one's own pages, as links."""
    return [
        Link(screen, address, is_current=False, count="")
        for screen in OWN
        if (address := address_of(screen.name))
    ]


def _is_below(path: str, address: str) -> bool:
    return path == address or (address != "/" and path.startswith(address.rstrip("/") + "/"))
