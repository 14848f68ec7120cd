"""Races of a few processes behind a barrier, many rounds; plain SQL looks at each round."""

import json
from collections import Counter

import pytest

from tests.support import lives, work_data
from tests.support.house import House
from tests.support.post_room import PostRoom
from tests.support.racers import Racers
from tests.support.sizes import FULL, proof_size, sized

pytestmark = [
    pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST"),
    pytest.mark.timeout(sized(120, 900)),
]

ROUNDS = sized(12, 500)
PROCESSES = pytest.mark.parametrize("processes", sized([4], [2, 4, 8]))


@PROCESSES
def test_of_processes_that_approve_at_once_one_decides_and_the_job_is_admitted_once(
    house: House, processes: int
) -> None:
    with house.office():
        work_data.tools_and_routes(service_id=lives.SERVICE)
    racers = Racers(house, processes=processes)
    asked = [name for _, name in racers.share("ask", _named("order"))]
    told = racers.race(
        "decide",
        [[{"approval_id": one, "by": f"person-{n}"} for n in range(processes)] for one in asked],
    )
    found = house.rows(
        "SELECT a.id, a.state, a.decided_by_id, a.decision_id, j.state AS job,"
        " j.approval_continuation_keys AS markers, c.state AS owed,"
        " (SELECT COUNT(*) FROM bz_audit WHERE subject = CONCAT('approval:', a.id)"
        " AND action = 'approval.decided') AS decided,"
        " (SELECT COUNT(*) FROM bz_audit WHERE subject = CONCAT('approval:', a.id)"
        " AND action = 'approval.carried_through') AS carried"
        " FROM bz_approvals a JOIN bz_jobs j ON j.id = a.job_id"
        " JOIN bz_approval_continuations c ON c.approval_id = a.id"
    )
    rows = {row["id"]: row for row in found}
    assert len(found) == len(rows) == ROUNDS
    for approval_id, answers in zip(asked, told, strict=True):
        row = rows[approval_id]
        assert Counter(answers) == {
            ("decided", row["decided_by_id"]): 1,
            ("refused", "already_decided"): processes - 1,
        }
        assert (row["state"], row["job"], row["owed"]) == ("approved", "queued", "done")
        assert (row["decided"], row["carried"]) == (1, 1)
        assert json.loads(row["markers"]) == [f"{approval_id}.{row['decision_id']}"]
    house.verify()


@pytest.mark.parametrize("processes", sized([4], [2, 4, 8]))
def test_of_processes_that_replay_at_once_one_queues_the_dead_letter_and_all_say_so(
    house: House, room: PostRoom, processes: int
) -> None:
    racers = Racers(house, processes=processes)
    kinds = [{"number": n, "executor": n % 2 == 1} for n in range(ROUNDS)]
    letters = [name for _, name in racers.share("give_up", kinds)]
    told = racers.race(
        "replay",
        [
            [{"dead_letter_id": one, "by": f"person-{n}"} for n in range(processes)]
            for one in letters
        ],
    )
    found = house.rows(
        "SELECT d.id, d.state, n.id AS admitted, n.state AS message, j.delivery_replay_keys,"
        " (SELECT COUNT(*) FROM bz_audit WHERE subject = CONCAT('dead_letter:', d.id)"
        " AND action = 'dead_letter.replay') AS admissions"
        " FROM bz_delivery_dlq d JOIN bz_notifications n ON n.replay_of_id = d.id"
        " LEFT JOIN bz_jobs j ON j.id = n.child_job_id"
    )
    rows = {row["id"]: row for row in found}
    assert len(found) == len(rows) == ROUNDS
    for letter_id, answers in zip(letters, told, strict=True):
        row = rows[letter_id]
        assert Counter(answers) == {
            ("queued", row["admitted"]): 1,
            ("already_queued", row["admitted"]): processes - 1,
        }
        assert (row["state"], row["admissions"]) == ("resolved", 1)
        if row["message"] == "with_executor":
            assert json.loads(row["delivery_replay_keys"]) == [f"replay.{letter_id}"]
    assert Counter(row["message"] for row in rows.values()) == {
        "queued": (ROUNDS + 1) // 2,
        "with_executor": ROUNDS // 2,
    }
    house.verify()


@PROCESSES
def test_of_processes_that_want_a_lost_workers_job_one_ends_it_and_the_late_worker_at_most_first(
    house: House, processes: int
) -> None:
    with house.office():
        work_data.tools_and_routes(service_id=lives.SERVICE)
    racers = Racers(house, processes=processes)
    lost = "worker-0"
    held = [{**order, "owner": lost} for order in _named("order")]
    jobs = [name for _, name in racers.share("hold", held)]
    told = racers.race(
        "take_over",
        [
            [{"job_id": one, "by": f"worker-{n}", "lost": lost} for n in range(processes)]
            for one in jobs
        ],
    )
    rows = {row["id"]: row for row in house.rows("SELECT * FROM bz_jobs")}
    assert len(rows) == ROUNDS
    winners: Counter[str] = Counter()
    for job_id, answers in zip(jobs, told, strict=True):
        row = rows[job_id]
        assert [name for state, name in answers if state == "finished"] == [row["result_text"]]
        assert (row["state"], row["owner"]) == ("done", row["result_text"])
        took_over = row["owner"] != lost
        assert row["fence_token"] == (2 if took_over else 1)
        assert (answers[0] == ("refused", "lost_lease")) == took_over
        winners["another" if took_over else "the late one"] += 1
    if proof_size() == FULL:  # a few rounds may all end in one way, and no promise is broken by it
        assert len(winners) > 1, f"every race ended in the same way: {winners}"
    house.verify()


def _named(prefix: str) -> list[dict[str, str]]:
    return [{"name": f"{prefix}-{number}"} for number in range(ROUNDS)]
