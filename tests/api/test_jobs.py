"""Jobs at the door: submitted once, read by their own account, listed in pages, cancelled (D1)."""

from typing import Any

import httpx
import pytest

from kernel.conf import conf
from kernel.models import Approval, AuditRow, Job, Pause
from tests.api.agents import STORE, ask, caller, decide, make_job, make_route
from tests.api.conftest import Api, error_of
from tests.support.product import make_account

JOB = {"request_id": "order-1001", "route": "refunds", "input": {"prompt": "refund order A-1"}}


async def submit(desk: Api, **fields: Any) -> httpx.Response:
    return await desk.client.post("/v1/jobs", json={**JOB, **fields})


@pytest.fixture(autouse=True)
async def route(desk: Api) -> None:
    await desk.look(make_route)


async def test_a_job_is_queued_once_however_often_it_is_sent(desk: Api) -> None:
    first = await submit(desk)
    assert first.status_code == 201, first.text
    document = first.json()
    assert (document["state"], document["route"]) == ("queued", "refunds")
    assert document["input"] == JOB["input"]
    assert (document["result"], document["approvals"]) == (None, [])
    assert document["created_at"].endswith("+00:00")
    again = await submit(desk)
    assert (again.status_code, again.json()["job_id"]) == (200, document["job_id"])
    assert await desk.look(Job.objects.count) == 1
    row = await desk.look(lambda: AuditRow.objects.get(action="job.submit"))
    assert (row.actor_kind, row.request_id) == ("token", first.headers["x-request-id"])


async def test_other_content_under_the_same_request_id_is_a_conflict(desk: Api) -> None:
    job_id = (await submit(desk)).json()["job_id"]
    response = await submit(desk, input={"prompt": "something else"})
    assert response.status_code == 409
    error = error_of(response)
    assert (error["code"], error["job_id"]) == ("job_conflict", job_id)


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"priority": 1}, 422, "priority"),
        ({"input": "text"}, 422, "input"),
        ({"input": {}}, 422, "input"),
        ({"input": {"prompt": 1}}, 422, "input.prompt"),
        ({"request_id": "a b"}, 400, "request_id"),
        ({"request_id": 7}, 422, "request_id"),
        ({"route": None}, 422, "route"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_queued(
    desk: Api, change: dict[str, Any], status: int, field: str
) -> None:
    response = await submit(desk, **change)
    assert response.status_code == status
    assert error_of(response)["field"] == field
    assert await desk.look(Job.objects.count) == 0


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"request_id":"a","request_id":"b"}'])
async def test_a_body_that_is_no_job_is_refused(desk: Api, raw: bytes) -> None:
    response = await desk.client.post("/v1/jobs", content=raw)
    assert response.status_code in (400, 422)
    error_of(response)


async def test_an_unknown_route_is_not_found(desk: Api) -> None:
    response = await submit(desk, route="nowhere")
    assert response.status_code == 404
    error_of(response)


async def test_an_input_beyond_the_bound_is_refused(desk: Api) -> None:
    response = await submit(desk, input={"prompt": "x" * conf.job_input_bytes_max})
    assert response.status_code == 413
    error_of(response)


async def test_a_waiting_job_names_its_questions(desk: Api) -> None:
    approval = (await desk.look(ask))[0]
    document = (await desk.client.get(f"/v1/jobs/{approval.job_id}")).json()
    assert (document["state"], document["waiting_reason"]) == ("waiting", "approval")
    assert [one["approval_id"] for one in document["approvals"]] == [approval.id]
    assert "/v1/approvals" in document["next_action"]


async def test_a_finished_job_shows_its_result(desk: Api) -> None:
    def finish() -> str:
        make_job()
        (job,) = STORE.claim(owner="w", target="agent", limit=1)
        STORE.finish(fence=job.fence, state="done", result_text='{"text":"refunded"}')
        return job.id

    job_id = await desk.look(finish)
    document = (await desk.client.get(f"/v1/jobs/{job_id}")).json()
    assert document["result"] == {"text": "refunded"}
    assert document["finished_at"].endswith("+00:00")


async def test_another_accounts_job_does_not_exist(desk: Api) -> None:
    def rows() -> str:
        make_account("other")
        return make_job(account_id="other").id

    job_id = await desk.look(rows)
    for response in (
        await desk.client.get(f"/v1/jobs/{job_id}"),
        await desk.client.post(f"/v1/jobs/{job_id}/cancel"),
        await desk.client.get("/v1/jobs/job_none"),
    ):
        assert response.status_code == 404
        assert error_of(response)["code"] == "not_found"
    assert (await desk.client.get("/v1/jobs")).json() == {"jobs": [], "next_after": None}
    assert await desk.look(lambda: Job.objects.get().state) == "queued"


