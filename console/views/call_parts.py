"""Parts that several screens of jobs share: where a tool call goes, and what a job was asked."""

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.utils.safestring import SafeString

from console.queries.tool_versions import Address, addresses_of
from console.untrusted import note_html, to_html
from kernel.models import Tool


@dataclass(frozen=True, slots=True)
class Target:
    """A tool's address in three pieces, so that a page can set the host apart; each escaped."""

    method: str
    before: SafeString  # 'https://'
    host: SafeString
    after: SafeString  # the path, with its {placeholders}
    note: SafeString  # what makes the address easy to misread
    host_text: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The tool's version that a question or a call is bound to, and the one in force (C1)."""

    tool: Tool | None
    version: int  # 0: the tool was not known when this was asked
    target: Target | None  # where that version's calls go; None: it is not known any more
    now: Target | None  # where calls go now; None without a tool

    @property
    def has_drifted(self) -> bool:
        """Whether the tool changed since."""
        return self.tool is not None and 0 < self.version != self.tool.version

    @property
    def is_moved(self) -> bool:
        """Whether calls go elsewhere now, or may do so."""
        return self.target != self.now


def bound_to(
    tool: Tool | None, version: int, *, addresses: dict[int, Address] | None = None
) -> Bound:
    """What `version` of a tool calls; one query when it is not the one in force.

    `addresses` holds those of the version, where the caller has read them.
    """
    if addresses is None:
        addresses = addresses_of(tool, [version])
    kept = addresses.get(version)
    return Bound(
        tool,
        version,
        _target(kept) if kept else None,
        target_of(tool) if tool else None,
    )


def target_of(tool: Tool) -> Target:
    """Where the tool's calls go now."""
    return _target(Address(tool.method, tool.url))


def _target(address: Address) -> Target:
    url = address.url
    host = urlsplit(url).netloc
    before, _host, after = url.partition(host) if host else ("", "", url)
    return Target(
        address.method,
        to_html(before, note=False),
        to_html(host, note=False),
        to_html(after, note=False),
        note_html(url),
        host,
    )


def prompt_of(input_head: str) -> str:
    """What a job was asked, for people: its prompt or latest message, else the text as it is."""
    try:
        value = json.loads(input_head)
    except ValueError:  # longer than the head
        return input_head
    if not isinstance(value, dict):
        return input_head
    messages = value.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    found = value.get("prompt") or (last.get("content") if isinstance(last, dict) else None)
    return found if isinstance(found, str) else input_head
