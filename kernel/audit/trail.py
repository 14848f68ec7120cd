"""The audit trail: one row per act, in the act's transaction, chained by hash per subject (M2)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from kernel import clock, sql
from kernel.errors import Conflict
from kernel.ids import new_id
from kernel.models import AuditRow
from kernel.transactions import reading, requires_transaction

GENESIS = "0" * 64
REASON_CHARS_MAX = 4000
ADDRESS_CHARS_MAX = 64
_ENDS = """
SELECT ends.subject, ends.sequence, chain.sha256 FROM
  (SELECT subject, MAX(sequence) AS sequence FROM bz_audit
   WHERE subject IN ({marks}) GROUP BY subject) AS ends
JOIN bz_audit AS chain ON chain.subject = ends.subject AND chain.sequence = ends.sequence
"""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: kind in user, token, system, command; `id` names the person, token or process.

    `request_id` is the HTTP request the act came with. `act_key` is the key of one rendered form:
    an act happens at most once per key, however often the form is sent. `address` is where that
    request came from; its rows say so as `request_address`.
    """

    kind: str
    id: str
    request_id: str = ""
    act_key: str = ""
    address: str = ""


class AlreadyDone(Conflict):
    """This very form was sent before, and its act happened."""

    code = "already_done"
    next_action = "Nothing more to do: look at the object. Open the form again for another act."


SYSTEM = Actor("system", "maintenance")


@requires_transaction
def refuse_repeat_in_tx(*, actor: Actor) -> None:
    """AlreadyDone when the actor's `act_key` was used before, so that no later check speaks."""
    if actor.act_key and AuditRow.objects.filter(act_key=actor.act_key).exists():
        raise AlreadyDone("This form was sent before.")


@requires_transaction
def append_in_tx(
    *,
    actor: Actor,
    action: str,
    kind: str,
    object_id: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
    at: datetime | None = None,
) -> AuditRow:
    """Append one row to the chain of `<kind>:<object_id>` (M2).

    `at` is the database's time, where the caller has just asked for it. Two appends to one chain at
    once run the block again. AlreadyDone when the actor's `act_key` was used before: the whole act
    is rolled back.
    """
    refuse_repeat_in_tx(actor=actor)
    subject = f"{kind}:{object_id}"
    chain = sql.values(
        AuditRow,
        ("sequence", "sha256"),
        {"subject": subject},
        more="ORDER BY sequence DESC LIMIT 1",
    )
    sequence, previous = chain[0] if chain else (0, GENESIS)
    row = AuditRow(
        id=new_id("aud"),
        subject=subject,
        sequence=sequence + 1,
        actor_kind=actor.kind,
        actor_id=actor.id,
        action=action,
        before_text=_text(before),
        after_text=_text(_with_address(after, actor)),
        reason=_reason(reason),
        request_id=actor.request_id,
        act_key=actor.act_key or None,
        previous_sha256=previous,
        at=at or clock.db_now(),
    )
    row.sha256 = digest(row)
    sql.insert_new_row_in_tx(row)
    return row


@requires_transaction
def append_all_in_tx(
    *,
    actor: Actor,
    action: str,
    kind: str,
    after: Mapping[str, Mapping[str, Any]],
    reason: str = "",
) -> None:
    """One act on many objects of a kind: one row on the chain of each (M2).

    One look finds the ends of all chains; an INSERT takes sql.ROWS_PER_STATEMENT_MAX rows. `after`
    by object id. The actor's `act_key` stands on the first row. Otherwise as
    `append_in_tx`.
    """
    refuse_repeat_in_tx(actor=actor)
    subjects = {object_id: f"{kind}:{object_id}" for object_id in after}
    last = _ends_in_tx(list(subjects.values()))
    now = clock.db_now()
    rows: list[AuditRow] = []
    for object_id, subject in subjects.items():
        sequence, previous = last.get(subject, (0, GENESIS))
        row = AuditRow(
            id=new_id("aud"),
            subject=subject,
            sequence=sequence + 1,
            actor_kind=actor.kind,
            actor_id=actor.id,
            action=action,
            before_text="",
            after_text=_text(_with_address(after[object_id], actor)),
            reason=_reason(reason),
            request_id=actor.request_id,
            act_key=(actor.act_key or None) if not rows else None,
            previous_sha256=previous,
            at=now,
        )
        row.sha256 = digest(row)
        rows.append(row)
    sql.insert_new_rows_in_tx(rows)


@requires_transaction
def _ends_in_tx(subjects: Sequence[str]) -> dict[str, tuple[int, str]]:
    """The last (sequence, sha256) of each chain that has a row; no chain is read whole."""
    given = list(map(AuditRow._meta.get_field("subject").get_prep_value, subjects))
    if not given:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_ENDS.format(marks=sql.marks(len(given))), given)
        return {subject: (sequence, sha256) for subject, sequence, sha256 in cursor.fetchall()}


@reading
def length(*, kind: str, object_id: str) -> int:
    """How many acts the chain of one object holds: a version for objects that have none."""
    rows = AuditRow.objects.filter(subject=f"{kind}:{object_id}").order_by("-sequence")
    return rows.values_list("sequence", flat=True).first() or 0


def digest(row: AuditRow) -> str:
    """sha256 over every field, length-prefixed so that no two rows share a text."""
    parts = (
        row.previous_sha256,
        row.id,
        row.subject,
        str(row.sequence),
        row.actor_kind,
        row.actor_id,
        row.action,
        row.before_text,
        row.after_text,
        row.reason,
        row.request_id,
        row.act_key or "",
        row.at.isoformat(timespec="microseconds"),
    )
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        total.update(str(len(raw)).encode() + b":" + raw)
    return total.hexdigest()


def _reason(text: str) -> str:
    # A lone surrogate cannot be hashed, nor stored.
    return text[:REASON_CHARS_MAX].encode("utf-8", "replace").decode()


def _with_address(after: Mapping[str, Any] | None, actor: Actor) -> Mapping[str, Any] | None:
    if not actor.address:
        return after
    return {**(after or {}), "request_address": actor.address[:ADDRESS_CHARS_MAX]}


def _text(value: Mapping[str, Any] | None) -> str:
    return "" if value is None else json.dumps(value, sort_keys=True, default=str)
