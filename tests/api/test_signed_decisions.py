"""Decisions by signed message: whose key counts, what garbage answers, what a retry answers."""

import base64

import pytest

from kernel.models import Approval, AuditRow, SigningKey, WebhookReceipt
from tests.api.agents import (
    OTHER_SECRET,
    SECRET,
    ask,
    decide_signed,
    decision_body,
    make_route,
    signed,
    signing_accounts,
    snapshot,
)
from tests.api.conftest import Api, error_of
from tests.support.product import client_of


@pytest.fixture
async def office(desk: Api):
    """A desk whose accounts sign."""
    context = signing_accounts()
    await desk.look(context.__enter__)
    yield desk
    await desk.look(lambda: context.__exit__(None, None, None))


async def open_one(office: Api, request_id: str = "job-1", **fields: object) -> str:
    def rows() -> str:
        return ask(request_id, **fields)[0].id

    return await office.look(rows)


async def test_a_signed_message_decides_without_a_token(office: Api) -> None:
    approval_id = await open_one(office)
    body = decision_body(reason="the shop says so", approval_id=approval_id)
    response = await decide_signed(office, approval_id, body, signed(body))
    assert response.status_code == 200, response.text
    key = await office.look(lambda: SigningKey.objects.get(account_id="acme"))
    document = response.json()
    assert (document["decided_by_kind"], document["decided_by"]) == ("signature", key.id)
    row = await office.look(lambda: AuditRow.objects.get(action="approval.decided"))
    assert (row.actor_kind, row.actor_id) == ("signature", key.id)
    assert SECRET not in response.text


async def test_a_retry_that_is_signed_anew_gets_the_same_decision(office: Api) -> None:
    approval_id = await open_one(office)
    body = decision_body()
    first = await decide_signed(office, approval_id, body, signed(body, message_id="msg_1"))
    later = signed(body, message_id="msg_1", seconds=20)
    again = await decide_signed(office, approval_id, body, later)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["replayed"] is True
    assert again.json()["decided_at"] == first.json()["decided_at"]
    assert await office.look(WebhookReceipt.objects.count) == 1


async def test_a_message_id_stands_for_one_message(office: Api) -> None:
    approval_id, other_id = await open_one(office), await open_one(office, "job-2")
    body = decision_body()
    await decide_signed(office, approval_id, body, signed(body, message_id="msg_1"))
    before = await office.look(snapshot)
    other = decision_body(decision_id="d-2")
    for target, sent in ((approval_id, other), (other_id, body)):
        headers = signed(sent, message_id="msg_1")
        response = await decide_signed(office, target, sent, headers)
        assert (response.status_code, error_of(response)["code"]) == (401, "unauthorized")
    assert await office.look(snapshot) == before


async def test_a_message_about_another_approval_is_refused(office: Api) -> None:
    approval_id, other_id = await open_one(office), await open_one(office, "job-2")
    body = decision_body(approval_id=approval_id)
    response = await decide_signed(office, other_id, body, signed(body))
    assert (response.status_code, error_of(response)["field"]) == (422, "approval_id")
    states = await office.look(lambda: set(Approval.objects.values_list("state", flat=True)))
    assert states == {"open"}


async def test_another_accounts_key_decides_nothing(office: Api) -> None:
    approval_id = await open_one(office)
    before = await office.look(snapshot)
    body = decision_body()
    headers = signed(body, secrets=(OTHER_SECRET,))
    response = await decide_signed(office, approval_id, body, headers)
    assert (response.status_code, error_of(response)["code"]) == (401, "unauthorized")
    assert await office.look(snapshot) == before
    assert await office.look(WebhookReceipt.objects.count) == 0


async def test_a_stranger_cannot_tell_which_approvals_exist(office: Api) -> None:
    approval_id = await open_one(office)
    body = decision_body()
    headers = signed(body, secrets=(OTHER_SECRET,))
    texts = set()
    for name in (approval_id, "apr_none", "%C3%A9"):
        response = await decide_signed(office, name, body, headers)
        error = {**error_of(response), "http_request_id": ""}
        texts.add((response.status_code, str(error)))
    assert len(texts) == 1
    assert "401" in str(texts)


