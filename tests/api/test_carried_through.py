"""Decisions at the door that are recorded and not carried through yet, or not at all (C4, C13)."""

from typing import Any

import pytest

from kernel import schema
from kernel.errors import Unavailable
from kernel.models import Approval, Job
from kernel.state import DatabaseStore
from tests.api.agents import ask_apart, decide, decided_fields, open_one, snapshot
from tests.api.conftest import Api, error_of


async def test_a_decision_on_a_running_job_is_recorded_and_pending(desk: Api) -> None:
    approval_id = await open_one(desk, pauses=False)
    response = await decide(desk, approval_id)
    assert response.status_code == 200
    assert response.json()["continuation_pending"] is True
    assert response.json()["state"] == "approved"
    assert await desk.look(lambda: Job.objects.get().state) == "running"


async def test_a_direct_invocations_decision_is_carried_through_at_once(desk: Api) -> None:
    approval_id = await desk.look(lambda: ask_apart().id)
    response = await decide(desk, approval_id)
    assert response.status_code == 200
    assert response.json()["continuation_pending"] is False


class Broken(DatabaseStore):
    """A store whose admissions fail."""

    @staticmethod
    def requeue_approved_job_once(**_: Any) -> Any:
        raise OSError("the queue is away")


async def test_a_recorded_decision_that_was_not_carried_through_is_503_then_200(
    desk: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval_id = await open_one(desk)
    monkeypatch.setattr(desk.kernel, "store", Broken())
    response = await decide(desk, approval_id)
    assert response.status_code == 503
    body = response.json()
    way_out = "retry the same decision_id; do not create another approval"
    for part in (body, body["error"]):
        assert part["decision_recorded"] is True
        assert part["continuation_pending"] is True
        assert part["next_action"] == way_out
        assert part["approval_id"] == approval_id
    assert body["error"]["code"] == "continuation_pending"
    assert body["error"]["retryable"] is True
    assert int(response.headers["retry-after"]) > 0
    assert "x-should-retry" not in response.headers
    shown = (await desk.client.get(f"/v1/approvals/{approval_id}")).json()
    assert shown["continuation_pending"] is True
    assert shown["continuation"]["attempts"] == 1
    assert shown["continuation"]["error"], "its kind, not its text"
    assert "the queue is away" not in shown["continuation"]["error"]
    monkeypatch.setattr(desk.kernel, "store", DatabaseStore())
    again = await decide(desk, approval_id)
    assert again.status_code == 200
    assert again.json()["replayed"] is True
    assert decided_fields(again.json()) == decided_fields(body)
    assert await desk.look(lambda: Job.objects.get().state) == "queued"


async def test_without_the_migration_decisions_are_unavailable_and_the_rest_works(
    desk: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval_id = await open_one(desk)
    before = await desk.look(snapshot)

    def refuse(name: str) -> None:
        if name == schema.CONTINUATIONS:
            raise Unavailable(f"The database lacks {name}.", code="migration_missing")

    monkeypatch.setattr(schema, "require", refuse)
    response = await decide(desk, approval_id)
    assert response.status_code == 503
    error = error_of(response)
    assert error["code"] == "migration_missing"
    assert schema.CONTINUATIONS in error["message"]
    assert "decision_recorded" not in response.text
    assert await desk.look(snapshot) == before
    assert (await desk.client.get("/v1/jobs")).status_code == 200


async def test_a_store_without_admissions_takes_no_decision(
    desk: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval_id = await open_one(desk)

    class Lacking(DatabaseStore):
        capabilities = frozenset()

    monkeypatch.setattr(desk.kernel, "store", Lacking())
    response = await decide(desk, approval_id)
    assert (response.status_code, error_of(response)["code"]) == (503, "capability_missing")
    assert await desk.look(lambda: Approval.objects.get().state) == "open"
