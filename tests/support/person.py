"""A person at the console without a browser: signs in, reads pages, sends forms as rendered."""

from html.parser import HTMLParser
from types import TracebackType
from typing import Any

import httpx

from tests.support.environment import SYNTHETIC


class Person:
    """One signed-in session over HTTP."""

    def __init__(self, address: str):
        self._http = httpx.Client(base_url=address, trust_env=False, timeout=30)

    def __enter__(self) -> "Person":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def sign_in(
        self, name: str = "admin", password: str = SYNTHETIC["BAILING_ADMIN_PASSWORD"]
    ) -> None:
        """As the first administrator, with the tests' password, or as somebody else."""
        self.send("/sign-in/", "", username=name, password=password)

    def page(self, path: str) -> str:
        """The HTML of a page that is there."""
        answer = self._http.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        return answer.text

    def send(self, path: str, action: str, **fields: Any) -> None:
        """Send the form with this action (any, when '') that a page shows; expects a redirect."""
        answer = self.post(action or path, self.hidden(path, action), **fields)
        assert answer.status_code in (302, 303), (answer.status_code, answer.text[:2000])

    def hidden(self, path: str, action: str) -> dict[str, str]:
        """The hidden fields of the form with this action (any, when '') that a page shows."""
        form = _Form(action)
        form.feed(self.page(path))
        assert form.found, f"{path} has no form for {action}"
        return form.hidden

    def post(self, address: str, hidden: dict[str, str], **fields: Any) -> httpx.Response:
        """Send a form as it was rendered, with these values typed in; whatever it answers."""
        return self._http.post(address, data={**hidden, **fields})


class _Form(HTMLParser):
    """The hidden fields of the first form with an action."""

    def __init__(self, action: str):
        super().__init__()
        self._action, self._inside = action, False
        self.found, self.hidden = False, dict[str, str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form" and not self.found and self._action in values.get("action", ""):
            self._inside = self.found = values.get("method", "").lower() == "post"
        elif tag == "input" and self._inside and values.get("type") == "hidden":
            self.hidden[values["name"]] = values.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
