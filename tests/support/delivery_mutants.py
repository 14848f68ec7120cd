"""Seeded mutants of sending, dead letters and replays. See mutants.py.

The cases that kill them are in tests/crash/test_delivery_mutants.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernel.delivery import children, claims, natives, recovery, replay, sending
from kernel.ids import new_id
from kernel.models import Notification
from kernel.states import Delivery
from kernel.transactions import transaction

MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(function: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[function.__name__] = function
    return function


@mutant
def replay_under_a_fresh_id() -> None:
    """Give each replay a new id: nothing is the key of the one admission (against F5)."""
    natives.admission_id_of = replay.admission_id_of = lambda _: new_id("ntf")


@mutant
def resolve_before_the_admission() -> None:
    """Resolve the dead letter first and queue it afterwards (against F5)."""
    real = replay._admit_natives

    def admit(*, ids: Any, **how: Any) -> Any:
        told = replay._read(ids=ids, account_id="")
        if all(one.state == "open" for one in told.values()):
            replay._resolve(ids=ids)
            replay.DeadLetterState = type("States", (replay.DeadLetterState,), {"RESOLVED": "-"})
        return real(ids=ids, **how)

    replay._admit_natives = admit


@mutant
def lost_sender_sent_nothing() -> None:
    """Take it that a sender that died had sent nothing (against F2)."""
    real = recovery.Attempt
    recovery.Attempt = lambda **values: real(**{**values, "outcome": Delivery.NOT_SENT})


@mutant
def late_sender_may_write() -> None:
    """Record without asking whose claim it is, and whether there is one (against F2)."""
    real = sending._record_one_in_tx

    def record(item: Any, **how: Any) -> Any:
        row = Notification.objects.get(id=item.claimed.id)
        token = item.claimed.fence_token
        Notification.objects.filter(id=row.id).update(state="sending", fence_token=token)
        claimed = replace(item.claimed, number=row.attempts + 1)
        return real(replace(item, claimed=claimed), **how)

    sending._record_one_in_tx = record


@mutant
def dead_letter_after_the_death() -> None:
    """Commit the end of the notification, and write its dead letter afterwards (against F3)."""
    real_die, real_record = sending._die_in_tx, sending._record
    owed: list[Notification] = []

    def die(row: Notification, **how: Any) -> str:
        owed.append(row)
        return ""

    @transaction
    def death(*, row: Notification) -> list[sending.Recorded]:
        return [sending.Recorded(row.state, None, real_die(row, kind=sending.NATIVE))]

    def record(**how: Any) -> Any:
        told = real_record(**how)
        while owed:
            death(row=owed.pop())
        return told

    sending._die_in_tx, sending._record = die, record


@mutant
def replay_has_an_id_of_its_own() -> None:
    """Send a replay under the id of its own row (against F1)."""
    claims.message_id_of = lambda **_: ""


@mutant
def replay_without_the_verified_child() -> None:
    """Queue the child that the dead letter names, whatever it looks like by now (against F4)."""
    children._first_mismatch = lambda *_, **__: ""
