"""Messages and dead letters at the door: sent once, read by their account, replayed once (F)."""

import asyncio
from typing import Any

import httpx
import pytest

from kernel import schema
from kernel.delivery import dead_letters
from kernel.delivery.destinations import create_destination
from kernel.models import AuditRow, DeadLetter, Job, Notification
from kernel.schema import require as real_require
from tests.api.agents import STORE, caller
from tests.api.conftest import Api, error_of
from tests.delivery.letters import ANN, child, dead, dead_child
from tests.support.commits import LANDED, VANISHED, at_commit
from tests.support.product import make_account

SEND = "/v1/notifications"


def make_destination(account_id: str = "acme", name: str = "dst_shop", **fields: Any) -> None:
    values = {
        "channel": "executor",
        "address": "shop",
        "events": ["message"],
        "actor": ANN,
        **fields,
    }
    create_destination(account_id=account_id, destination_id=name, **values)


@pytest.fixture(autouse=True)
async def place(desk: Api) -> None:
    await desk.look(make_destination)


async def send(desk: Api, message_id: str = "msg-1", **fields: Any) -> httpx.Response:
    body = {"message_id": message_id, "destination": "dst_shop", "data": {"text": "hi é"}, **fields}
    return await desk.client.post(SEND, json=body)


async def replay(desk: Api, letter: DeadLetter, **body: Any) -> httpx.Response:
    return await desk.client.post(f"/v1/dead-letters/{letter.id}/replay", json=body or None)


# --- messages -------------------------------------------------------------------------------------


async def test_a_message_is_sent_once_per_id(desk: Api) -> None:
    first, again = await send(desk), await send(desk)
    assert (first.status_code, again.status_code) == (201, 200)
    document = first.json()
    assert again.json() == document
    assert (document["message_id"], document["destination"]) == ("msg-1", "dst_shop")
    assert (document["event"], document["state"]) == ("message", "with_executor")
    assert document["content"]["data"] == {"text": "hi é"}
    assert await desk.look(Notification.objects.count) == 1
    read = await desk.client.get(f"{SEND}/{document['notification_id']}")
    assert read.json() == document
    acts = await desk.look(lambda: list(AuditRow.objects.filter(action="notification.send")))
    assert [act.actor_kind for act in acts] == ["token"]


async def test_one_message_many_times_at_once_is_one_notification(desk: Api) -> None:
    answers = await asyncio.gather(*[send(desk) for _ in range(8)])
    assert sorted(one.status_code for one in answers) == [200] * 7 + [201]
    assert await desk.look(Notification.objects.count) == 1
    assert await desk.look(Job.objects.count) == 1


@pytest.mark.parametrize("what", [LANDED, VANISHED])
async def test_a_lost_acknowledgement_of_a_message_is_answered_by_the_repeat(
    desk: Api, what: str
) -> None:
    with at_commit("_send", what) as fault:
        assert (await send(desk)).status_code == 503
    assert fault.fired == 1
    assert (await send(desk)).status_code == (200 if what == LANDED else 201)
    assert await desk.look(Notification.objects.count) == 1


@pytest.mark.parametrize(
    "other", [{"data": {"text": "bye"}}, {"data": {"text": 1}}, {"destination": "dst_2"}]
)
async def test_another_message_under_the_same_id_is_refused(
    desk: Api, other: dict[str, Any]
) -> None:
    await desk.look(lambda: make_destination(name="dst_2"))
    await send(desk)
    response = await send(desk, **other)
    assert (response.status_code, error_of(response)["code"]) == (409, "message_conflict")
    assert await desk.look(Notification.objects.count) == 1


