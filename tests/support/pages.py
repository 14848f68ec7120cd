"""Pages as a browser reads them: forms with hidden fields, and what a strict policy refuses."""

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass(slots=True)
class PageForm:
    """One form: where it goes, its method, and the values it would send untouched."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[PageForm] = []
        self.faults: list[str] = []
        self.ids: list[str] = []
        self._open: PageForm | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.append(given["id"])
        self._judge(tag, given)
        if tag == "form":
            self._open = PageForm(given.get("action", ""), given.get("method", "get").lower())
            self.forms.append(self._open)
        elif tag == "input" and self._open is not None and given.get("name"):
            ticked = given.get("type") in ("radio", "checkbox")
            if not ticked or "checked" in given:
                self._open.fields[given["name"]] = given.get("value", "on" if ticked else "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None

    def _judge(self, tag: str, given: dict[str, str]) -> None:
        if tag == "style" or "style" in given:
            self.faults.append(f"inline style in <{tag}>")
        if tag == "script" and "src" not in given and given.get("type") != "application/json":
            self.faults.append("inline script")
        self.faults += [f"{name} in <{tag}>" for name in given if name.startswith(("on", "hx-on"))]
        for name in ("src", "href", "action"):
            address = given.get(name, "").strip().lower()
            if address.startswith(("javascript:", "//", "http:", "https:")):
                self.faults.append(f"{name}={address[:60]}")


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


def forms_of(html: str) -> list[PageForm]:
    """All forms of a page."""
    return _read(html).forms


def form_to(html: str, action: str) -> PageForm:
    """The one form of a page that posts to `action`."""
    (found,) = [form for form in forms_of(html) if form.action == action]
    return found


def policy_faults(html: str) -> list[str]:
    """Inline style, inline script, event attributes, addresses of other hosts."""
    return _read(html).faults


def doubled_ids(html: str) -> list[str]:
    """Ids that a page uses more than once."""
    ids = _read(html).ids
    return sorted({one for one in ids if ids.count(one) > 1})
