"""Replay of native dead letters: one admission, truthful answers, nothing lost (F4-F6)."""

import pytest

from kernel.audit import Actor
from kernel.delivery import dead_letters, lookup, replay
from kernel.delivery.dead_letters import admission_id_of
from kernel.errors import CommitOutcomeUnknown, Conflict, KernelError, NotFound, Unavailable
from kernel.models import AuditRow, DeadLetter, DeadLetterReplay, Notification
from tests.delivery.letters import (
    ANN,
    BEN,
    CONTENT,
    STORE,
    acts_of,
    dead,
    everything,
    fail_again,
    group_of,
    notification,
    replays_of,
    reread,
)
from tests.support.commits import LANDED, VANISHED, at_commit

pytestmark = pytest.mark.usefixtures("kernel_db")


def again(letter: DeadLetter, actor: Actor = ANN, **fields: object) -> replay.Replayed:
    return replay.replay(dead_letter_id=letter.id, actor=actor, store=STORE, **fields)  # type: ignore[arg-type]  # passed on


def test_a_replay_queues_what_failed_once_for_its_own_sender() -> None:
    letter = dead()
    told = again(letter, BEN, reason="receiver is back")
    assert (told.state, told.replay_identity) == ("queued", f"replay.{letter.id}")
    (row,) = replays_of(letter)
    assert row.id == told.notification_id == f"ntf_{letter.id}"
    assert (row.state, row.attempts, row.unknown_attempts) == ("queued", 0, 0)
    assert (row.sender, row.recipient) == ("bot-a", "https://hooks.example/7")
    assert (row.account_id, row.channel, row.kind) == ("acme", "webhook", "callback")
    assert (row.request_id, row.job_id, row.destination_id) == ("req-1", "job_1", "dst_1")
    assert (bytes(row.content), row.content_type) == (CONTENT, "application/json")
    found = reread(letter)
    assert (found.state, found.resolved_at is None) == ("resolved", False)
    assert group_of(letter) == (1, 0)
    (act,) = AuditRow.objects.filter(subject=f"dead_letter:{letter.id}")
    assert (act.actor_kind, act.actor_id, act.reason) == ("user", "ben", "receiver is back")
    assert act.action == "dead_letter.replay"


def test_a_second_replay_finds_the_first_and_queues_nothing() -> None:
    letter = dead()
    first = again(letter)
    before = everything()
    told = again(letter, BEN)
    assert (told.state, told.notification_id) == ("already_queued", first.notification_id)
    assert everything() == before


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"state": "queued"}, "already_queued"),
        ({"state": "queued", "attempts": 1}, "still_in_flight"),
        ({"state": "sending"}, "still_in_flight"),
        ({"state": "delivered"}, "already_queued"),
        ({"state": "dead"}, "already_queued"),
    ],
)
def test_the_answer_tells_how_far_the_first_replay_is(
    fields: dict[str, object], state: str
) -> None:
    letter = dead()
    told = again(letter)
    Notification.objects.filter(id=told.notification_id).update(**fields)
    assert again(letter).state == state
    assert len(replays_of(letter)) == 1


def test_while_the_original_is_being_sent_nothing_is_queued() -> None:
    letter = dead()
    Notification.objects.filter(id=letter.notification_id).update(state="sending")
    before = everything()
    told = again(letter)
    assert (told.state, told.admitted) == ("still_in_flight", False)
    assert told.notification_id == letter.notification_id
    assert everything() == before


def test_a_replay_that_fails_makes_a_new_dead_letter_and_the_old_one_stays_resolved() -> None:
    first = dead()
    told = again(first)
    second = fail_again(told.notification_id, "HTTP 503 this time")
    assert second.id != first.id and second.parent_id == first.id
    assert (reread(first).state, second.state) == ("resolved", "open")
    assert acts_of(first) == ["replay", "failed_again"]
    # The old one is never admitted again, whoever asks.
    assert again(first).state == "already_queued"
    assert replays_of(first)[0].state == "dead"
    third = fail_again(again(second).notification_id)
    for one in (first, second, third):
        found = lookup.lineage_of(dead_letter_id=one.id)
        assert [each.id for each in found] == [first.id, second.id, third.id]


def test_the_receiver_sees_one_message_id_over_all_replays() -> None:
    first = dead()
    second = fail_again(again(first).notification_id)
    row = Notification.objects.get(id=again(second).notification_id)
    found = lookup.message_id_of(notification_id=row.id, replay_of_id=row.replay_of_id)
    assert found == first.notification_id
    plain = lookup.message_id_of(notification_id=first.notification_id, replay_of_id="")
    assert plain == first.notification_id


def test_an_archived_one_is_refused_until_it_is_restored() -> None:
    letter = dead()
    dead_letters.archive(dead_letter_id=letter.id, actor=ANN, reason="gone")
    before = everything()
    with pytest.raises(Conflict) as refusal:
        again(letter)
    assert refusal.value.error_code == "archived" and everything() == before
    dead_letters.restore(dead_letter_id=letter.id, actor=ANN, reason="back")
    assert again(letter).state == "queued"


def test_another_accounts_and_an_unknown_one_are_not_found() -> None:
    letter = dead()
    before = everything()
    with pytest.raises(NotFound):
        again(letter, account_id="globex")
    with pytest.raises(NotFound):
        replay.replay(dead_letter_id="dlq_none", actor=ANN, store=STORE)
    assert everything() == before
    assert again(letter, account_id="acme").state == "queued"


