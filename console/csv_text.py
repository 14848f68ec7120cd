"""Tables as CSV that a spreadsheet shows and never runs (console case 71), page by page."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

# What a spreadsheet takes for the start of a formula, its full-width forms included.
STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
QUOTE = "'"

Page = tuple[Iterable[Sequence[Any]], Any]


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


def csv_download(
    *, name: str, head: Sequence[str], page_after: Callable[[Any], Page], start: Any
) -> StreamingHttpResponse:
    """A download that holds one page in memory.

    `page_after(position)` answers rows and the next position, None at the end; it may read the
    database.
    """

    async def lines() -> AsyncIterator[bytes]:
        yield ("\ufeff" + csv_lines([head])).encode()
        position = start
        while position is not None:
            rows, position = await sync_to_async(page_after)(position)
            yield csv_lines(rows).encode()

    response = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
