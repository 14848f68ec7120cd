"""manage.py maintain: every pass to its end, exit codes, a clean close (B, L4)."""

import asyncio
import fcntl
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Sum

from kernel.clock import db_now
from kernel.conf import conf, override
from kernel.management.commands import maintain
from kernel.models import Account, Body, LedgerRow, PassStatus, Request
from kernel.states import Billing, Result
from tests.management.running import Answer, done, run, run_process, start
from tests.support import lives
from tests.support.commits import AWAY, at_commit
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture(autouse=True)
def house(kernel_db: None, settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path
    lives.open_account()
    lives.add_service()


def counters(answer: Answer) -> dict[str, dict[str, int]]:
    """What --once printed: {"settlement": {"scanned": 5, ...}, ...}."""
    found = {}
    for line in answer.out.splitlines():
        name, colon, text = line.partition(": ")
        if colon and text.startswith("scanned"):
            words = text.split(";")[0].replace(",", "").split()
            found[name] = {k: int(v) for k, v in zip(words[::2], words[1::2], strict=True)}
    return found


def settled() -> int:
    return Request.objects.filter(billing_state=Billing.SETTLED).count()


def test_once_settles_every_page_and_prints_the_counters() -> None:
    for number in range(5):
        lives.complete(f"op-{number}")
    waiting = lives.unknown("op-lost")
    with override(settlement_page_rows=2):
        answer = done("maintain", "--once")
    assert settled() == 5
    assert counters(answer)["settlement"] == {
        "scanned": 6,
        "settled": 5,
        "deferred": 1,
        "failed": 0,
        "pages": 4,
    }
    assert lives.read(waiting.id).billing_state == Billing.PENDING
    assert "Closed cleanly" in answer.out
    assert Account.objects.get().consumed_nano == 5 * lives.CHARGE_NANO


def test_a_pass_that_stops_at_its_time_budget_is_taken_up_again() -> None:
    for number in range(5):
        lives.complete(f"op-{number}")
    with override(settlement_page_rows=1, settlement_budget_seconds=0):
        answer = done("maintain", "--once")
    assert settled() == 5
    assert counters(answer)["settlement"]["settled"] == 5


def test_once_notices_the_dead_owners_of_expired_leases() -> None:
    fence = lives.dispatched("op-1")
    done("maintain", "--once")
    assert lives.read(fence.request_id).result_state == Result.DISPATCHED
    lives.let_lease_end(fence.request_id)
    answer = done("maintain", "--once")
    assert counters(answer)["recovery"]["settled"] == 1
    assert lives.read(fence.request_id).result_state == Result.UNKNOWN


def test_old_bodies_are_purged_and_those_of_open_questions_stand_in_nobodys_way() -> None:
    kept = [lives.unknown(f"kept-{number}") for number in range(3)]
    old = [lives.settled(f"old-{number}") for number in range(3)]
    long_ago = db_now() - timedelta(days=conf.result_retention_days + 1)
    Request.objects.update(admitted_at=long_ago, updated_at=long_ago)
    young = lives.settled("young")
    with override(recovery_page_rows=2):
        answer = done("maintain", "--once")
    with_body = set(Body.objects.values_list("request_id", flat=True))
    assert with_body == {row.id for row in (*kept, young)}
    assert counters(answer)["purge"]["settled"] == 3
    assert LedgerRow.objects.count() == 4
    assert all(lives.read(row.id).purged_at for row in old)


def test_once_leaves_its_counters_for_other_processes() -> None:
    lives.complete("op-1")
    done("maintain", "--once")
    row = PassStatus.objects.get(name="settlement")
    assert (row.pass_settled, row.running, row.error_code) == (1, False, "")
    assert row.owner.startswith("once_"), "Health knows that it has ended"


# --- failures ---------------------------------------------------------------------------------


def test_a_row_that_cannot_be_read_is_counted_and_others_settle_with_exit_code_0() -> None:
    broken = lives.complete("op-broken")
    Request.objects.filter(id=broken.id).update(usage_text="{")
    lives.complete("op-1")
    answer = done("maintain", "--once")
    assert (counters(answer)["settlement"]["failed"], settled()) == (1, 1)


def test_a_pass_that_backs_off_gives_exit_code_1_and_the_others_still_run() -> None:
    lives.complete("op-1")
    with at_commit("settle", AWAY, times=50) as fault:
        answer = run("maintain", "--once")
    assert fault.fired
    assert answer.code == 1
    assert "Not done: settlement." in answer.error
    assert "settlement: scanned 0" in answer.out
    assert "stopped by OperationalError, backs off" in answer.out
    assert "purge" in counters(answer)
    assert settled() == 0
    done("maintain", "--once")
    assert settled() == 1


def test_a_pass_with_a_defect_gives_exit_code_1_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*, cursor: Any, limit: int) -> Any:
        raise ValueError("a defect")

    monkeypatch.setattr("kernel.kernel.expiry_page", broken)
    lives.complete("op-1")
    answer = run("maintain", "--once")
    assert answer.code == 1
    assert "recovery: scanned 0" in answer.out
    assert "stopped by ValueError, backs off" in answer.out
    assert settled() == 1


