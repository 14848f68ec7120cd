"""Cells and lines of CSV that a spreadsheet shows and never runs (console case 71)."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

# What a spreadsheet takes for the start of a formula, its full-width forms included.
STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
QUOTE = "'"
BYTE_ORDER_MARK = "\ufeff"  # so that a spreadsheet reads UTF-8


def safe_cell(value: Any) -> Any:
    """Numbers as they are; a text that could start a formula behind an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return value
    text = str(value).replace("\x00", "\ufffd")
    return f"{QUOTE}{text}" if text.lstrip(" \u00a0").startswith(STARTS) else text


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV lines, each cell made safe."""
    out = io.StringIO()
    writer = csv.writer(out)
    for row in rows:
        writer.writerow([safe_cell(cell) for cell in row])
    return out.getvalue()
