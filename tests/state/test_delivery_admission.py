"""The database store against the conformance of replays, and what only it promises (F5, H3)."""

import json
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from kernel import schema
from kernel.errors import KernelError, Unavailable
from kernel.models import JobMarkers
from kernel.state import Admission, DatabaseStore
from tests.state.conformance_delivery import MARKER, DeliveryConformance, failed, requeue
from tests.state.place import Place, waiting
from tests.state.test_database_store import place as place_of_decisions
from tests.support.commits import LANDED, at_commit
from tests.usage.flow import Statements, at_once

decisions = place_of_decisions


def markers_of(job_id: str) -> list[str]:
    text = JobMarkers.objects.values_list("delivery_replay_keys", flat=True).get(id=job_id)
    return list(json.loads(text)) if text else []


@pytest.fixture
def place(decisions: Place) -> Place:
    return replace(decisions, markers_of=markers_of)


class TestDeliveryAdmission(DeliveryConformance):
    """All of it."""


@pytest.mark.parametrize("text", ["[", '{"a":1}', '"replay.dlq_1"'])
def test_damaged_markers_admit_nothing(place: Place, text: str) -> None:
    job = failed(place)
    JobMarkers.objects.filter(id=job.id).update(delivery_replay_keys=text)
    with pytest.raises(KernelError) as refusal:
        requeue(place, job.id)
    assert refusal.value.error_code == "marker_damaged"
    assert place.store.get(job_id=job.id) == job


def test_a_lost_acknowledgement_admits_once(place: Place) -> None:
    job = failed(place)
    with at_commit("_requeue_delivery", LANDED) as fault, pytest.raises(Unavailable):
        requeue(place, job.id)
    assert fault.fired == 1
    assert requeue(place, job.id) is Admission.ALREADY
    assert markers_of(job.id) == [MARKER]


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The database's own ledger lacks a migration."""
    real: Callable[..., Any] = MigrationRecorder.applied_migrations
    monkeypatch.setattr(schema, "_found", set())
    monkeypatch.setattr(
        MigrationRecorder,
        "applied_migrations",
        lambda self: {k: v for k, v in real(self).items() if k != ("kernel", name)},
    )


def test_without_0067_replay_is_unavailable_and_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = failed(place)
    without(monkeypatch, schema.REPLAY)
    for attempt in (place.store.ensure_executor_replay, partial(requeue, place, job.id)):
        with pytest.raises(Unavailable) as refusal:
            attempt()
        assert refusal.value.details["migration"] == schema.REPLAY
    assert place.store.get(job_id=job.id) == job


def test_each_admission_reads_its_own_marker_column_only(place: Place) -> None:
    """Where only 0066 is applied, decisions still work (H3)."""
    asks, fails = waiting(place.store, 1), failed(place, 2)
    decision, replay = Statements(), Statements()
    with connection.execute_wrapper(decision):
        DatabaseStore.requeue_approved_job_once(
            job_id=asks.id, marker="apr.dec", may_admit=lambda: "yes"
        )
    with connection.execute_wrapper(replay):
        requeue(place, fails.id)
    assert not any("delivery_replay_keys" in one for one in decision.touching("bz_jobs"))
    assert not any("approval_continuation_keys" in one for one in replay.touching("bz_jobs"))


@pytest.mark.usefixtures("server_db")
def test_sixteen_replays_at_once_admit_once(place: Place) -> None:
    for number in range(5):
        job = failed(place, number)
        found = at_once(*[partial(requeue, place, job.id)] * 16)
        assert Tally(found) == {Admission.ADMITTED: 1, Admission.ALREADY: 15}
        assert markers_of(job.id) == [MARKER]
        place.store.finish(
            fence=place.store.claim(owner="w", target="agent", limit=1)[0].fence, state="done"
        )
