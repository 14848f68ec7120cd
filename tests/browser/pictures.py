"""The README's pictures, from a console with a busy day: `python -m tests.browser.pictures`."""

import sys
import tempfile
from pathlib import Path

import django
from playwright.sync_api import expect

from tests.browser.console import NAME, PASSWORD, ROOT, Console
from tests.support.browser import browser

PICTURES = ROOT / "docs" / "pictures"
SIZE = {"width": 1440, "height": 900}
BYTES_MAX = 300_000


def main() -> int:
    """Write docs/pictures/*.png. 1 when one is larger than the tree may hold."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bz-pictures-") as directory:
        console = Console(Path(directory), settled_rows=40, unknowns=0)
        try:
            _take(console)
        finally:
            console.end()
    large = [one.name for one in PICTURES.glob("*.png") if one.stat().st_size > BYTES_MAX]
    for one in sorted(PICTURES.glob("*.png")):
        print(f"{one.relative_to(ROOT)}: {one.stat().st_size:,} bytes")
    return 1 if large else 0


def _take(console: Console) -> None:
    wanted = {"home": "/", "request": f"/requests/{console.made['unknown']}/"}
    with browser() as chromium:
        page = chromium.new_page(
            base_url=console.address, viewport=SIZE, color_scheme="light", device_scale_factor=1.25
        )
        page.goto("/sign-in/")
        page.get_by_label("Username").fill(NAME)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for name, address in wanted.items():
            page.goto(address, wait_until="networkidle")
            page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    django.setup()
    sys.exit(main())
