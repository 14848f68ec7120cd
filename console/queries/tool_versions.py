"""Where a tool's calls go at one of its versions; older ones are read from the audit trail."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from kernel.models import AuditRow, Tool

CREATED, CHANGED = "tool.create", "tool.change"


@dataclass(frozen=True, slots=True)
class Address:
    """Method and address of one version of a tool."""

    method: str
    url: str

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


def addresses_of(tool: Tool | None, versions: Iterable[int]) -> dict[int, Address]:
    """The addresses of these versions, as far as they are known; at most one query.

    The tool's row holds the version in force alone. Each version is one act on the tool's chain,
    in order. A trail that does not end in the row as it is now says nothing about older ones.
    """
    if tool is None:
        return {}
    known = {tool.version: Address(tool.method, tool.url)}
    older = {version for version in versions if 0 < version < tool.version}
    if not older:
        return known
    rows = AuditRow.objects.filter(subject=f"tool:{tool.id}", sequence__in=older | {tool.version})
    kept = {
        row.sequence: address
        for row in rows.only("id", "sequence", "action", "after_text")
        if row.action == (CREATED if row.sequence == 1 else CHANGED)
        and (address := _address_of(row.after_text)) is not None
    }
    return kept | known if kept.get(tool.version) == known[tool.version] else known


def _address_of(after_text: str) -> Address | None:
    try:
        after = json.loads(after_text)
        return Address(str(after["method"]), str(after["url"]))
    except (ValueError, TypeError, KeyError):
        return None
