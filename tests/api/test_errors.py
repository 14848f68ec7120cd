"""Errors of the door: one shape for 404, 405, 422, 500, 503, and the ids to find them by."""

from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError

from kernel.api import door
from kernel.errors import RetryTransaction
from kernel.models import Request
from tests.api.conftest import Api, error_of
from tests.support.commits import AWAY, VANISHED, at_commit
from tests.support.product import CHAT, look


async def test_an_unknown_address_is_a_404_in_the_same_shape(api: Api) -> None:
    for path in ("/v1/nothing", "/usage/v1/", "/v1/chat/completions/", "/usage/v1/requests/a/b/c"):
        response = await api.client.get(path)
        assert response.status_code == 404, path
        assert error_of(response)["code"] == "unknown_address"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/models", "GET"),
        ("GET", CHAT, "POST"),
        ("PUT", "/usage/v1/requests", "POST"),
        ("PATCH", "/usage/v1/account", "GET"),
    ],
)
async def test_a_wrong_method_is_a_405_that_names_the_right_one(
    api: Api, method: str, path: str, allowed: str
) -> None:
    response = await api.client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    error = error_of(response)
    assert error["code"] == "wrong_method"
    assert allowed in error["next_action"]


async def test_each_exchange_has_an_id_of_its_own(api: Api) -> None:
    ids = [(await api.client.get("/v1/nothing")).headers["x-request-id"] for _ in range(3)]
    assert len(set(ids)) == 3


async def test_a_defect_is_logged_with_its_id_and_shows_no_trace(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**kwargs: Any) -> None:
        raise ZeroDivisionError("secret detail of ours")

    with mock.patch.object(door, "list_services", broken):
        response = await api.client.get("/v1/models")
    assert response.status_code == 500
    error = error_of(response)
    assert error["code"] == "internal"
    assert "secret detail" not in response.text
    assert error["http_request_id"] in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("saved", ["text/plain\r\nSet-Cookie: a=1", "text/plain\nX-Evil: 1"])
async def test_a_line_break_in_a_header_value_is_a_500_and_splits_nothing(
    api: Api, saved: str
) -> None:
    assert (await api.chat("op-1")).status_code == 200
    await api.look(lambda: Request.objects.update(content_type=saved))
    for answer in (
        await api.chat("op-1"),
        await api.client.get("/usage/v1/requests/op-1/result"),
    ):
        assert answer.status_code == 500
        assert error_of(answer)["code"] == "internal"
        assert not {"set-cookie", "x-evil"} & set(answer.headers)
        assert "\n" not in answer.headers["content-type"]


async def test_a_defect_before_a_generation_is_not_to_be_repeated_blindly(api: Api) -> None:
    with mock.patch.object(door, "submission", side_effect=ZeroDivisionError):
        response = await api.chat()
    assert response.status_code == 500
    assert response.headers["x-should-retry"] == "false"
    assert "Read the operation" in error_of(response)["next_action"]


@pytest.mark.parametrize(
    "error", [OperationalError(2006, "gone"), OperationalError(1205, "wait"), RetryTransaction("x")]
)
async def test_a_database_that_does_not_answer_is_a_503_to_be_repeated(
    api: Api, error: Exception
) -> None:
    with mock.patch.object(door, "list_services", side_effect=error):
        response = await api.client.get("/v1/models")
    assert response.status_code == 503
    assert error_of(response)["retryable"] is True
    assert "gone" not in response.text


async def test_a_database_that_is_away_at_admission_leaves_nothing_and_the_repeat_works(
    api: Api,
) -> None:
    with at_commit("admit", AWAY, times=2):
        response = await api.chat()
    assert response.status_code == 503
    assert "same operation id" in error_of(response)["next_action"]
    assert await api.look(Request.objects.count) == 0
    assert (await api.chat()).status_code == 200
    assert api.provider.count() == 1


async def test_a_database_that_is_away_at_dispatch_sends_nothing(api: Api) -> None:
    with at_commit("dispatch", AWAY, times=2):
        response = await api.chat()
    assert (response.status_code, error_of(response)["retryable"]) == (503, True)
    repeat = await api.chat()
    assert error_of(repeat)["code"] == "not_dispatched"
    assert api.provider.count() == 0


async def test_a_commit_nobody_can_confirm_is_a_503_that_says_so(api: Api) -> None:
    with at_commit("*", VANISHED, times=20):
        response = await api.chat()
    assert response.status_code == 503
    assert error_of(response)["code"] == "commit_outcome_unknown"
    assert api.provider.count() == 0


async def test_a_closing_kernel_answers_503_and_takes_nothing(api: Api) -> None:
    api.kernel.background.stop_intake()
    response = await api.chat()
    assert response.status_code == 503
    error = error_of(response)
    assert (error["code"], error["retryable"]) == ("closing", True)
    assert await look(api.kernel, Request.objects.count) == 0
    assert (await api.client.get("/v1/models")).status_code == 200, "reads go on while it drains"


async def test_error_answers_are_never_html(api: Api) -> None:
    for path in ("/v1/%00", "/v1/" + "x" * 3000, "/usage/v1/requests/%2e%2e%2f"):
        response = await api.client.get(path)
        assert response.status_code in (400, 404), path
        assert response.headers["content-type"].startswith("application/json"), path
