"""Parts that several screens of jobs share: where a tool call goes, and what a job was asked."""

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.utils.safestring import SafeString

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


def target_of(tool: Tool) -> Target:
    """Where the tool's calls go."""
    host = urlsplit(tool.url).netloc
    before, _host, after = tool.url.partition(host) if host else ("", "", tool.url)
    return Target(
        tool.method,
        to_html(before, note=False),
        to_html(host, note=False),
        to_html(after, note=False),
        note_html(tool.url),
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
