"""Messages that are lost, doubled or wrong, and workers that end: the tables say what is done."""

import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from celery import Celery

from tests.scaleout.fleet import CELERY, Fleet, Member
from tests.scaleout.work import Work
from tests.support.client import Client
from tests.support.desk import Desk
from tests.support.house import WAIT_SECONDS, House
from tests.support.kernel_process import ROOT
from tests.support.redis_server import RedisServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST"), pytest.mark.timeout(400)]

TASKS = ("bailing.tick", "bailing.run_jobs", "bailing.deliver")
QUICK_SECONDS = 5.0  # a busy machine; what must not be in it are the broker's time-outs in a row


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A broker that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def metric(web: Member, outcome: str) -> float:
    """How many wake-ups the web server has counted so."""
    client = Client(web.port, "", on_answer=lambda name, answer: None)
    text = client.call("GET", "/metrics").body.decode()
    name = f'bailing_wake_messages_total{{outcome="{outcome}"}}'
    found = [line.split()[-1] for line in text.splitlines() if line.startswith(name)]
    return float(found[0]) if found else 0.0


def ends(work: Work, jobs: int) -> None:
    """Until so many jobs have ended and told it; an approver and an operator are at work."""

    def nothing_is_owed() -> bool:
        work.decide_all()
        work.resolve_all()
        return work.ended() == jobs and not (work.undelivered() or work.unfinished())

    wait_until(nothing_is_owed, 2 * WAIT_SECONDS, about=f"{jobs} jobs ended", look_every=0.2)


def test_with_the_broker_away_requests_stay_quick_and_jobs_run(
    desk: Desk, fleet: Fleet, redis: RedisServer
) -> None:
    fleet.environment["BAILING_TICK_SILENCE_SECONDS"] = "1"
    web, _worker, _beat = fleet.web(), fleet.worker(), fleet.beat()
    fleet.wait_ready()
    work = Work(desk, [web])
    redis.kill()
    began = time.monotonic()
    assert [work.submit(number) for number in range(5)] == [201] * 5
    assert time.monotonic() - began < QUICK_SECONDS
    wait_until(lambda: metric(web, "failed") > 0, about="a wake-up was counted as lost")
    (now,) = desk.house.rows("SELECT UTC_TIMESTAMP(6) AS at")
    ends(work, 5)
    wait_until(
        lambda: desk.house.rows(
            "SELECT 1 FROM bz_pass_status WHERE name = 'job_recovery' AND started_at > %s",
            now["at"],
        ),
        WAIT_SECONDS,
        about="recovery runs without ticks",
    )
    assert fleet.words("web").count("the broker takes no wake-ups") == 1
    redis.start()
    sent = metric(web, "sent")
    assert work.submit(6) == 201
    wait_until(lambda: metric(web, "sent") > sent, WAIT_SECONDS, about="a wake-up was sent again")
    ends(work, 6)
    desk.house.verify()


def test_a_broker_that_never_answers_holds_up_no_request(
    desk: Desk, fleet: Fleet, silent_port: int
) -> None:
    fleet.environment["BAILING_BROKER_URL"] = f"redis://:hush-hush@127.0.0.1:{silent_port}/0"
    web = fleet.web()
    fleet.wait_ready()
    work = Work(desk, [web])
    began = time.monotonic()
    assert [work.submit(number) for number in range(10)] == [201] * 10
    assert time.monotonic() - began < QUICK_SECONDS
    wait_until(lambda: metric(web, "failed") > 0, WAIT_SECONDS, about="it was given up")
    assert web.terminate() in (0, -15)
    assert "hush-hush" not in fleet.words("web")
    desk.house.verify()


def test_doubled_and_odd_messages_change_nothing(
    desk: Desk, fleet: Fleet, redis: RedisServer
) -> None:
    web = fleet.web()
    workers = [fleet.worker(), fleet.worker("--pool", "solo")]
    fleet.wait_ready()
    work = Work(desk, [web])
    sender = Celery("tests", broker=redis.url)
    sender.conf.task_ignore_result = True
    for number in range(6):
        assert work.submit(number) == 201
        for name in TASKS * 5:
            sender.send_task(name, queue="bailing")
    sender.send_task("bailing.unheard_of", queue="bailing")
    sender.send_task("bailing.run_jobs", args=["job_of_somebody"], queue="bailing")
    sender.send_task("bailing.run_jobs", queue="bailing", serializer="pickle")
    ends(work, 6)
    wait_until(
        lambda: redis.client().llen("bailing") == 0, WAIT_SECONDS, about="every message is read"
    )
    told = desk.house.rows("SELECT COUNT(*) AS n FROM bz_notifications")
    assert (work.states()["done"], told[0]["n"], desk.calls()) == (6, 6, 6)
    assert [worker.terminate() for worker in workers] == [0, 0]
    desk.house.verify()


def test_a_worker_that_is_asked_to_end_saves_its_call_and_another_goes_on(
    desk: Desk, fleet: Fleet, redis: RedisServer
) -> None:
    web, first = fleet.web(), fleet.worker()
    fleet.wait_ready()
    work = Work(desk, [web], model_ms=1500)
    before = desk.house.provider.count()
    assert work.submit(1) == 201
    desk.house.provider.wait_for_call(count=before + 1, deadline=WAIT_SECONDS)
    assert work.states() == {"running": 1}
    assert first.terminate() == 0, first.words[-3000:]
    assert "closed cleanly" in first.words
    assert work.states() == {"queued": 1}  # its call is saved, and it waits for anybody
    second = fleet.worker()
    ends(work, 1)
    assert second.terminate() == 0
    assert work.states()["done"] == 1
    desk.house.verify()


def test_a_worker_that_cannot_run_says_why_and_ends(
    house: House, fleet: Fleet, redis: RedisServer, mysql_schema: str
) -> None:
    wrong = {
        "one kernel, no forks": ({}, ["--pool", "processes"]),
        "Run manage.py db_init": ({"BAILING_TEST_DATABASE_URL": mysql_schema}, []),
        "runs only with BAILING_ENGINE=celery": ({"BAILING_ENGINE": ""}, []),
        "BAILING_BROKER_URL must look like": ({"BAILING_BROKER_URL": "ftp://:hush@host"}, []),
    }
    started = {
        says: subprocess.Popen(
            [*CELERY, "worker", *options],
            cwd=ROOT,
            env={**fleet.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for says, (more, options) in wrong.items()
    }
    try:
        for says, process in started.items():
            words, _ = process.communicate(timeout=100)
            assert process.returncode != 0, words
            assert says in " ".join(words.split()), words
            assert "hush" not in words
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    house.verify()
