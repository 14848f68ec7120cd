"""An agent calls tools on routes that jobs of its account could run on, and no others (C9, D4)."""

import json

import pytest

from kernel.models import Invocation, Route, Service, ToolCall
from tests.api.agents import create, make_route, make_tool, policy, resume
from tests.api.conftest import Api, error_of


def rows(**fields) -> None:
    make_tool(policy_text=policy("auto"))
    if fields:
        make_route("some", **{"tools_text": json.dumps(["refund"]), **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"target": "executor", "active": False},
        {"target": "executor", "tools_text": '["refunds", "Refund"]'},
        {"service_id": "ghost"},
    ],
)
async def test_by_default_nothing_may_be_called(desk: Api, fields: dict) -> None:
    await desk.look(lambda: rows(**fields))
    response = await create(desk)
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")
    assert await desk.look(Invocation.objects.count) == 0


async def test_a_route_of_another_account_lends_no_tool(desk: Api) -> None:
    await desk.look(lambda: rows(service_id="gpt"))
    await desk.look(lambda: Service.objects.filter(id="gpt").update(account_id="other"))
    assert (await create(desk)).status_code == 404
    await desk.look(lambda: Service.objects.filter(id="gpt").update(account_id="acme"))
    assert (await create(desk)).status_code == 201


async def test_a_tool_that_left_the_route_is_not_called_any_more(desk: Api) -> None:
    await desk.look(lambda: rows(target="executor"))
    assert (await create(desk)).status_code == 201
    await desk.look(lambda: Route.objects.update(tools_text="[]"))
    assert (await resume(desk)).status_code == 404
    assert (await desk.look(ToolCall.objects.get)).state == "proposed"