async def test_a_destination_of_another_account_is_not_found(desk: Api) -> None:
    def rows() -> None:
        make_account("globex")
        make_destination("globex", "dst_theirs")

    await desk.look(rows)
    for name in ("dst_theirs", "dst_none"):
        response = await send(desk, destination=name)
        assert (response.status_code, error_of(response)["code"]) == (404, "not_found")
    assert await desk.look(Notification.objects.count) == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"message_id":"m 1","destination":"dst_shop","data":{}}', 400),
        ('{"message_id":"m1","destination":"dst_shop","data":[]}', 422),
        ('{"message_id":"m1","destination":"dst_shop","data":{"a":NaN}}', 422),
        ('{"message_id":"m1","destination":"dst_shop","data":{"a":"\\ud83d"}}', 422),
        ('{"message_id":"m1","destination":"dst_shop","data":{},"x":1}', 422),
        ('{"message_id":"m1","destination":"dst_shop","data":{"a":"%s"}}' % ("x" * 300_000), 422),
    ],
)
async def test_what_is_no_message_is_refused_at_the_door(desk: Api, body: str, status: int) -> None:
    response = await desk.client.post(
        SEND, content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == status, response.text
    assert await desk.look(Notification.objects.count) == 0


async def test_notifications_are_listed_for_their_account_only(desk: Api) -> None:
    for number in range(3):
        await send(desk, f"msg-{number}")
    await desk.look(lambda: make_account("globex"))
    seen, after = [], ""
    while True:
        page = (await desk.client.get(SEND, params={"limit": 2, "after": after})).json()
        seen += [one["message_id"] for one in page["notifications"]]
        after = page["next_after"]
        if not after:
            break
    assert seen == ["msg-2", "msg-1", "msg-0"]
    name = (await send(desk)).json()["notification_id"]
    async with await caller(desk, "deliveries:read", account_id="globex") as other:
        assert (await other.get(SEND)).json()["notifications"] == []
        assert (await other.get(f"{SEND}/{name}")).status_code == 404
    assert (await desk.client.get(SEND, params={"state": "lost"})).status_code == 422
    assert (await desk.client.get(SEND, params={"channel": "x"})).status_code == 422


# --- an executor's report ends its notification -------------------------------------------------


async def report(desk: Api, **fields: Any) -> httpx.Response:
    (job,) = (await desk.client.post("/v1/executor/claim", json={"limit": 1})).json()["jobs"]
    body = {"job_id": job["job_id"], "fence": job["fence"], **fields}
    return await desk.client.post("/v1/executor/result", json=body)


async def test_a_child_that_is_done_delivers_and_one_that_failed_is_a_dead_letter(
    desk: Api,
) -> None:
    name = (await send(desk)).json()["notification_id"]
    assert (await report(desk, state="done")).status_code == 200
    assert (await desk.client.get(f"{SEND}/{name}")).json()["state"] == "delivered"
    name = (await send(desk, "msg-2")).json()["notification_id"]
    assert (await report(desk, state="failed", error="no such chat")).status_code == 200
    assert (await desk.client.get(f"{SEND}/{name}")).json()["state"] == "dead"
    (letter,) = (await desk.client.get("/v1/dead-letters")).json()["dead_letters"]
    assert (letter["notification_id"], letter["state"]) == (name, "open")
    assert "no such chat" in letter["error"]
    whole = (await desk.client.get(f"/v1/dead-letters/{letter['dead_letter_id']}")).json()
    assert whole["kind"] == "executor" and whole["original_child_id"].startswith("job_")
    assert whole["content"]["data"] == {"text": "hi é"} and whole["replay"] is None


# --- dead letters -------------------------------------------------------------------------------


async def test_a_dead_letter_is_replayed_once_and_tells_its_replay(desk: Api) -> None:
    letter = await desk.look(dead)
    response = await replay(desk, letter, reason="receiver is back")
    assert response.status_code == 200
    first = response.json()
    assert (first["state"], first["admitted"]) == ("queued", True)
    assert first["replay_identity"] == f"replay.{letter.id}"
    again = (await replay(desk, letter)).json()
    assert again["notification_id"] == first["notification_id"]
    assert again["state"] in ("already_queued", "still_in_flight")
    whole = (await desk.client.get(f"/v1/dead-letters/{letter.id}")).json()
    assert whole["state"] == "resolved"
    assert whole["replay"]["notification_id"] == first["notification_id"]
    act = await desk.look(lambda: AuditRow.objects.get(action="dead_letter.replay"))
    assert (act.actor_kind, act.reason) == ("token", "receiver is back")


async def test_replays_at_once_get_the_one_admission(desk: Api) -> None:
    letter = await desk.look(dead)
    answers = await asyncio.gather(*[replay(desk, letter) for _ in range(8)])
    assert [one.status_code for one in answers] == [200] * 8
    states = [one.json()["state"] for one in answers]
    assert states.count("queued") == 1
    assert len({one.json()["notification_id"] for one in answers}) == 1


@pytest.mark.parametrize("verb", ["_admit_natives", "_resolve"])
async def test_a_lost_acknowledgement_is_503_and_the_repeat_is_200(desk: Api, verb: str) -> None:
    letter = await desk.look(dead)
    with at_commit(verb, LANDED):
        response = await replay(desk, letter)
    assert (response.status_code, error_of(response)["code"]) == (503, "commit_outcome_unknown")
    assert (await replay(desk, letter)).json()["state"] == "already_queued"
    assert await desk.look(lambda: Notification.objects.filter(state="queued").count()) == 1


async def test_refusals_say_why(desk: Api) -> None:
    def rows() -> tuple[DeadLetter, DeadLetter]:
        archived, forged = dead(), dead_child()
        dead_letters.archive(dead_letter_id=archived.id, actor=ANN, reason="gone")
        Job.objects.filter(target="executor").update(parent_id="job_other")
        return archived, forged

    archived, forged = await desk.look(rows)
    response = await replay(desk, archived)
    assert (response.status_code, error_of(response)["code"]) == (409, "archived")
    response = await replay(desk, forged)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (409, "binding_mismatch")
    assert error["binding"] == "parent_id"
    assert (await desk.client.post("/v1/dead-letters/dlq_none/replay")).status_code == 404


async def test_another_account_neither_reads_nor_replays(desk: Api) -> None:
    letter = await desk.look(dead)
    await desk.look(lambda: make_account("globex"))
    scopes = ("deliveries:read", "deliveries:write")
    for scope in scopes:
        async with await caller(desk, scope, account_id="globex") as other:
            if scope == "deliveries:read":
                assert (await other.get("/v1/dead-letters")).json()["dead_letters"] == []
                assert (await other.get(f"/v1/dead-letters/{letter.id}")).status_code == 404
            else:
                answer = await other.post(f"/v1/dead-letters/{letter.id}/replay")
                assert answer.status_code == 404
    assert await desk.look(lambda: DeadLetter.objects.get(id=letter.id).state) == "open"


async def test_a_store_without_the_capability_is_503_and_names_it(desk: Api) -> None:
    letter = await desk.look(dead_child)
    bare = type(STORE)()
    bare.capabilities = frozenset()
    desk.kernel.store = bare
    response = await replay(desk, letter)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (503, "capability_missing")


async def test_without_0067_dead_letters_are_503_and_a_failure_waits(
    desk: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter, (row, _) = await desk.look(dead), await desk.look(child)

    def require(name: str) -> None:
        if name == schema.REPLAY:
            raise schema.Unavailable("missing 0067", code="migration_missing", migration=name)
        real_require(name)

    monkeypatch.setattr(schema, "require", require)
    for method, path in (
        ("GET", "/v1/dead-letters"),
        ("GET", f"/v1/dead-letters/{letter.id}"),
        ("POST", f"/v1/dead-letters/{letter.id}/replay"),
    ):
        response = await desk.client.request(method, path)
        error = error_of(response)
        assert (response.status_code, error["migration"]) == (503, schema.REPLAY)
    assert (await report(desk, state="failed", error="down")).status_code == 200
    found = (await desk.client.get(f"{SEND}/{row.id}")).json()
    assert found["state"] == "with_executor" and "0067" in found["error"]
    assert await desk.look(DeadLetter.objects.count) == 1
