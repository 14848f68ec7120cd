"""Many dead letters at once, and an operation that is worked off by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

from django.db.models import CharField, Value
from django.db.models.functions import Concat

from kernel import clock, operations
from kernel.ids import new_id
from kernel.models import (
    AuditRow,
    DeadLetter,
    DeadLetterGroup,
    DeadLetterReplay,
    Notification,
    Operation,
    OperationItem,
)
from kernel.operations import Filter, Operations, freezing
from tests.delivery.letters import ANN, CONTENT, STORE

PRINT = "f" * 32


def many(
    count: int, *, fingerprint: str = PRINT, content: bytes = CONTENT, **fields: Any
) -> list[str]:
    """The ids of as many open dead letters of native channels, written in bulk."""
    now = clock.db_now()
    ids = [new_id("dlq") for _ in range(count)]
    for start in range(0, count, 500):
        DeadLetter.objects.bulk_create(
            DeadLetter(
                id=one,
                account_id=fields.get("account_id", "acme"),
                notification_id=f"ntf_of_{one}"[:64],
                channel=fields.get("channel", "webhook"),
                recipient="https://hooks.example/7",
                content=content,
                content_type="application/json",
                error_text="HTTP 500",
                error_fingerprint=fingerprint,
                destination_id=fields.get("destination_id", "dst_1"),
                event="job.finished",
                created_at=now,
                updated_at=now,
            )
            for one in ids[start : start + 500]
        )
    DeadLetterReplay.objects.filter(id__gte=min(ids), kind=None).update(
        kind="native",
        replay_identity=Concat(Value("replay."), "id", output_field=CharField()),
    )
    group, _ = DeadLetterGroup.objects.get_or_create(
        fingerprint=fingerprint, defaults={"first_seen_at": now, "last_seen_at": now}
    )
    DeadLetterGroup.objects.filter(fingerprint=group.fingerprint).update(
        total_count=group.total_count + count, open_count=group.open_count + count
    )
    return ids


def planned(*, rate: int = 100_000, **asked: Any) -> Operation:
    return operations.plan_replay(
        filter=Filter(**(asked or {"fingerprint": PRINT})),
        actor=ANN,
        reason="receiver is back",
        rate_per_second=rate,
    )


@contextmanager
def chunks_of(rows: int) -> Iterator[None]:
    """Sets larger than this are frozen in the background, so many at a time."""
    with mock.patch.object(freezing, "CHUNK_ROWS", rows):
        yield


def running(**asked: Any) -> Operation:
    row = planned(**asked)
    return operations.apply(operation_id=row.id, actor=ANN, seen_digest=row.digest)


def worker(owner: str = "krn_a") -> Operations:
    return Operations(owner=owner, store=STORE)


def work_off(one: Operations, *, limit: int = 200) -> int:
    """Pages until nothing is left to do now; how many there were."""
    pages = 0
    while one.page(limit=limit).has_more:
        pages += 1
    return pages


def reread(row: Operation) -> Operation:
    return Operation.objects.get(id=row.id)


def counts_of(row: Operation) -> tuple[int, int, int]:
    found = reread(row)
    return found.done_count, found.skipped_count, found.failed_count


def items_of(row: Operation) -> list[tuple[str, str]]:
    items = OperationItem.objects.filter(operation_id=row.id).order_by("sequence")
    return list(items.values_list("state", "outcome_text"))


def let_lease_end(row: Operation) -> None:
    past = clock.db_now() - timedelta(seconds=1)
    Operation.objects.filter(id=row.id).update(lease_expires_at=past)


def queued() -> int:
    return Notification.objects.filter(state="queued").count()


def acts_of(row: Operation) -> list[str]:
    rows = AuditRow.objects.filter(subject=f"operation:{row.id}").order_by("sequence")
    return [one.removeprefix("operation.") for one in rows.values_list("action", flat=True)]
