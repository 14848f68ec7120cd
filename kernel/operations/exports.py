"""Exports: a frozen set of acts or requests becomes a file, piece by piece, in the database (F9).

A page of items is one piece: it is written by the transaction that records the items, so that a
process that dies leaves neither a gap nor a line twice, and any process can go on. The sha256 of
the whole file comes with its last piece. The pieces go after `export_retention_days`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kernel import audit, clock, schema
from kernel.audit import lines
from kernel.conf import conf
from kernel.csv_cells import BYTE_ORDER_MARK, csv_lines
from kernel.errors import Conflict, Gone, InvalidInput, NotFound
from kernel.models import AuditRow, Export, ExportChunk, Operation, Request
from kernel.money import nano_to_usd
from kernel.operations import plan
from kernel.operations.sets import (
    EXPORT_AUDIT,
    EXPORT_REQUESTS,
    AuditFilter,
    ExportFilter,
    text_of,
)
from kernel.transactions import insert_new_in_tx, reading, requires_transaction

KINDS = (EXPORT_AUDIT, EXPORT_REQUESTS)
CSV, JSONL = "csv", "jsonl"
FORMATS = (CSV, JSONL)
RATE_PER_SECOND = 100_000
WRITTEN, GONE = ("done", "written"), ("skipped", "not_found")
AUDIT_HEAD = ("at", *lines.FIELDS)
REQUEST_HEAD = (
    "id",
    "account_id",
    "operation_id",
    "service_id",
    "upstream_model",
    "path",
    "result_state",
    "billing_state",
    "pending_reason",
    "http_status",
    "error_code",
    "provider_request_id",
    "result_sha256",
    "result_bytes",
    "usage_text",
    "reference_usd",
    "billed_usd",
    "admitted_at",
    "dispatched_at",
    "result_at",
    "settled_at",
)

Item = tuple[int, str]
Ended = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a page of items comes to: outcomes by sequence, bytes, and the end's sha256."""

    ended: dict[int, Ended]
    data: bytes
    rows: int
    sha256: str  # of the whole file; '' before its last piece


def plan_export(*, filter: ExportFilter, format: str, actor: audit.Actor, reason: str) -> Operation:
    """Freeze the set of an export of acts or requests; nothing is written yet (F9).

    An empty filter asks for everything. InvalidInput (filter, format, reason, `too_many`); Conflict
    `nothing_matches`; Unavailable without migration 0069 or 0071.
    """
    schema.require(schema.RETENTION)
    if format not in FORMATS:
        raise InvalidInput(f"format is one of {' '.join(FORMATS)}", field="format")
    filter.check()
    kind = EXPORT_AUDIT if isinstance(filter, AuditFilter) else EXPORT_REQUESTS
    return plan.plan_set(
        kind=kind,
        filter_text=text_of(filter),
        actor=actor,
        reason=reason,
        rate=RATE_PER_SECOND,
        also=lambda row: insert_new_in_tx(
            Export(operation_id=row.id, format=format, created_at=row.created_at)
        ),
    )


def audit_lines(rows: Sequence[AuditRow], *, format: str) -> bytes:
    """Acts as lines of a file."""
    if format == JSONL:
        return b"".join(map(lines.line_of, rows))
    return csv_lines(tuple(lines.values_of(row).values()) for row in rows).encode()


def request_lines(rows: Sequence[Request], *, format: str) -> bytes:
    """Requests as lines of a file: states, metering and money; no bodies."""
    values = map(_request_values, rows)
    if format == CSV:
        return csv_lines(tuple(one.values()) for one in values).encode()
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in values)


def head_line(kind: str, *, format: str) -> bytes:
    """What the file begins with."""
    head = AUDIT_HEAD if kind == EXPORT_AUDIT else REQUEST_HEAD
    return (BYTE_ORDER_MARK + csv_lines([head])).encode() if format == CSV else b""


def render(row: Operation, items: Sequence[Item]) -> Piece:
    """The piece that these items are; the file's sha256 when they are its last ones. Reads only."""
    export = get_export(operation_id=row.id)
    found = _objects(row.kind, [one for _, one in items])
    kept = [found[one] for _, one in items if one in found]
    data = head_line(row.kind, format=export.format) if row.next_sequence == 1 else b""
    write: Callable[..., bytes] = audit_lines if row.kind == EXPORT_AUDIT else request_lines
    data += write(kept, format=export.format)
    sha256 = ""
    if row.next_sequence + len(items) > row.item_count:
        total = hashlib.sha256()
        for piece in pieces_of(operation_id=row.id):
            total.update(piece)
        total.update(data)
        sha256 = total.hexdigest()
    ended = {number: WRITTEN if one in found else GONE for number, one in items}
    return Piece(ended, data, len(kept), sha256)


@requires_transaction
def append_in_tx(*, operation_id: str, piece: Piece) -> None:
    """Write the piece; the caller holds the operation and records its items in this transaction."""
    row = Export.objects.select_for_update().get(operation_id=operation_id)
    size = conf.body_chunk_bytes
    parts = [piece.data[at : at + size] for at in range(0, len(piece.data), size)]
    ExportChunk.objects.bulk_create(
        ExportChunk(operation_id=operation_id, sequence=number, data=part)
        for number, part in enumerate(parts, start=row.chunk_count)
    )
    values: dict[str, Any] = {}
    if piece.sha256:
        values = {"sha256": piece.sha256, "finished_at": clock.db_now()}
    Export.objects.filter(operation_id=operation_id).update(
        row_count=row.row_count + piece.rows,
        byte_count=row.byte_count + len(piece.data),
        chunk_count=row.chunk_count + len(parts),
        **values,
    )


@reading
def get_export(*, operation_id: str) -> Export:
    """The file of an operation. NotFound; Unavailable without migration 0071."""
    schema.require(schema.RETENTION)
    row = Export.objects.filter(operation_id=operation_id).first()
    if row is None:
        raise NotFound(f"{operation_id} is no export", operation_id=operation_id)
    return row


def whole_file(*, operation_id: str) -> Export:
    """The export whose file can be read now. Conflict `export_unfinished`; Gone when purged."""
    row = get_export(operation_id=operation_id)
    if row.purged_at is not None:
        raise Gone(
            "The file was removed after its retention.",
            code="export_expired",
            next_action="Plan the export again.",
        )
    if not row.sha256:
        raise Conflict(
            "The file is not whole.",
            code="export_unfinished",
            next_action="Wait until the operation is done.",
        )
    return row


def pieces_of(*, operation_id: str) -> Iterator[bytes]:
    """The file, a piece at a time."""
    number = 0
    while (piece := piece_of(operation_id=operation_id, sequence=number)) is not None:
        yield piece
        number += 1


@reading
def piece_of(*, operation_id: str, sequence: int) -> bytes | None:
    """One piece; None after the last."""
    chunks = ExportChunk.objects.filter(operation_id=operation_id, sequence=sequence)
    data = chunks.values_list("data", flat=True).first()
    return None if data is None else bytes(data)


@reading
def _objects(kind: str, ids: Sequence[str]) -> dict[str, Any]:
    model = AuditRow if kind == EXPORT_AUDIT else Request
    return model._default_manager.in_bulk(list(ids))


def _request_values(row: Request) -> dict[str, Any]:
    values = {name: getattr(row, name, None) for name in REQUEST_HEAD}
    for name, nano in (("reference_usd", row.reference_nano), ("billed_usd", row.billed_nano)):
        values[name] = None if nano is None else nano_to_usd(nano)
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }
