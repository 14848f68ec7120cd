"""manage.py dlq_replay and operation: one, many, planned, confirmed, stopped (F4, F9, L4)."""

import signal
import sys
from pathlib import Path
from unittest import mock

import pytest

from kernel.delivery import dead_letters
from kernel.models import DeadLetter, Operation
from kernel.operations import Operations
from tests.delivery.letters import ANN, dead, dead_child, replays_of, reread
from tests.delivery.post import destination
from tests.management.running import done, last_act, run, start
from tests.operations.place import PRINT, many, planned, queued, running, work_off, worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("kernel_db")
WHY = ("--reason", "receiver is back")


def test_one_dead_letter_is_sent_again_once() -> None:
    letter = dead()
    assert f"{letter.id} is queued. That is no receipt" in done("dlq_replay", letter.id, *WHY).out
    assert (last_act().action, last_act().actor_kind) == ("dead_letter.replay", "command")
    again = done("dlq_replay", letter.id, "--json").document
    assert (again["state"], again["notification_id"]) == ("already_queued", f"ntf_{letter.id}")
    assert len(replays_of(letter)) == 1


def test_a_refusal_names_its_reason() -> None:
    letter, child = dead(), dead_child()
    dead_letters.archive(dead_letter_id=letter.id, actor=ANN, reason="gone")
    assert "is archived" in run("dlq_replay", letter.id).error
    DeadLetter.objects.filter(id=child.id).update(recipient="mallory")
    assert "input_text differs" in run("dlq_replay", child.id).error
    assert "No dead letter dlq_none" in run("dlq_replay", "dlq_none").error


def test_many_are_planned_first_and_sent_after_a_yes() -> None:
    many(40, destination_id="dst_shop")
    many(3, fingerprint="e" * 32)
    words = ("dlq_replay", "--destination", "dst_shop", *WHY)
    shown = done(*words, "--plan-only").out
    assert "40 dead letters are sent again" in shown and "40  to dst_shop" in shown
    assert queued() == 0 and Operation.objects.get().state == "planned"
    asked = run(*words)
    assert asked.code == 1 and "Repeat with --yes" in asked.error and Operation.objects.count() == 1
    sent = done(*words, "--yes", "--rate", "100000").out
    assert "is done: 40 queued, 0 skipped, 0 failed, of 40" in sent
    assert queued() == 40


@pytest.mark.parametrize(("word", "state"), [("y", "done"), ("n", "planned"), ("", "planned")])
def test_a_person_is_asked(word: str, state: str) -> None:
    many(2)
    with (
        mock.patch.object(sys, "stdin", mock.Mock(isatty=lambda: True)),
        mock.patch("builtins.input", return_value=word),
    ):
        done("dlq_replay", "--fingerprint", PRINT, *WHY)
    assert Operation.objects.get().state == state


def test_no_filter_and_no_reason_are_refused() -> None:
    letter = dead()
    assert "which dead letters" in run("dlq_replay", *WHY, "--yes").error
    assert "reason" in run("dlq_replay", "--destination", "dst_1", "--yes").error
    both = run("dlq_replay", letter.id, "--destination", "dst_1")
    assert "not both" in both.error and reread(letter).state == "open"


def test_ctrl_c_leaves_the_set_running_and_the_product_goes_on() -> None:
    many(50)
    real = Operations.page

    def interrupted(self: Operations, **more: int) -> object:
        signal.raise_signal(signal.SIGINT)
        return real(self, cursor=None, limit=10)

    with mock.patch.object(Operations, "page", interrupted):
        answer = run("dlq_replay", "--fingerprint", PRINT, *WHY, "--yes")
    assert answer.code == 130 and "10 of 50 running" in answer.error
    row = Operation.objects.get()
    assert (row.state, row.owner, row.done_count) == ("running", "", 10)
    work_off(worker())
    assert queued() == 50 and Operation.objects.get().interruptions == 0


def test_the_command_works_on_its_own_set_only() -> None:
    many(3)
    many(3, fingerprint="e" * 32)
    other = running(fingerprint="e" * 32)
    assert "3 queued" in done("dlq_replay", "--fingerprint", PRINT, *WHY, "--yes").out
    found = Operation.objects.get(id=other.id)
    assert (found.state, found.owner, found.done_count) == ("running", "", 0)


def test_a_signal_ends_the_command_and_loses_nothing(tmp_path: Path) -> None:
    many(400)
    words = ("dlq_replay", "--fingerprint", PRINT, *WHY, "--yes", "--rate", "5")
    with start(*words, folder=tmp_path) as child:
        wait_until(lambda: queued() > 0, 60, about="the command works")
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=60)
    assert child.returncode == 130 and "Left running" in error, error
    row = Operation.objects.get()
    assert (row.state, row.owner, row.done_count) == ("running", "", queued())


# --- operation ------------------------------------------------------------------------------------


def test_operations_are_listed_shown_and_moved() -> None:
    assert "No operations." in done("operation", "list").out
    many(3)
    row = planned()
    assert row.id in done("operation", "list").out
    assert done("operation", "show", row.id, "--json").document["digest"] == row.digest
    wrong = run("operation", "apply", row.id, "--digest", "0" * 64)
    assert "another one" in wrong.error
    assert "is running" in done("operation", "apply", row.id, "--digest", row.digest).out
    assert "is paused" in done("operation", "pause", row.id, *WHY).out
    assert (last_act().action, last_act().reason) == ("operation.pause", "receiver is back")
    assert "is running" in done("operation", "resume", row.id).out
    work_off(worker())
    assert "is done: 3 done" in done("operation", "show", row.id).out
    (end,) = done("operation", "show", row.id, "--json").document["outcomes"]
    assert end == {"state": "done", "outcome": "queued", "count": 3}
    assert "is done" in run("operation", "cancel", row.id).error
    assert "no operation op_none" in run("operation", "show", "op_none").error.lower()


def test_a_destination_that_is_not_there_is_told_from_one_without_dead_letters() -> None:
    destination("dst_quiet")
    only = (*WHY, "--plan-only")
    assert "No open dead letter" in run("dlq_replay", "--destination", "dst_quiet", *only).error
    assert run("dlq_replay", "--destination", "dst_qiet", *only).error == "No destination dst_qiet."
