"""Maintenance passes on screen: each has a word and an interval of its own (B6, L1)."""

from datetime import timedelta
from typing import Any

import pytest

from console.queries.passes import INTERVALS, passes, processes
from console.statuses import STATUSES
from console.words import PASSES, pass_name
from kernel import clock
from kernel.conf import conf
from kernel.kernel import Kernel
from kernel.models import PassStatus


def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[Any]:
    """Every pass that a kernel may run, the copy of the audit included."""
    monkeypatch.setenv("BAILING_AUDIT_JSONL", str(tmp_path / "audit.jsonl"))
    kernel = Kernel()
    made = []
    monkeypatch.setattr(kernel, "_pass", lambda name, *rest: made.append((name, *rest)))
    kernel.database = kernel.background = None  # type: ignore[assignment]  # no pass runs
    kernel._make_passes()
    return made


def test_each_registered_pass_has_a_word_and_its_own_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    made = registered(monkeypatch, tmp_path)
    assert {name for name, *_ in made} == PASSES.keys() == INTERVALS.keys()
    for name, _page, interval, _rows in made:
        assert getattr(conf, INTERVALS[name]) == interval, name
        assert pass_name(name) != name


@pytest.mark.django_db
def test_a_pass_that_nobody_named_is_shown_by_its_code() -> None:
    ended = clock.now() - timedelta(seconds=4 * conf.settlement_interval_seconds)
    PassStatus.objects.create(
        name="of_tomorrow", owner="krn_1", updated_at=ended, finished_at=ended
    )
    (view,) = passes()
    assert (pass_name(view.row.name), view.state) == ("of_tomorrow", "late")


@pytest.mark.django_db
def test_a_run_of_maintain_once_that_ended_is_shown_as_ended_not_as_healthy() -> None:
    now = clock.now()
    values = {"updated_at": now, "started_at": now}
    PassStatus.objects.create(name="settlement", owner="once_1", finished_at=now, **values)
    PassStatus.objects.create(name="recovery", owner="krn_1", finished_at=now, **values)
    PassStatus.objects.create(name="purge", owner="once_2", running=True, **values)
    states = {one.name: one.state for one in processes(passes())}
    assert states == {"once_1": "ended", "krn_1": "healthy", "once_2": "running"}
    assert set(states.values()) <= STATUSES.keys()
