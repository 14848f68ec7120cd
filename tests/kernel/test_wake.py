"""Wake-ups: said after the commit only, sent beside it, never waited for (B1, D1)."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from kernel.delivery import destinations
from kernel.runtime import wake
from kernel.runtime.wake import JOBS, NOTIFICATIONS, Messenger
from kernel.transactions import transaction
from tests.support import lives, work_data
from tests.support.wait import wait_until


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What was said in this test, in order."""
    heard: list[str] = []
    wake.listen(heard.append)
    yield heard
    wake.stop_listening(heard.append)


def sent(outcome: str) -> float:
    found = REGISTRY.get_sample_value("bailing_wake_messages_total", {"outcome": outcome})
    return found or 0.0


@transaction
def say_and(*, error: Exception | None) -> None:
    wake.wake_after_commit_in_tx(what=JOBS)
    if error:
        raise error


def test_a_wake_up_is_said_after_the_commit_and_never_without_it(
    kernel_db: None, said: list[str]
) -> None:
    with pytest.raises(ValueError, match="no"):
        say_and(error=ValueError("no"))
    assert said == []
    say_and(error=None)
    assert said == [JOBS]


def test_whatever_makes_work_due_says_so(kernel_db: None, said: list[str]) -> None:
    lives.open_account(work_data.ACCOUNT, cap_nano=None)
    lives.add_service("gpt-main")
    work_data.tools_and_routes()
    destinations.create_destination(
        account_id=work_data.ACCOUNT,
        destination_id="ops",
        channel="email",
        address="ops@example.com",
        events=["approval"],
        actor=lives.ACTOR,
    )
    assert said == []
    work_data.submit("one")
    assert said == [JOBS]
    work_data.submit("one")
    assert said == [JOBS]  # a repeat makes nothing due
    asked = work_data.refund("two")
    assert said == [JOBS, JOBS, NOTIFICATIONS]
    work_data.decide(asked.approval_ids[0], "approved", reason="ok")
    assert set(said[3:]) == {JOBS, NOTIFICATIONS}


def test_what_is_said_while_one_is_sent_is_one_message(kernel_db: None) -> None:
    here, go, got = threading.Event(), threading.Event(), list[str]()

    def send(what: str) -> None:
        got.append(what)
        here.set()
        assert go.wait(10)

    before = sent("sent")
    messenger = Messenger(send, linger_seconds=0.0).start()
    say_and(error=None)
    assert here.wait(10)
    started = time.monotonic()
    for _ in range(200):
        messenger.say(JOBS)
    assert time.monotonic() - started < 1  # nobody waits for the one that hangs
    go.set()
    wait_until(lambda: sent("sent") == before + 2, about="two messages were sent")
    messenger.stop(seconds=5)
    assert got == [JOBS, JOBS]
    say_and(error=None)
    assert got == [JOBS, JOBS]


def test_a_stop_that_meets_a_wake_up_is_heard(kernel_db: None) -> None:
    messenger = Messenger(lambda what: None, linger_seconds=0.0)
    clear = messenger._said.clear

    def stopped_meanwhile() -> None:
        messenger._stopping.set()
        messenger._said.set()
        clear()

    messenger._said.clear = stopped_meanwhile  # type: ignore[method-assign]  # the moment between
    messenger.start()
    messenger.say(JOBS)
    messenger._thread.join(5)
    wake.stop_listening(messenger.say)
    assert not messenger._thread.is_alive()


def test_a_broker_that_is_away_fails_nothing_and_is_told_once(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wake, "RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO, "kernel.runtime.wake")
    is_away = threading.Event()
    is_away.set()

    def send(what: str) -> None:
        if is_away.is_set():
            raise ConnectionError("redis://:hush-hush@host")

    failed, done = sent("failed"), sent("sent")
    messenger = Messenger(send, linger_seconds=0.0).start()
    for number in range(1, 4):
        say_and(error=None)
        wait_until(lambda n=number: sent("failed") == failed + n, about="it was counted")
    is_away.clear()
    say_and(error=None)
    wait_until(lambda: sent("sent") == done + 1, about="it is there again")
    messenger.stop(seconds=5)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "the broker takes no wake-ups: ConnectionError",
        "the broker takes wake-ups again",
    ]


def test_a_listener_that_fails_does_not_look_like_a_lost_commit(
    kernel_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(what: str) -> None:
        raise RuntimeError(what)

    wake.listen(broken)
    try:
        say_and(error=None)  # returns as after any commit
    finally:
        wake.stop_listening(broken)
    assert any("on_commit" in record.getMessage() for record in caplog.records)
