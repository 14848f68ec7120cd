"""One suite for every state store: the database's and the JSONL file's (M1, C13, D1)."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from kernel import clock
from kernel.state import JsonlStore
from kernel.state.jsonl import HEAD
from tests.state.conformance import StoreConformance
from tests.state.conformance_decisions import AdmissionConformance, DecisionConformance
from tests.state.place import Place
from tests.state.test_database_store import acts_of, lift_pause, set_pause
from tests.state.test_database_store import place as place_in_the_database

in_the_database = place_in_the_database


def place_of(store: JsonlStore) -> Place:
    """The JSONL store; audit and pauses are the database's."""

    def let_lease_end(job_id: str) -> None:
        past = clock.now() - timedelta(seconds=1)
        store._jobs[job_id] = replace(store._jobs[job_id], lease_expires_at=past)

    return Place(
        store=store,
        let_lease_end=let_lease_end,
        pause=set_pause,
        unpause=lift_pause,
        acts_of=acts_of,
        markers_of=lambda job_id: store._markers.get(job_id, []),
    )


@pytest.fixture(params=["database", "jsonl"])
def place(
    request: pytest.FixtureRequest, in_the_database: Place, tmp_path: Path
) -> Iterator[Place]:
    if request.param == "database":
        yield in_the_database
        return
    store = JsonlStore(tmp_path / "jobs.jsonl")
    yield place_of(store)
    jobs, markers = dict(store._jobs), dict(store._markers)
    store.close()
    again = JsonlStore(tmp_path / "jobs.jsonl")  # what any test did is what the file says
    leases = {job_id: job.lease_expires_at for job_id, job in jobs.items()}
    found = {
        job_id: replace(job, lease_expires_at=leases[job_id]) for job_id, job in again._jobs.items()
    }
    assert (found, again._markers) == (jobs, markers)
    assert next(iter(again._file.path.open())).endswith(f'"version":{HEAD["version"]}}}\n')
    again.close()


class TestStores(StoreConformance, DecisionConformance, AdmissionConformance):
    """All of it, for both."""
