"""What a replay is: the answer, the dead letter it is about, its audit row, its refusals (F5)."""

from collections.abc import Mapping
from dataclasses import dataclass

from kernel import audit, sql
from kernel.delivery.dead_letters import KIND, identity_of
from kernel.errors import Conflict
from kernel.models import DeadLetterReplay
from kernel.transactions import requires_transaction

QUEUED, ALREADY, STILL = "queued", "already_queued", "still_in_flight"
REPLAYED = "dead_letter.replay"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a replay (F5). It tells of an admission, which is no receipt.

    `state`: `queued` (by this very call), `already_queued` (the one admission was there), or
    `still_in_flight` (it is being sent right now). Without `admitted` it is the original that is
    still being sent, and nothing was queued.
    """

    state: str
    replay_identity: str
    notification_id: str
    child_job_id: str = ""
    admitted: bool = True


@dataclass(frozen=True, slots=True)
class Letter:
    """What decides how a dead letter is replayed, without its content."""

    id: str
    state: str
    kind: str
    notification_id: str
    child_id: str


@requires_transaction
def note_in_tx(admitted: Mapping[str, str], *, actor: audit.Actor, reason: str) -> None:
    """Audit the admissions, and write the identity where a row from before 0067 has none."""
    unnamed = sql.values(
        DeadLetterReplay, ("id",), {"id": list(admitted)}, more="AND replay_identity IS NULL"
    )
    for (one,) in unnamed:
        DeadLetterReplay.objects.filter(id=one, replay_identity=None).update(
            replay_identity=identity_of(one)
        )
    audit.append_all_in_tx(
        actor=actor,
        action=REPLAYED,
        kind=KIND,
        after={
            one: {"replay_identity": identity_of(one), "notification_id": name}
            for one, name in admitted.items()
        },
        reason=reason,
    )


def replayed(dead_letter_id: str, state: str, name: str, child_id: str = "") -> Replayed:
    return Replayed(state, identity_of(dead_letter_id), name, child_id)


def not_admitted(dead_letter_id: str, name: str) -> Replayed:
    return Replayed(STILL, identity_of(dead_letter_id), name, admitted=False)


def archived(dead_letter_id: str) -> Conflict:
    return Conflict(
        f"The dead letter {dead_letter_id} is archived.",
        code="archived",
        next_action="Restore it first, with a reason.",
        dead_letter_id=dead_letter_id,
    )


def unbound(dead_letter_id: str) -> Conflict:
    return Conflict(
        f"The dead letter {dead_letter_id} names no child job; nothing proves what to queue.",
        code="binding_mismatch",
        next_action="Nothing was sent. Send the message anew, then archive the dead letter.",
        binding="original_child_id",
        dead_letter_id=dead_letter_id,
    )
