"""Executors at the door: claim, heartbeat and report, each under the fence of its claim (D5)."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from kernel import clock
from kernel.conf import conf
from kernel.models import Job
from tests.api.agents import STORE, caller, make_job, make_route
from tests.api.conftest import Api, error_of
from tests.support.product import make_account


@pytest.fixture(autouse=True)
async def route(desk: Api) -> None:
    def rows() -> None:
        make_route()
        make_route("exports", target="executor")

    await desk.look(rows)


def export(request_id: str = "job-1", **fields: Any) -> str:
    """The id of a queued job for an executor."""
    value = {"table": "orders"}
    return make_job(request_id, route_id="exports", target="executor", value=value, **fields).id


async def claim(desk: Api, limit: int = 1) -> list[dict[str, Any]]:
    response = await desk.client.post("/v1/executor/claim", json={"limit": limit})
    assert response.status_code == 200, response.text
    return response.json()["jobs"]


async def report(
    desk: Api, job: dict[str, Any], state: str = "done", **fields: Any
) -> httpx.Response:
    body = {"job_id": job["job_id"], "fence": job["fence"], "state": state, **fields}
    return await desk.client.post("/v1/executor/result", json=body)


async def test_a_job_is_claimed_worked_on_and_reported(desk: Api) -> None:
    job_id = await desk.look(export)
    (job,) = await claim(desk)
    assert (job["job_id"], job["input"], job["attempts"]) == (job_id, {"table": "orders"}, 1)
    assert job["lease_expires_at"].endswith("+00:00")
    beat = await desk.client.post(
        "/v1/executor/heartbeat", json={"jobs": [{"job_id": job_id, "fence": job["fence"]}]}
    )
    assert (beat.json()["held"], beat.json()["lost"]) == ([job_id], [])
    assert beat.json()["lease_seconds"] == conf.job_lease_seconds
    response = await report(desk, job, result={"rows": 3, "names": ["é"]})
    assert (response.status_code, response.json()["state"]) == (200, "done")
    document = (await desk.client.get(f"/v1/jobs/{job_id}")).json()
    assert document["result"] == {"rows": 3, "names": ["é"]}
    assert await claim(desk) == []


async def test_a_failure_says_why(desk: Api) -> None:
    await desk.look(export)
    (job,) = await claim(desk)
    response = await report(desk, job, "failed")
    assert (response.status_code, error_of(response)["field"]) == (422, "error")
    response = await report(desk, job, "failed", error="the disk is full")
    assert response.status_code == 200
    expected = {"code": "executor_failed", "message": "the disk is full"}
    assert response.json()["error"] == expected


async def test_the_same_report_again_is_fine_and_another_one_is_not(desk: Api) -> None:
    await desk.look(export)
    (job,) = await claim(desk)
    for _ in range(3):
        assert (await report(desk, job, result=1)).status_code == 200
    response = await report(desk, job, result=2)
    assert (response.status_code, error_of(response)["code"]) == (409, "result_conflict")
    response = await report(desk, job, "failed", error="x")
    assert (response.status_code, error_of(response)["code"]) == (409, "result_conflict")
    assert await desk.look(lambda: Job.objects.get().result_text) == "1"


async def test_a_stale_fence_writes_nothing(desk: Api) -> None:
    await desk.look(export)
    (job,) = await claim(desk)

    def lose() -> None:
        Job.objects.update(lease_expires_at=clock.db_now() - timedelta(seconds=1))
        STORE.reclaim(limit=10)

    await desk.look(lose)
    beat = await desk.client.post(
        "/v1/executor/heartbeat", json={"jobs": [{"job_id": job["job_id"], "fence": job["fence"]}]}
    )
    assert (beat.json()["held"], beat.json()["lost"]) == ([], [job["job_id"]])
    response = await report(desk, job, result=1)
    assert (response.status_code, error_of(response)["code"]) == (409, "lost_lease")
    (later,) = await claim(desk)
    assert later["fence"] > job["fence"]
    assert (await report(desk, job, result=1)).status_code == 409
    assert (await report(desk, later, result=2)).status_code == 200
    assert await desk.look(lambda: Job.objects.get().result_text) == "2"


async def test_a_cancelled_job_takes_no_result(desk: Api) -> None:
    job_id = await desk.look(export)
    (job,) = await claim(desk)
    assert (await desk.client.post(f"/v1/jobs/{job_id}/cancel")).status_code == 200
    assert (await report(desk, job, result=1)).status_code == 409
    assert await desk.look(lambda: Job.objects.get().state) == "cancelled"


async def test_only_executor_jobs_of_the_own_account_are_claimed(desk: Api) -> None:
    def rows() -> str:
        make_account("other")
        make_job("agents")
        export("foreign", account_id="other")
        return export("own")

    own = await desk.look(rows)
    assert [job["job_id"] for job in await claim(desk, limit=50)] == [own]


async def test_another_tokens_claim_cannot_be_reported(desk: Api) -> None:
    await desk.look(export)
    (job,) = await claim(desk)
    body = {"job_id": job["job_id"], "fence": job["fence"]}
    async with await caller(desk, "executor") as other:
        beat = await other.post("/v1/executor/heartbeat", json={"jobs": [body]})
        assert beat.json()["lost"] == [job["job_id"]]
        response = await other.post("/v1/executor/result", json={**body, "state": "done"})
    assert (response.status_code, error_of(response)["code"]) == (409, "lost_lease")
    assert await desk.look(lambda: Job.objects.get().state) == "running"


async def test_two_claims_never_get_the_same_job(desk: Api) -> None:
    await desk.look(lambda: [export(f"job-{number}") for number in range(5)])
    first, second = await claim(desk, limit=3), await claim(desk, limit=50)
    ids = [job["job_id"] for job in first + second]
    assert (len(first), len(second), len(set(ids))) == (3, 2, 5)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("claim", {"limit": 0}, "limit"),
        ("claim", {"limit": "1"}, "limit"),
        ("claim", {"target": "agent"}, "target"),
        ("heartbeat", {}, "jobs"),
        ("heartbeat", {"jobs": [{"job_id": "j", "fence": True}]}, "jobs.0.fence"),
        ("heartbeat", {"jobs": [{"job_id": "a b", "fence": 1}]}, "job_id"),
        ("result", {"job_id": "j", "fence": 1, "state": "refused"}, "state"),
        ("result", {"job_id": "j", "fence": 1, "state": "done", "error": "x"}, "error"),
        ("result", {"job_id": "j", "fence": 2**63, "state": "done"}, "fence"),
    ],
)
async def test_what_is_wrong_is_named(
    desk: Api, path: str, body: dict[str, Any], field: str
) -> None:
    response = await desk.client.post(f"/v1/executor/{path}", json=body)
    assert response.status_code in (400, 422)
    assert error_of(response)["field"] == field


@pytest.mark.parametrize("value", [b'"\\ud800"', b"NaN", b"1e999", b"[" * 2000 + b"]" * 2000])
async def test_a_result_that_is_no_strict_json_is_refused(desk: Api, value: bytes) -> None:
    raw = b'{"job_id":"j","fence":1,"state":"done","result":' + value + b"}"
    response = await desk.client.post("/v1/executor/result", content=raw)
    assert response.status_code in (400, 422)
    error_of(response)


async def test_a_result_beyond_the_bound_is_refused(desk: Api) -> None:
    await desk.look(export)
    (job,) = await claim(desk)
    response = await report(desk, job, result="x" * conf.job_result_bytes_max)
    assert (response.status_code, error_of(response)["field"]) == (422, "result")
    assert (await report(desk, job, result="x")).status_code == 200


async def test_every_number_reaches_the_executor_and_comes_back_as_it_was_written(
    desk: Api,
) -> None:
    numbers = '{"b":9007199254740993,"a":0.10,"long":0.1234567890123456789012345}'
    ordered = '{"a":0.10,"b":9007199254740993,"long":0.1234567890123456789012345}'
    head = {"Content-Type": "application/json"}
    for _ in range(2):
        made = await desk.client.post(
            "/v1/jobs",
            content=f'{{"request_id":"r-1","route":"exports","input":{numbers}}}',
            headers=head,
        )
    assert made.status_code == 200, "the repeat is known as one"
    claimed = await desk.client.post("/v1/executor/claim")
    assert f'"input": {ordered}' in claimed.text
    (job,) = claimed.json()["jobs"]
    report = (
        f'{{"job_id":"{job["job_id"]}","fence":{job["fence"]},"state":"done","result":{numbers}}}'
    )
    for _ in range(2):
        told = await desk.client.post("/v1/executor/result", content=report, headers=head)
        assert told.status_code == 200, told.text
    read = await desk.client.get(f"/v1/jobs/{job['job_id']}")
    assert f'"input": {ordered}, "result": {ordered}' in read.text
