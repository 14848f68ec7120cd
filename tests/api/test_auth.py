"""Tokens at the door: 401, 403, revocation; no secret is ever answered or logged."""

import logging

import pytest

from kernel.access import authenticate, issue_token, revoke_token
from kernel.conf import override
from kernel.models import Request
from tests.api.conftest import Api, error_of
from tests.support.product import CHAT, OPERATOR, chat_body, client_of, make_token

ADDRESSES = [
    ("GET", "/v1/models", "usage:read"),
    ("POST", CHAT, "usage:write"),
    ("POST", "/usage/v1/requests", "usage:write"),
    ("GET", "/usage/v1/requests/op-1", "usage:read"),
    ("GET", "/usage/v1/requests/op-1/result", "usage:read"),
    ("POST", "/usage/v1/requests/op-1/dispatch", "usage:write"),
    ("POST", "/usage/v1/requests/op-1/cancel", "usage:write"),
    ("GET", "/usage/v1/account", "usage:read"),
]
HEADERS = ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer nonsense", "bz_x", "Bearer \xe9"]


@pytest.mark.parametrize(("method", "path", "scope"), ADDRESSES)
async def test_every_address_needs_a_token(api: Api, method: str, path: str, scope: str) -> None:
    async with client_of(api.kernel) as nobody:
        response = await nobody.request(method, path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    error = error_of(response)
    assert error["code"] == "unauthorized"
    assert "Authorization: Bearer" in error["next_action"]


@pytest.mark.parametrize("value", HEADERS)
async def test_anything_but_a_valid_bearer_token_is_refused(api: Api, value: str) -> None:
    async with client_of(api.kernel) as nobody:
        response = await nobody.get(
            "/v1/models", headers={"Authorization": value.encode("latin-1")}
        )
    assert response.status_code == 401
    assert "nonsense" not in response.text


async def test_the_scheme_is_written_in_any_case(api: Api) -> None:
    async with client_of(api.kernel) as client:
        response = await client.get("/v1/models", headers={"Authorization": f"bearer {api.token}"})
    assert response.status_code == 200


@pytest.mark.parametrize(("method", "path", "scope"), ADDRESSES)
async def test_a_token_without_the_scope_is_forbidden(
    api: Api, method: str, path: str, scope: str
) -> None:
    other = "usage:read" if scope == "usage:write" else "usage:write"
    secret = await api.look(lambda: make_token(scopes=(other,)))
    body = b'{"operation_id": "op-1", "request": {}}' if method == "POST" else None
    async with client_of(api.kernel, secret) as client:
        response = await client.request(
            method, path, content=body, headers={"Idempotency-Key": "op-1"}
        )
    if path.endswith("/cancel"):
        assert response.status_code in (403, 422)
    else:
        assert response.status_code == 403
        error = error_of(response)
        assert (error["code"], error["scope"]) == ("forbidden", scope)
    assert await api.look(Request.objects.count) == 0


async def test_an_executors_token_cannot_touch_model_requests(api: Api) -> None:
    secret = await api.look(lambda: make_token(scopes=("executor",)))
    async with client_of(api.kernel, secret) as client:
        for path in ("/v1/models", "/usage/v1/account"):
            assert (await client.get(path)).status_code == 403


async def test_a_revoked_token_is_refused(api: Api) -> None:
    with override(token_cache_seconds=0):
        assert (await api.client.get("/v1/models")).status_code == 200
        await api.look(
            lambda: revoke_token(token_id=authenticate(secret=api.token).token_id, actor=OPERATOR)
        )
        assert (await api.client.get("/v1/models")).status_code == 401


async def test_a_revoked_token_works_no_longer_than_it_is_remembered(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0.0
    from time import monotonic

    monkeypatch.setattr("kernel.clock.monotonic", lambda: monotonic() + ahead)
    await api.client.get("/v1/models")
    await api.look(
        lambda: revoke_token(token_id=authenticate(secret=api.token).token_id, actor=OPERATOR)
    )
    ahead = 2.1
    assert (await api.client.get("/v1/models")).status_code == 401


async def test_the_token_decides_the_account_and_nothing_in_the_request_does(api: Api) -> None:
    response = await api.client.post(
        CHAT,
        content=chat_body(marker="op-1", account_id="other"),
        headers={"Idempotency-Key": "op-1", "X-Account-Id": "other"},
    )
    assert response.status_code == 200
    assert (await api.row()).account_id == "acme"


async def test_no_secret_is_ever_logged_or_answered(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    secret = await api.look(
        lambda: issue_token(
            account_id="acme", name="canary", scopes=["usage:read"], actor=OPERATOR
        )[1]
    )
    with caplog.at_level(logging.DEBUG):
        async with client_of(api.kernel, secret) as client:
            texts = [(await client.get(path)).text for path in ("/v1/models", "/usage/v1/account")]
            texts.append((await client.post(CHAT, content=b"{}")).text)
    assert secret not in "".join(texts) + caplog.text
