"""A final failure is kept whole, counted in its group, archived and restored (F3, F9, H3)."""

from functools import partial

import pytest

from kernel import schema
from kernel.conf import override
from kernel.delivery import dead_letters, lookup
from kernel.errors import Conflict, InvalidInput, NotFound, Unavailable
from kernel.models import DeadLetter, DeadLetterGroup, DeadLetterReplay
from tests.approvals.place import without
from tests.delivery.letters import (
    ANN,
    CONTENT,
    ERROR,
    acts_of,
    dead,
    dead_child,
    everything,
    group_of,
    in_tx,
    notification,
    reread,
)

pytestmark = pytest.mark.usefixtures("kernel_db")


def test_a_dead_letter_holds_everything_that_a_replay_needs() -> None:
    letter = dead()
    found = lookup.get_dead_letter(dead_letter_id=letter.id)
    assert (found.kind, found.original_child_id) == ("native", "")
    assert found.replay_identity == f"replay.{letter.id}"
    row = found.letter
    assert (row.account_id, row.channel, row.sender) == ("acme", "webhook", "bot-a")
    assert (row.recipient, row.destination_id) == ("https://hooks.example/7", "dst_1")
    assert (row.request_id, row.job_id, row.event) == ("req-1", "job_1", "job.finished")
    assert (bytes(row.content), row.content_type) == (CONTENT, "application/json")
    assert (row.state, row.unknown_attempts, row.parent_id) == ("open", 2, "")
    assert row.error_text == ERROR


def test_an_executors_dead_letter_names_its_child() -> None:
    letter = dead_child()
    found = lookup.get_dead_letter(dead_letter_id=letter.id)
    assert found.kind == "executor" and found.original_child_id.startswith("job_")
    row = notification()
    for wrong in ({"kind": "executor"}, {"kind": "native", "original_child_id": "job_1"}):
        record = partial(dead_letters.record_in_tx, notification=row, error_text="x", **wrong)
        with pytest.raises(ValueError, match="child job"):
            in_tx(act=record)


def test_errors_that_differ_in_ids_and_times_are_one_group() -> None:
    first = dead("HTTP 500 for ntf_018f3a2b4c5d6e7f at 2026-01-02T03:04:05Z")
    second = dead("HTTP 500 for ntf_aaaaaaaaaaaa0001 at 2027-11-12T13:14:15Z")
    other = dead("connection refused")
    assert first.error_fingerprint == second.error_fingerprint != other.error_fingerprint
    assert (group_of(first), group_of(other)) == ((2, 2), (1, 1))
    group = DeadLetterGroup.objects.get(fingerprint=first.error_fingerprint)
    assert (group.sample_text, group.channel) == (first.error_text, "webhook")
    assert (group.first_seen_at, group.last_seen_at) == (first.created_at, second.created_at)


@pytest.mark.parametrize("text", ["x" * 2_000_000, "💥" * 500_000, "a\x00b\ud800" * 200_000])
def test_a_huge_error_is_cut_by_bytes_and_its_size_is_told(text: str) -> None:
    letter = reread(dead("first words " + text + " last words"))
    raw = letter.error_text.encode()
    assert len(raw) < 4096 + 60 and "\x00" not in letter.error_text
    assert letter.error_text.startswith("first words") and letter.error_text.endswith("last words")
    size = len(
        ("first words " + text + " last words").replace("\x00", "�").encode("utf-8", "replace")
    )
    assert f"[... {size} bytes in all ...]" in letter.error_text


def test_a_short_error_is_kept_as_it_is() -> None:
    with override(evidence_bytes_max=256):
        assert dead("kurz: ä 👨‍💻").error_text == "kurz: ä 👨‍💻"


# --- archive and restore ----------------------------------------------------------------------


def test_an_archived_dead_letter_can_be_restored_and_its_group_follows() -> None:
    letter, other = dead(), dead()
    done = dead_letters.archive(dead_letter_id=letter.id, actor=ANN, reason="receiver is gone")
    assert done.state == reread(letter).state == "archived"
    assert group_of(letter) == (2, 1)
    assert dead_letters.restore(dead_letter_id=letter.id, actor=ANN, reason="back").state == "open"
    assert group_of(letter) == (2, 2)
    assert acts_of(letter) == ["archive", "restore"]
    assert reread(other).state == "open"


def test_what_cannot_be_archived_or_restored_changes_nothing() -> None:
    letter = dead()
    dead_letters.archive(dead_letter_id=letter.id, actor=ANN, reason="gone")
    before = everything()
    with pytest.raises(Conflict) as refusal:
        dead_letters.archive(dead_letter_id=letter.id, actor=ANN, reason="again")
    assert (refusal.value.error_code, refusal.value.details["state"]) == ("not_open", "archived")
    with pytest.raises(InvalidInput):
        dead_letters.restore(dead_letter_id=letter.id, actor=ANN, reason=" ")
    for account_id, name in (("globex", letter.id), ("", "dlq_none")):
        with pytest.raises(NotFound):
            dead_letters.restore(dead_letter_id=name, actor=ANN, reason="x", account_id=account_id)
    assert everything() == before
    dead_letters.restore(dead_letter_id=letter.id, actor=ANN, reason="back")
    with pytest.raises(Conflict) as refusal:
        dead_letters.restore(dead_letter_id=letter.id, actor=ANN, reason="again")
    assert refusal.value.error_code == "not_archived"


@pytest.mark.parametrize("missing", [schema.REPLAY, schema.DELIVERY])
def test_without_its_migrations_dead_letters_are_unavailable(missing: str) -> None:
    letter = dead()
    with without(missing):
        for attempt in (
            partial(lookup.get_dead_letter, dead_letter_id=letter.id),
            partial(dead_letters.archive, dead_letter_id=letter.id, actor=ANN, reason="x"),
        ):
            with pytest.raises(Unavailable) as refusal:
                attempt()
            assert refusal.value.details["migration"] == missing
    assert reread(letter).state == "open"


def test_a_row_from_before_0067_belongs_to_no_group() -> None:
    letter = dead()
    DeadLetterReplay.objects.filter(id=letter.id).update(kind=None, replay_identity=None)
    dead_letters.archive(dead_letter_id=letter.id, actor=ANN, reason="old")
    assert group_of(letter) == (1, 1)
    assert DeadLetter.objects.get(id=letter.id).state == "archived"
