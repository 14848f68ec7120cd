"""Many jobs on 2 web servers, 3 workers and 2 beats; workers and the broker are killed meanwhile.

A seed gives one plan of kills: which worker, after how many ended jobs. 200 jobs every day, 2,000
in full; `BAILING_SCALEOUT_JOBS` says another number.
"""

import os
import random
import time

import pytest

from tests.scaleout.conftest import Broker
from tests.scaleout.fleet import Fleet, Member
from tests.scaleout.work import Work
from tests.support.desk import Desk
from tests.support.house import House
from tests.support.sizes import sized

JOBS = int(os.environ.get("BAILING_SCALEOUT_JOBS") or sized(200, 2000))
KILLS = 6
SECONDS_MAX = 120.0 + JOBS * 1.5  # a busy machine; a quiet one needs a tenth
SEED = 7

pytestmark = [
    pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST"),
    pytest.mark.timeout(int(SECONDS_MAX) + 600),
]


def test_every_job_finishes_once_while_workers_and_the_broker_are_killed(
    desk: Desk, fleet: Fleet, broker: Broker
) -> None:
    house = desk.house
    webs = [fleet.web(), fleet.web()]
    workers = [fleet.worker(), fleet.worker(), fleet.worker("--pool", "solo")]
    beats = [fleet.beat(), fleet.beat()]
    fleet.wait_ready()
    work = Work(desk, webs)
    posted = work.submit_all(JOBS)

    killed, restarted = _live_through_it(work, fleet, workers, broker)

    assert [each.result() for each in posted] == [201] * JOBS
    assert (killed, restarted) == (KILLS, 1)
    _check_jobs(house)
    # An orderly end: nothing is left behind, and SIGTERM is no failure (G4).
    codes = [member.terminate() for member in (*beats, *workers, *webs)]
    assert codes[: len(beats) + len(workers)] == [0] * 5, fleet.words("worker")[-3000:]
    # Celery tells with a traceback of its own that the broker went away under an acknowledgement.
    lines = fleet.words("worker").splitlines()
    said = "\n".join(line for line in lines if "Couldn't ack" not in line)
    assert "Traceback" not in said, _from_traceback(said)
    words = fleet.words("worker") + fleet.words("web") + fleet.words("beat")
    assert f":{broker.password}@" not in words
    house.verify()


def _from_traceback(said: str) -> str:
    """What the workers said from their first traceback on, and a little before it."""
    place = said.index("Traceback")
    return said[max(0, place - 1000) : place + 5000]


def _live_through_it(
    work: Work, fleet: Fleet, workers: list[Member], broker: Broker
) -> tuple[int, int]:
    """Decide, resolve, kill and start again until nothing is owed; kills and broker restarts."""
    dice = random.Random(SEED)
    kills = [JOBS * (number + 1) // (KILLS + 2) for number in range(KILLS)]
    broker_restart = JOBS // 2
    killed = restarted = 0
    until = time.monotonic() + SECONDS_MAX
    while (ended := work.ended()) < JOBS or work.undelivered() or work.unfinished():
        assert time.monotonic() < until, (work.states(), work.undelivered(), work.unfinished())
        if kills and ended >= kills[0]:
            kills.pop(0)
            number = dice.randrange(len(workers))
            work.house.kill(workers[number])
            workers[number] = fleet.worker()
            killed += 1
        if not restarted and ended >= broker_restart:
            broker.restart()
            restarted += 1
        work.decide_all()
        work.resolve_all()
        time.sleep(0.3)
    return killed, restarted


def _check_jobs(house: House) -> None:
    """Each job ended once, told it once, and only what a killed worker left unknown has failed."""
    jobs = {row["id"]: row for row in house.rows("SELECT * FROM bz_jobs")}
    assert len(jobs) == JOBS
    unknown = {
        row["operation_id"].split(":")[1]
        for row in house.rows(
            "SELECT operation_id FROM bz_usage_requests WHERE result_state <> 'complete'"
        )
    }
    odd = {name for name, row in jobs.items() if row["state"] != "done"}
    assert odd <= unknown, [(jobs[name]["state"], jobs[name]["error_text"]) for name in odd]
    told = house.rows("SELECT job_id, COUNT(*) AS n FROM bz_notifications GROUP BY job_id")
    assert {row["job_id"]: row["n"] for row in told} == dict.fromkeys(jobs, 1)
    assert house.receiver is not None
    arrived = {call.headers["webhook-id"] for call in house.receiver.sent(house.receiver_path)}
    assert arrived == {row["id"] for row in house.rows("SELECT id FROM bz_notifications")}
    assert house.shop is not None
    # Every job has its call. One that a killed worker never sent was resolved as not executed.
    calls = house.rows("SELECT job_id, state, idempotency_key FROM bz_tool_calls")
    assert {row["job_id"] for row in calls} >= set(jobs) - odd
    sent = {call.headers["idempotency-key"] for call in house.shop.sent(house.shop_path)}
    assert {row["idempotency_key"] for row in calls if row["state"] == "done"} <= sent
    assert len(sent) >= JOBS - len(odd) - sum(row["state"] == "failed" for row in calls)
