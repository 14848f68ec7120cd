"""The notification that replays a native dead letter, copied by the server: no content travels."""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, connection
from django.db.models import Case, CharField, DateTimeField, F, IntegerField, Value, When
from django.db.models.functions import Concat

from kernel import clock
from kernel.delivery.dead_letters import ADMISSION, admission_id_of
from kernel.errors import RetryTransaction
from kernel.models import DeadLetter, Notification
from kernel.runtime.wake import NOTIFICATIONS, wake_after_commit_in_tx
from kernel.states import NotificationState
from kernel.transactions import requires_transaction

JSON = "application/json"
COPIED = (
    "account_id",
    "channel",
    "sender",
    "recipient",
    "request_id",
    "job_id",
    "content",
    "event",
    "destination_id",
)
EMPTY = ("owner", "fence_token", "error_text", "child_job_id")


@requires_transaction
def insert_natives_in_tx(*, ids: Sequence[str], kind: str) -> None:
    """INSERT ... SELECT the replays of these dead letters, due now (F4).

    A key that was taken meanwhile runs the whole transaction again.
    """
    plain = [one for one in ids if admission_id_of(one) == f"{ADMISSION}{one}"]
    if plain:
        _insert_in_tx(
            plain, name=Concat(_text(ADMISSION), F("id"), output_field=CharField()), kind=kind
        )
    for one in set(ids).difference(plain):  # of an earlier version, with a long id
        _insert_in_tx([one], name=_text(admission_id_of(one)), kind=kind)


@requires_transaction
def _insert_in_tx(ids: Sequence[str], *, name: Any, kind: str) -> None:
    now = Value(clock.db_now(), output_field=DateTimeField())
    zero = Value(0, output_field=IntegerField())
    values: dict[str, Any] = {
        "id": name,
        "kind": _text(kind),
        "content_type": Case(
            When(content_type="", then=_text(JSON)),
            default=F("content_type"),
            output_field=CharField(),
        ),
        "state": _text(NotificationState.QUEUED),
        "replay_of_id": F("id"),
        "attempts": zero,
        "unknown_attempts": zero,
        "due_at": now,
        "created_at": now,
        "updated_at": now,
        **{column: _text("") for column in EMPTY},
        **{column: F(column) for column in COPIED},
    }
    aliased = {f"new_{column}": value for column, value in values.items()}
    rows = DeadLetter.objects.filter(id__in=ids).order_by().annotate(**aliased)
    select, parameters = rows.values_list(*aliased).query.sql_with_params()
    quote = connection.ops.quote_name
    table, columns = quote(Notification._meta.db_table), ", ".join(map(quote, values))
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} ({columns}) {select}", parameters)
    except IntegrityError as error:
        raise RetryTransaction("a replay met another") from error
    wake_after_commit_in_tx(what=NOTIFICATIONS)


def _text(value: str) -> Value:
    return Value(value, output_field=CharField())