async def test_while_keys_rotate_both_sign_and_a_revoked_one_does_not(
    office: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel.access import add_signing_key, revoke_signing_key
    from tests.support.product import OPERATOR

    new = "whsec_" + base64.b64encode(b"the next secret of acme!").decode()
    monkeypatch.setenv("ACME_SIGNING_NEXT", new)
    old = await office.look(lambda: SigningKey.objects.get(account_id="acme"))
    await office.look(
        lambda: add_signing_key(account_id="acme", secret_env="ACME_SIGNING_NEXT", actor=OPERATOR)
    )
    for number, secrets in enumerate(((SECRET,), (new,), (new, SECRET))):
        approval_id = await open_one(office, f"job-{number}")
        body = decision_body(decision_id=f"d-{number}")
        headers = signed(body, secrets=secrets)
        assert (await decide_signed(office, approval_id, body, headers)).status_code == 200
    await office.look(lambda: revoke_signing_key(key_id=old.id, actor=OPERATOR))
    approval_id = await open_one(office, "job-9")
    body = decision_body(decision_id="d-9")
    response = await decide_signed(office, approval_id, body, signed(body))
    assert response.status_code == 401
    response = await decide_signed(office, approval_id, body, signed(body, secrets=(new,)))
    assert response.status_code == 200


@pytest.mark.parametrize("seconds", [-3600, -301, 360, 3600])
async def test_both_sides_of_the_window_are_bounded(office: Api, seconds: int) -> None:
    approval_id = await open_one(office)
    body = decision_body()
    response = await decide_signed(office, approval_id, body, signed(body, seconds=seconds))
    assert response.status_code == 401
    assert await office.look(lambda: Approval.objects.get().state) == "open"


GARBAGE = [
    ("webhook-id", b"a.b"),
    ("webhook-id", b"\xc3\xa9"),
    ("webhook-id", b""),
    ("webhook-timestamp", b"1795951621.9"),
    ("webhook-timestamp", b"1_795951621"),
    ("webhook-timestamp", b"1795951621000"),
    ("webhook-timestamp", b"nan"),
    ("webhook-timestamp", b"1e400"),
    ("webhook-timestamp", b"-1"),
    ("webhook-timestamp", b"\xff\xfe"),
    ("webhook-signature", b"x"),
    ("webhook-signature", b"v1,a,b"),
    ("webhook-signature", b"sha256=\xc3\xa9"),
    ("webhook-signature", b"sha256="),
    ("webhook-signature", b"v1,%%%%"),
    ("webhook-signature", b"v1,AAAA  v1,AAAA"),
    ("webhook-signature", b"V1,AAAA"),
    ("webhook-signature", b""),
]


@pytest.mark.parametrize(("name", "value"), GARBAGE)
async def test_garbage_in_a_header_is_401_and_never_500(
    office: Api, name: str, value: bytes
) -> None:
    approval_id = await open_one(office)
    body = decision_body()
    headers = {**signed(body), name: value.decode("latin-1")}
    async with client_of(office.kernel) as nobody:
        response = await nobody.post(
            f"/v1/approvals/{approval_id}/decision",
            content=body,
            headers=[(key, text.encode("latin-1")) for key, text in headers.items()],
        )
    assert (response.status_code, error_of(response)["code"]) == (401, "unauthorized")
    assert await office.look(lambda: Approval.objects.get().state) == "open"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
async def test_a_header_that_is_missing_or_came_twice_is_401(office: Api, name: str) -> None:
    approval_id = await open_one(office)
    body = decision_body()
    good = signed(body)
    address = f"/v1/approvals/{approval_id}/decision"
    async with client_of(office.kernel) as nobody:
        pairs = list(good.items())
        twice = await nobody.post(address, content=body, headers=[*pairs, (name, good[name])])
        pairs.remove((name, good[name]))
        missing = await nobody.post(address, content=body, headers=pairs)
    assert (twice.status_code, missing.status_code) == (401, 401)


async def test_a_token_does_not_mend_a_wrong_signature(office: Api) -> None:
    approval_id = await open_one(office)
    body = decision_body()
    headers = {**signed(body), "webhook-signature": "v1,AAAA"}
    response = await office.client.post(
        f"/v1/approvals/{approval_id}/decision", content=body, headers=headers
    )
    assert response.status_code == 401


@pytest.mark.parametrize("body", [b"\xff\xfe", b"", b"{", b"[]", b'{"decision":NaN}', b"null"])
async def test_a_signed_body_that_is_no_decision_decides_nothing(office: Api, body: bytes) -> None:
    approval_id = await open_one(office)
    response = await decide_signed(office, approval_id, body, signed(body))
    assert response.status_code in (400, 422)
    error_of(response)
    unsigned = await decide_signed(office, approval_id, body, signed(b"other"))
    assert unsigned.status_code == 401
    assert await office.look(lambda: Approval.objects.get().state) == "open"


async def test_another_body_than_the_signed_one_is_401(office: Api) -> None:
    approval_id = await open_one(office)
    headers = signed(decision_body("denied"))
    response = await decide_signed(office, approval_id, decision_body("approved"), headers)
    assert response.status_code == 401
    assert await office.look(lambda: Approval.objects.get().state) == "open"


async def test_a_signed_look_never_decides(office: Api) -> None:
    approval_id = await open_one(office)
    headers = signed(b"")
    async with client_of(office.kernel) as nobody:
        for method in ("GET", "HEAD"):
            address = f"/v1/approvals/{approval_id}/decision"
            response = await nobody.request(method, address, headers=headers)
            assert response.status_code == 405
            # A signature opens no other address.
            address = f"/v1/approvals/{approval_id}"
            assert (await nobody.request(method, address, headers=headers)).status_code in (
                401,
                405,
            )
    assert await office.look(lambda: Approval.objects.get().state) == "open"


async def test_signed_decisions_on_a_denied_question_say_who_won(office: Api) -> None:
    await office.look(make_route)
    approval_id = await open_one(office)
    body = decision_body("denied", "d-1", reason="no")
    await decide_signed(office, approval_id, body, signed(body))
    other = decision_body("approved", "d-2")
    response = await decide_signed(office, approval_id, other, signed(other))
    error = error_of(response)
    assert (response.status_code, error["code"]) == (409, "already_decided")
    assert (error["by_kind"], error["decision"], error["reason"]) == ("signature", "denied", "no")


async def test_a_body_that_says_two_things_decides_nothing(office: Api) -> None:
    approval_id = await open_one(office)
    before = await office.look(lambda: Approval.objects.get(id=approval_id).state)
    body = b'{"decision":"denied","decision":"approved","decision_id":"d-1"}'
    response = await decide_signed(office, approval_id, body, signed(body))
    assert (response.status_code, error_of(response)["field"]) == (422, "decision")
    assert await office.look(lambda: Approval.objects.get(id=approval_id).state) == before
