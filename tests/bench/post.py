"""Notifications and dead letters by the hundred thousand, made inside the server."""

from django.db import connection

from kernel.delivery import destinations
from kernel.models import DeadLetter, DeadLetterGroup, Destination, Notification
from kernel.runtime.database import allow_long_statements
from tests.bench import rows
from tests.delivery.letters import ANN, dead, notification
from tests.support import lives

ACCOUNT = "acme"
ADDRESS = "https://hooks.example/7"
GROUPS = 40
LETTER_ID, NOTIFICATION_ID = (
    "CONCAT('dlq_copy', LPAD(n, 9, '0'))",
    "CONCAT('ntf_', LPAD(n, 9, '0'))",
)
# Of a hundred dead letters: 88 resolved, 10 archived, 2 open.
GROWN_STATE = (
    "CASE WHEN n % 100 < 2 THEN 'open' WHEN n % 100 < 12 THEN 'archived' ELSE 'resolved' END"
)


def letters(*, count: int, to_back: int) -> None:
    """`count` open dead letters of one group, of age by number: the first `to_back` for dst_back,
    the others for dst_gone. Neither destination exists: what is queued again is not sent."""
    lives.open_account(ACCOUNT, cap_nano=None)
    pattern = dead(destination_id="dst_back")
    columns = {
        "id": LETTER_ID,
        "notification_id": NOTIFICATION_ID,
        "destination_id": f"CASE WHEN n < {to_back} THEN 'dst_back' ELSE 'dst_gone' END",
        **dict.fromkeys(("created_at", "updated_at"), rows.rising(rows=count)),
    }
    rows.copy(model=DeadLetter, key=pattern.id, rows=count, columns=columns)
    allow_long_statements()
    _execute(
        "UPDATE bz_delivery_dlq SET kind = 'native', replay_identity = CONCAT('replay.', id)",
        "TRUNCATE bz_notifications",
    )
    DeadLetterGroup.objects.update(total_count=count, open_count=count)


def grown(*, count: int) -> None:
    """`count` dead letters as a desk has them after 90 days: GROUPS groups, most resolved."""
    lives.open_account(ACCOUNT, cap_nano=None)
    _destination("dst_1")
    pattern = dead()
    at = rows.rising(rows=count)
    columns = {
        "id": LETTER_ID,
        "notification_id": NOTIFICATION_ID,
        "account_id": "CONCAT('account-', n % 19)",
        "destination_id": "CONCAT('dst_', n % 7)",
        "error_fingerprint": f"CONCAT('{'f' * 30}', LPAD(n % {GROUPS}, 2, '0'))",
        "unknown_attempts": "n % 3",
        "state": GROWN_STATE,
        "resolved_at": f"CASE WHEN n % 100 > 11 THEN {at} + INTERVAL 1 HOUR END",
        **dict.fromkeys(("created_at", "updated_at"), at),
    }
    rows.copy(model=DeadLetter, key=pattern.id, rows=count, columns=columns)
    (old,) = DeadLetterGroup.objects.all()
    for number in range(GROUPS):
        old.fingerprint = f"{'f' * 30}{number:02}"
        old.total_count, old.open_count = count // GROUPS, count // GROUPS // 50
        old.save(force_insert=True)
    DeadLetterGroup.objects.exclude(fingerprint__startswith="f" * 30).delete()


def due(*, count: int, places: int) -> None:
    """`count` notifications that are due, spread over so many destinations."""
    lives.open_account(ACCOUNT, cap_nano=None)
    for number in range(places):
        _destination(f"dst_{number}")
    pattern = notification(state="queued", attempts=0, unknown_attempts=0, finished_at=None)
    columns = {
        "id": NOTIFICATION_ID,
        "destination_id": f"CONCAT('dst_', n % {places})",
        "due_at": rows.rising(rows=count),
    }
    rows.copy(model=Notification, key=pattern.id, rows=count, columns=columns)


def _destination(name: str) -> Destination:
    return destinations.create_destination(
        destination_id=name,
        account_id=ACCOUNT,
        channel="webhook",
        address=ADDRESS,
        events=["message"],
        secret_env="HOOK_SECRET",
        actor=ANN,
    )


def _execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
