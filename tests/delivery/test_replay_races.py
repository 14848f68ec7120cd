"""Races of replays, as theorems: threads with a connection each, on a real server (F5)."""

from collections import Counter as Tally
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kernel.delivery import dead_letters, replay
from kernel.errors import Conflict
from kernel.models import AuditRow, DeadLetter, DeadLetterGroup, Job, Notification
from tests.delivery.letters import (
    ANN,
    BEN,
    STORE,
    acts_of,
    dead,
    dead_child,
    group_of,
    markers_of,
    replays_of,
    reread,
)
from tests.usage.flow import at_once

pytestmark = pytest.mark.usefixtures("server_db")
ROUNDS = 5


def outcomes_of(*works: Callable[[], Any]) -> list[Any]:
    found = at_once(*works)
    for one in found:
        if isinstance(one, Exception) and not isinstance(one, Conflict):
            raise one
    return found


def again(letter: DeadLetter) -> Callable[[], replay.Replayed]:
    return partial(replay.replay, dead_letter_id=letter.id, actor=ANN, store=STORE)


def test_sixteen_replays_at_once_are_one_admission_and_sixteen_truthful_answers() -> None:
    for _ in range(ROUNDS):
        letter = dead()
        found = outcomes_of(*[again(letter)] * 16)
        assert Tally(one.state for one in found) == {"queued": 1, "already_queued": 15}
        assert {one.notification_id for one in found} == {f"ntf_{letter.id}"}
        assert len(replays_of(letter)) == 1 and acts_of(letter) == ["replay"]
        assert reread(letter).state == "resolved"
    assert group_of(letter) == (ROUNDS, 0)


def test_sixteen_replays_of_a_child_are_one_admission() -> None:
    for _ in range(ROUNDS):
        letter = dead_child()
        found = outcomes_of(*[again(letter)] * 16)
        assert Tally(one.state for one in found) == {"queued": 1, "already_queued": 15}
        (job_id,) = {one.child_job_id for one in found}
        assert markers_of(job_id) == [f"replay.{letter.id}"] and acts_of(letter) == ["replay"]
        assert [job.id for job in STORE.claim(owner="x", target="executor", limit=9)] == [job_id]
        assert reread(letter).state == "resolved"
        Job.objects.filter(id=job_id).update(state="done")


def test_a_replay_and_an_archive_never_both_win() -> None:
    for make in (dead, dead_child):
        for _ in range(ROUNDS):
            letter = make()
            archive = partial(
                dead_letters.archive, dead_letter_id=letter.id, actor=BEN, reason="gone"
            )
            told, archived = outcomes_of(again(letter), archive)
            if isinstance(told, Conflict):
                assert told.error_code == "archived" and archived.state == "archived"
                assert reread(letter).state == "archived" and replays_of(letter) == []
            else:
                assert archived.error_code in ("not_open", "replayed")
                assert reread(letter).state == "resolved" and len(replays_of(letter)) == 1


def test_bulk_replays_that_overlap_admit_each_once() -> None:
    letters = [dead() for _ in range(60)]
    ids = [letter.id for letter in letters]
    pages = [ids, ids[::-1], ids[20:], ids[:40]]
    works = [
        partial(replay.replay_page, dead_letter_ids=page, actor=ANN, store=STORE) for page in pages
    ]
    found = outcomes_of(*works)
    states = Tally(one.state for page in found for one in page.values())
    assert (states["queued"], states["already_queued"]) == (60, 140)
    assert Notification.objects.filter(state="queued").count() == 60
    assert AuditRow.objects.filter(action="dead_letter.replay").count() == 60
    assert group_of(letters[0]) == (60, 0)


def test_failures_recorded_at_once_are_all_counted_in_their_group() -> None:
    found = outcomes_of(*[dead] * 12)
    assert group_of(found[0]) == (12, 12)
    assert DeadLetterGroup.objects.count() == 1