def test_an_interrupted_run_says_what_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> asyncio.Event:
        event = asyncio.Event()
        event.set()
        return event

    monkeypatch.setattr(maintain, "_stopped_by_signals", stopped)
    lives.complete("op-1")
    answer = run("maintain", "--once")
    assert answer.code == 1
    assert "Not done: recovery, settlement, purge, " in answer.error
    assert "receipts, " in answer.error and "purge_jobs, " in answer.error
    assert answer.error.endswith("The next run goes on from there.")
    assert settled() == 0


def test_a_close_that_runs_out_of_time_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    real = maintain.Kernel.close

    async def late(self: Any, drain_seconds: float | None = None) -> Any:
        report = await real(self, drain_seconds)
        return type(report)(False, report.seconds, {"settlement": 1})

    monkeypatch.setattr(maintain.Kernel, "close", late)
    answer = run("maintain", "--once")
    assert answer.code == 1
    assert "The close budget of 30 s ran out; left: {'settlement': 1}." in answer.error


@pytest.mark.parametrize("words", [["maintain", "--once"], ["maintain"]])
def test_a_schema_that_is_not_ready_is_exit_code_2(words: list[str], tmp_path: Path) -> None:
    answer = run_process(*words, url=f"sqlite:///{tmp_path / 'empty.sqlite3'}", folder=tmp_path)
    assert answer.code == 2
    assert "0064_baseline" in answer.error
    assert "Run manage.py db_init." in answer.error
    assert "Traceback" not in answer.error


# --- several at once --------------------------------------------------------------------------


def test_a_second_once_of_this_installation_leaves_it_to_the_first(tmp_path: Path) -> None:
    lives.complete("op-1")
    with (tmp_path / "maintain.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        answer = done("maintain", "--once")
    assert "Another maintain --once is running" in answer.out
    assert settled() == 0
    done("maintain", "--once")
    assert settled() == 1


def test_runs_that_overlap_without_a_common_lock_charge_each_request_once(tmp_path: Path) -> None:
    for number in range(40):
        lives.complete(f"op-{number}")
    # Each process has its own var directory, as two machines would.
    small = {"BAILING_SETTLEMENT_PAGE_ROWS": "3"}
    processes = [start("maintain", "--once", folder=tmp_path, **small) for _ in range(3)]
    ends = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ends
    assert (settled(), LedgerRow.objects.count()) == (40, 40)
    total = LedgerRow.objects.aggregate(total=Sum("amount_nano"))["total"]
    assert Account.objects.get().consumed_nano == total == 40 * lives.CHARGE_NANO


# --- as a process -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_without_once_it_runs_until_a_signal_and_closes_cleanly(
    number: signal.Signals, tmp_path: Path
) -> None:
    lives.complete("op-1")
    with start("maintain", folder=tmp_path) as process:
        try:
            assert process.stdout is not None
            assert "settlement every 60 s" in process.stdout.readline()
            wait_until(lambda: settled() == 1, 30, about="the first tick settles")
            process.send_signal(number)
            out, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, error) == (0, "")
    assert "Closed cleanly" in out