def test_one_form_that_is_sent_twice_is_one_act() -> None:
    letter, other = dead(), dead()
    form = Actor("user", "ann", act_key="form-1")
    assert again(letter, form).state == "queued"
    assert again(letter, form).state == "already_queued"
    with pytest.raises(KernelError) as refusal:
        again(other, form)
    assert refusal.value.error_code == "already_done"
    assert replays_of(other) == [] and reread(other).state == "open"


def test_only_the_one_that_died_is_sent_again_not_the_whole_fan_out() -> None:
    delivered = [notification(state="delivered", destination_id=f"dst_{n}") for n in (1, 3)]
    letter = dead(destination_id="dst_2")
    again(letter)
    queued = Notification.objects.filter(state="queued")
    assert [row.destination_id for row in queued] == ["dst_2"]
    assert all(Notification.objects.get(id=row.id).state == "delivered" for row in delivered)


# --- lost acknowledgements --------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["_admit_natives", "_resolve"])
@pytest.mark.parametrize("what", [LANDED, VANISHED])
def test_a_lost_acknowledgement_is_answered_by_the_same_call(verb: str, what: str) -> None:
    letter = dead()
    with at_commit(verb, what) as fault, pytest.raises(CommitOutcomeUnknown):
        again(letter)
    assert fault.fired == 1
    told = again(letter)
    admitted_before = verb == "_resolve" or what == LANDED
    assert told.state == ("already_queued" if admitted_before else "queued")
    assert len(replays_of(letter)) == 1
    assert reread(letter).state == "resolved" and group_of(letter) == (1, 0)
    assert acts_of(letter) == ["replay"]


@pytest.mark.parametrize("ended", ["queued", "sending", "delivered", "dead"])
def test_a_resolve_that_failed_is_repaired_whatever_became_of_the_replay(ended: str) -> None:
    letter = dead()
    with at_commit("_resolve", VANISHED), pytest.raises(Unavailable):
        again(letter)
    assert reread(letter).state == "open" and len(replays_of(letter)) == 1
    Notification.objects.filter(replay_of_id=letter.id).update(state=ended)
    told = again(letter, BEN)
    assert told.state == ("still_in_flight" if ended == "sending" else "already_queued")
    assert reread(letter).state == "resolved" and len(replays_of(letter)) == 1


def test_one_whose_resolve_is_missing_cannot_be_archived() -> None:
    letter = dead()
    with at_commit("_resolve", VANISHED), pytest.raises(Unavailable):
        again(letter)
    with pytest.raises(Conflict) as refusal:
        dead_letters.archive(dead_letter_id=letter.id, actor=ANN, reason="gone")
    assert refusal.value.error_code == "replayed"
    assert again(letter).state == "already_queued" and reread(letter).state == "resolved"


def test_a_resolved_one_whose_replay_was_deleted_is_never_queued_again() -> None:
    letter = dead()
    again(letter)
    Notification.objects.filter(replay_of_id=letter.id).delete()
    assert again(letter).state == "already_queued"
    assert replays_of(letter) == []


# --- rows from before 0067, and many at once --------------------------------------------------


def test_a_row_from_before_0067_is_replayed_by_its_channel_and_gets_its_identity() -> None:
    letter = dead()
    DeadLetterReplay.objects.filter(id=letter.id).update(kind=None, replay_identity=None)
    DeadLetter.objects.filter(id=letter.id).update(
        content_type="", event="", destination_id="", notification_id="old-" + "n" * 60
    )
    told = again(letter)
    assert told.state == "queued"
    (row,) = replays_of(letter)
    assert (row.kind, row.content_type, bytes(row.content)) == (
        "delivery",
        "application/json",
        CONTENT,
    )
    assert DeadLetterReplay.objects.get(id=letter.id).replay_identity == told.replay_identity
    assert group_of(letter) == (1, 1)  # it was never counted


def test_the_id_of_a_replay_always_fits_and_never_meets_another() -> None:
    names = [admission_id_of(prefix + "x" * 60) for prefix in ("a", "b", "abcd")]
    assert len(set(names)) == 3 and all(len(name) <= 64 for name in names)
    assert admission_id_of("dlq_1") == "ntf_dlq_1"


def test_a_page_answers_for_each_and_one_refusal_stops_nobody() -> None:
    letters = [dead() for _ in range(120)]
    dead_letters.archive(dead_letter_id=letters[3].id, actor=ANN, reason="gone")
    again(letters[4])
    ids = [letter.id for letter in letters]
    found = replay.replay_page(dead_letter_ids=[*ids, "dlq_none"], actor=BEN, store=STORE)
    assert sorted(found) == sorted([*ids, "dlq_none"])
    assert isinstance(found["dlq_none"], NotFound)
    archived = found[letters[3].id]
    assert isinstance(archived, Conflict) and archived.error_code == "archived"
    states = [one.state for one in found.values() if isinstance(one, replay.Replayed)]
    assert (states.count("queued"), states.count("already_queued")) == (118, 1)
    assert Notification.objects.filter(state="queued").count() == 119
    assert group_of(letters[0]) == (120, 0)
