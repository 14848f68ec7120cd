"""Tables as CSV that a spreadsheet shows and never runs (console case 71), page by page."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

from kernel.csv_cells import BYTE_ORDER_MARK, csv_lines, safe_cell

__all__ = ["bytes_download", "csv_download", "csv_lines", "safe_cell"]

Page = tuple[Iterable[Sequence[Any]], Any]


def csv_download(
    *, name: str, head: Sequence[str], page_after: Callable[[Any], Page], start: Any
) -> StreamingHttpResponse:
    """A download that holds one page in memory.

    `page_after(position)` answers rows and the next position, None at the end; it may read the
    database.
    """

    async def lines() -> AsyncIterator[bytes]:
        yield (BYTE_ORDER_MARK + csv_lines([head])).encode()
        position = start
        while position is not None:
            rows, position = await sync_to_async(page_after)(position)
            yield csv_lines(rows).encode()

    response = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def bytes_download(
    *, name: str, content_type: str, piece_after: Callable[[Any], tuple[bytes, Any]], start: Any
) -> StreamingHttpResponse:
    """A download of bytes that holds one piece in memory; positions as in `csv_download`."""

    async def pieces() -> AsyncIterator[bytes]:
        position = start
        while position is not None:
            data, position = await sync_to_async(piece_after)(position)
            if data:
                yield data

    response = StreamingHttpResponse(pieces(), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
