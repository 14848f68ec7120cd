"""The distribution's Chromium under Playwright; policy violations and script errors recorded."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser. RuntimeError when there is none: a browser test never just skips."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("no Chromium on the path; install the package `chromium`")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


class Faults(list[str]):
    """What must stay empty: script errors, and anything that the content policy refused."""


def watch(page: Page) -> Faults:
    """Records the page's faults from now on."""
    faults = Faults()
    page.on("pageerror", lambda error: faults.append(f"script error: {error}"))

    def on_message(message: Any) -> None:
        if "Content Security Policy" in message.text:
            faults.append(message.text)

    page.on("console", on_message)
    return faults
