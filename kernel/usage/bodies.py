"""Stored bodies: pieces of at most `body_chunk_bytes`, so that no row passes max_allowed_packet."""

from collections.abc import Sequence

from kernel.conf import conf
from kernel.models import Body
from kernel.sql import insert_rows_in_tx, values
from kernel.transactions import reading, requires_transaction

STATEMENT_BYTES_MAX = 4 * 1024 * 1024


@requires_transaction
def insert_bodies_in_tx(*, kind: str, bodies: Sequence[tuple[str, bytes]]) -> None:
    """Store whole bodies as pieces; `kind` is request or result.

    An empty body is one empty piece.
    """
    step = conf.body_chunk_bytes
    pieces = [
        Body(
            request_id=request_id,
            kind=kind,
            sequence=number,
            data=data[start : start + step],
        )
        for request_id, data in bodies
        for number, start in enumerate(range(0, max(len(data), 1), step))
    ]
    if pieces:
        _insert(pieces)


def _insert(pieces: Sequence[Body]) -> None:
    """A statement stays well below max_allowed_packet, however many bodies it could hold."""
    statement: list[Body] = []
    size = 0
    for piece in pieces:
        if statement and size + len(piece.data) > STATEMENT_BYTES_MAX:
            insert_rows_in_tx(statement)
            statement, size = [], 0
        statement.append(piece)
        size += len(piece.data)
    insert_rows_in_tx(statement)


@reading
def read_body(*, request_id: str, kind: str) -> bytes | None:
    """The whole body, or None when none is stored (purged, or never received)."""
    body = {"request_id": request_id, "kind": kind}
    pieces = values(Body, ("data",), body, more="ORDER BY sequence")
    return b"".join(bytes(data) for (data,) in pieces) if pieces else None


@reading
def read_body_head(*, request_id: str, kind: str) -> bytes | None:
    """The first stored piece only: enough for a view within a byte budget."""
    piece = (
        Body.objects.filter(request_id=request_id, kind=kind, sequence=0)
        .values_list("data", flat=True)
        .first()
    )
    return None if piece is None else bytes(piece)
