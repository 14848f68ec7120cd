"""The notification that replays a native dead letter, copied by the server: no content travels."""

from collections.abc import Sequence

from django.db import IntegrityError, connection

from kernel import clock, sql
from kernel.delivery.dead_letters import ADMISSION, admission_id_of
from kernel.errors import RetryTransaction
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
INSERT = (
    "INSERT INTO bz_notifications (id, kind, content_type, state, replay_of_id, attempts,"
    " unknown_attempts, due_at, created_at, updated_at, owner, fence_token, error_text,"
    f" child_job_id, {', '.join(COPIED)})"
    " SELECT {name}, %s, CASE WHEN content_type = '' THEN %s ELSE content_type END, %s, id, 0,"
    f" 0, %s, %s, %s, '', '', '', '', {', '.join(COPIED)}"
    " FROM bz_delivery_dlq WHERE id IN ({marks})"
)


@requires_transaction
def insert_natives_in_tx(*, ids: Sequence[str], kind: str) -> None:
    """INSERT ... SELECT the replays of these dead letters, due now (F4).

    A key that was taken meanwhile runs the whole transaction again.
    """
    plain = [one for one in ids if admission_id_of(one) == f"{ADMISSION}{one}"]
    if plain:
        name = "CONCAT(%s, id)" if connection.vendor == "mysql" else "%s || id"
        _insert_in_tx(plain, name=name, text=ADMISSION, kind=kind)
    for one in set(ids).difference(plain):  # of an earlier version, with a long id
        _insert_in_tx([one], name="%s", text=admission_id_of(one), kind=kind)


@requires_transaction
def _insert_in_tx(ids: Sequence[str], *, name: str, text: str, kind: str) -> None:
    now = clock.db_now()
    try:
        sql.execute_in_tx(
            INSERT.format(name=name, marks=sql.marks(len(ids))),
            [text, kind, JSON, NotificationState.QUEUED, now, now, now, *ids],
        )
    except IntegrityError as error:
        raise RetryTransaction("a replay met another") from error
    wake_after_commit_in_tx(what=NOTIFICATIONS)
