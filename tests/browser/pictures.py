"""A picture of each screen, for README and docs/console.md: `python -m tests.browser.pictures`.

The console runs on demo rows in a directory of its own. Pictures are WebP, which the browser itself
writes: a screen is about 40 kB. Give names (tests/browser/screens.py) to take only those.
"""

import base64
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import django
from playwright.sync_api import Browser, expect

from tests.browser.screens import address
from tests.support.browser import browser

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
BYTES_MAX, ALL_BYTES_MAX = 150_000, 2_500_000
QUALITY = 72
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 360, "height": 740}


class Shot(NamedTuple):
    """One picture: which screen, in which theme, on which device."""

    screen: str
    theme: str = "light"
    size: Any = DESK

    @property
    def file(self) -> str:
        ends = ("-phone" if self.size is PHONE else "", "-dark" if self.theme == "dark" else "")
        return f"{self.screen}{''.join(ends)}.webp"


SHOTS = (
    *(
        Shot(name)
        for name in (
            "home", "approvals", "approval", "requests", "request", "request-correct", "account",
            "reconciliation", "jobs", "job", "operation-planned", "notifications", "notification",
            "dead-letters", "dead-letter", "tool", "destination", "people", "audit", "health",
            "preferences", "you",
        )
    ),
    Shot("home", "dark"),
    Shot("request", "dark"),
    Shot("approval", "light", PHONE),
    Shot("dead-letters", "dark", PHONE),
)  # fmt: skip


def main(wanted: list[str]) -> int:
    """Write docs/pictures/*.webp. 1 when they are larger than the tree may hold."""
    from tests.browser.console import Console

    PICTURES.mkdir(parents=True, exist_ok=True)
    shots = [one for one in SHOTS if not wanted or one.screen in wanted]
    with tempfile.TemporaryDirectory(prefix="bz-pictures-") as directory, browser() as chromium:
        console = Console(Path(directory), settled_rows=40, unknowns=0)
        try:
            state = _signed_in(chromium, console)
            for shot in shots:
                _take(chromium, console, state, shot)
        finally:
            console.end()
    sizes = {one.name: one.stat().st_size for one in sorted(PICTURES.glob("*.webp"))}
    for name, size in sizes.items():
        print(f"docs/pictures/{name}: {size:,} bytes")
    return int(max(sizes.values()) > BYTES_MAX or sum(sizes.values()) > ALL_BYTES_MAX)


def _signed_in(chromium: Browser, console: Any) -> Any:
    """The cookies of the administrator."""
    from tests.browser.console import NAME, PASSWORD

    context = chromium.new_context(base_url=console.address)
    page = context.new_page()
    page.goto("/sign-in/")
    page.get_by_label("Username").fill(NAME)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".main h1")).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


def _take(chromium: Browser, console: Any, state: Any, shot: Shot) -> None:
    context = chromium.new_context(
        base_url=console.address,
        viewport=shot.size,
        color_scheme=shot.theme,
        reduced_motion="reduce",
        storage_state=state,
    )
    page = context.new_page()
    page.goto(address(shot.screen, console.made))
    expect(page.locator(".main h1")).to_be_visible()
    wanted = {"format": "webp", "quality": QUALITY}
    taken = context.new_cdp_session(page).send("Page.captureScreenshot", wanted)
    (PICTURES / shot.file).write_bytes(base64.b64decode(taken["data"]))
    context.close()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    sys.exit(main(sys.argv[1:]))