async def test_a_list_walks_every_job_once_without_bodies(desk: Api) -> None:
    made = await desk.look(lambda: {make_job(f"job-{number}").id for number in range(7)})
    found: list[str] = []
    after = ""
    while True:
        page = await desk.client.get("/v1/jobs", params={"limit": 3, "after": after})
        assert "refund it" not in page.text
        found += [job["job_id"] for job in page.json()["jobs"]]
        after = page.json()["next_after"]
        if after is None:
            break
    assert len(found) == 7
    assert set(found) == made


async def test_a_list_is_narrowed_by_state_and_route(desk: Api) -> None:
    def rows() -> tuple[str, str]:
        make_route("others")
        waiting = ask("waits")[0].job_id
        return waiting, make_job("queues", route_id="others").id

    waiting, queued = await desk.look(rows)
    for query, ids in (
        ("state=waiting", [waiting]),
        ("state=queued", [queued]),
        ("route=others", [queued]),
        ("route=others&state=waiting", []),
        ("", [queued, waiting]),
    ):
        response = await desk.client.get(f"/v1/jobs?{query}")
        assert [job["job_id"] for job in response.json()["jobs"]] == ids, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=open", "state"),
        ("route=a%20b", "route"),
        ("limit=0", "limit"),
        ("after=later", "after"),
        ("status=queued", "status"),
    ],
)
async def test_a_wrong_filter_is_an_error_and_never_everything(
    desk: Api, query: str, field: str
) -> None:
    response = await desk.client.get(f"/v1/jobs?{query}")
    assert response.status_code in (400, 422)
    assert error_of(response)["field"].endswith(field)


async def test_a_cancelled_job_stays_so_and_its_questions_end_with_it(desk: Api) -> None:
    approval = (await desk.look(ask))[0]
    address = f"/v1/jobs/{approval.job_id}/cancel"
    first = await desk.client.post(address, json={"reason": "the customer called"})
    assert (first.status_code, first.json()["state"]) == (200, "cancelled")
    assert first.json()["approvals"][0]["state"] == "cancelled"
    assert (await desk.client.post(address)).status_code == 200
    response = await decide(desk, approval.id)
    assert (response.status_code, error_of(response)["code"]) == (409, "cancelled")
    states = await desk.look(lambda: (Job.objects.get().state, Approval.objects.get().state))
    assert states == ("cancelled", "cancelled")
    row = await desk.look(lambda: AuditRow.objects.get(action="job.cancel"))
    assert row.reason == "the customer called"


async def test_a_job_that_has_ended_cannot_be_cancelled(desk: Api) -> None:
    def finish() -> str:
        make_job()
        (job,) = STORE.claim(owner="w", target="agent", limit=1)
        STORE.finish(fence=job.fence, state="done", result_text="ok")
        return job.id

    job_id = await desk.look(finish)
    response = await desk.client.post(f"/v1/jobs/{job_id}/cancel")
    assert (response.status_code, error_of(response)["code"]) == (409, "job_finished")


async def test_a_paused_route_takes_jobs_and_reads_stay(desk: Api) -> None:
    def pause() -> None:
        now = Job.objects.count() or 1
        assert now
        Pause(scope="global", reason="stocktaking", paused_by="user:olga", paused_at=_now()).save(
            force_insert=True
        )

    await desk.look(pause)
    job_id = (await submit(desk)).json()["job_id"]
    document = (await desk.client.get(f"/v1/jobs/{job_id}")).json()
    assert document["state"] == "queued"
    assert "global is paused: stocktaking" in document["next_action"]


def _now() -> Any:
    from kernel import clock

    return clock.db_now()


async def test_reading_and_writing_are_two_scopes(desk: Api) -> None:
    job_id = (await submit(desk)).json()["job_id"]
    async with await caller(desk, "jobs:read") as reader:
        assert (await reader.get(f"/v1/jobs/{job_id}")).status_code == 200
        assert (await reader.post("/v1/jobs", json=JOB)).status_code == 403
        assert (await reader.post(f"/v1/jobs/{job_id}/cancel")).status_code == 403
    async with await caller(desk, "jobs:write") as writer:
        assert (await writer.post("/v1/jobs", json=JOB)).status_code == 200
        assert (await writer.get("/v1/jobs")).status_code == 403
