"""Fixtures of the browser suite: one console and one Chromium for all, a watched page for each."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect

from tests.browser.console import NAME, PASSWORD, Console
from tests.support.browser import browser

DESK, PHONE = {"width": 1440, "height": 900}, {"width": 360, "height": 740}
LAPTOP = {"width": 1024, "height": 768}
UNKNOWNS = 8
# A poll that was on its way when its page was left.
_LEFT = re.compile(r"htmx:(sendAbort|afterRequest)\b")
_REFUSED = re.compile(r"the server responded with a status of (\d+)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """The console of the run; it must end cleanly and must not have logged a defect."""
    started = Console(tmp_path_factory.mktemp("console"), settled_rows=12, unknowns=UNKNOWNS)
    try:
        yield started
    finally:
        code = started.end()
    assert code == 0, started.output
    assert " ERROR " not in started.output and "Traceback" not in started.output, started.output


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        expect.set_options(timeout=10_000)
        yield started


@pytest.fixture(scope="session")
def signed_in_state(chromium: Browser, console: Console) -> Any:
    """The cookies of a person who signed in once."""
    context = chromium.new_context(base_url=console.address)
    sign_in(context.new_page())
    state = context.storage_state()
    context.close()
    return state


class Watch(list[str]):
    """What must stay empty: script errors, console errors, refused content, defects, strangers.

    `allow(409)` names a refusal that the test provokes on purpose.
    """

    def __init__(self, origin: str):
        super().__init__()
        self.origin = origin
        self._allowed: set[int] = set()

    def allow(self, *statuses: int) -> None:
        self._allowed.update(statuses)

    def follow(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.append(f"script error: {error}"))
        page.on("console", self._on_message)
        page.on("response", self._on_response)

    def _on_message(self, message: Any) -> None:
        if message.type not in ("error", "warning") or _LEFT.match(message.text):
            return
        refused = _REFUSED.search(message.text)
        if not (refused and int(refused.group(1)) in self._allowed):
            self.append(f"console {message.type}: {message.text}")

    def _on_response(self, response: Response) -> None:
        if not response.url.startswith((self.origin, "data:")):
            self.append(f"a request to another host: {response.url}")
        if response.status >= 500:
            self.append(f"{response.status}: {response.url}")


@pytest.fixture
def watch(console: Console) -> Iterator[Watch]:
    found = Watch(console.address)
    yield found
    assert not found


Opener = Callable[..., Page]


@pytest.fixture
def open_page(
    chromium: Browser, console: Console, watch: Watch, signed_in_state: Any
) -> Iterator[Opener]:
    """Opens a watched page in a fresh context: `open_page(PHONE, javascript=False)`."""
    contexts: list[BrowserContext] = []

    def make(
        size: Any = None, *, javascript: bool = True, signed_in: bool = True, **options: Any
    ) -> Page:
        context = chromium.new_context(
            base_url=console.address,
            viewport=size or DESK,
            java_script_enabled=javascript,
            storage_state=signed_in_state if signed_in else None,
            **options,
        )
        contexts.append(context)
        context.on("page", watch.follow)
        return context.new_page()

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page: Opener) -> Page:
    """A signed-in administrator's page at a desk."""
    return open_page()


def sign_in(page: Page, password: str = PASSWORD) -> None:
    """From the sign-in page, or from any page that leads there."""
    if "sign-in" not in page.url:
        page.goto("/sign-in/")
    page.get_by_label("Username").fill(NAME)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
