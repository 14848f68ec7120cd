"""Routes: who runs a kind of job, with which tools, within which limits (D2, D4)."""

import json
from typing import Any

import pytest

from kernel import jobs
from kernel.errors import Conflict, InvalidId, InvalidInput, LostRace, NotFound
from kernel.models import AuditRow, Route
from tests.jobs.rows import make_route, make_tool
from tests.support.product import OPERATOR, make_service


@pytest.fixture(autouse=True)
def service(kernel_db: None) -> None:
    make_service()


def test_a_route_has_careful_limits_by_default_and_is_audited() -> None:
    make_tool("find")
    make_tool("refund")
    row = make_route(tools=["refund", "find"], instructions="Be brief.\nBe kind.")
    assert jobs.get_route(route_id="refunds") == row
    assert jobs.tools_of(row) == ["refund", "find"]
    assert (row.target, row.steps_max, row.run_seconds_max) == ("agent", 20, 900)
    assert (row.tokens_max, row.cost_nano_max, row.approval_seconds) == (None, None, 86_400)
    act = AuditRow.objects.get(subject="route:refunds")
    assert (act.action, act.actor_id) == ("route.create", "olga")
    assert json.loads(act.after_text)["tools"] == ["refund", "find"]


def test_an_executor_route_needs_no_service() -> None:
    row = make_route(target="executor", service_id="")
    assert (row.target, row.service_id) == ("executor", "")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"target": "human"}, "target"),
        ({"service_id": ""}, "service_id"),
        ({"service_id": "ghost"}, "service_id"),
        ({"service_id": "ä"}, "service_id"),
        ({"service_id": None}, "service_id"),
        ({"target": "executor"}, "service_id"),
        ({"tools": ["ghost"]}, "tools"),
        ({"tools": ["known", "known"]}, "tools"),
        ({"tools": "known"}, "tools"),
        ({"tools": [None]}, "tools"),
        ({"tools": [["known"]]}, "tools"),
        ({"instructions": "x" * 64_001}, "instructions"),
        ({"instructions": "x\x07"}, "instructions"),
        ({"steps_max": 0}, "steps_max"),
        ({"steps_max": None}, "steps_max"),
        ({"steps_max": True}, "steps_max"),
        ({"tokens_max": 0}, "tokens_max"),
        ({"cost_nano_max": 2**63}, "cost_nano_max"),
        ({"run_seconds_max": "900"}, "run_seconds_max"),
        ({"approval_seconds": 0}, "approval_seconds"),
        ({"active": "no"}, "active"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_saved(fields: dict[str, Any], field: str) -> None:
    make_tool("known")
    with pytest.raises(InvalidInput) as refusal:
        make_route(**fields)
    assert refusal.value.field == field
    assert not Route.objects.exists()


def test_an_id_is_checked_and_taken_once() -> None:
    with pytest.raises(InvalidId):
        make_route("ä")
    make_route()
    with pytest.raises(Conflict):
        make_route()


def test_a_change_needs_the_version_that_was_seen() -> None:
    make_route()
    row = jobs.change_route(
        route_id="refunds", actor=OPERATOR, seen_version=1, reason="calm", steps_max=3
    )
    assert (row.version, row.steps_max) == (2, 3)
    with pytest.raises(LostRace):
        jobs.change_route(route_id="refunds", actor=OPERATOR, seen_version=1, steps_max=4)
    with pytest.raises(InvalidInput):
        jobs.change_route(route_id="refunds", actor=OPERATOR, seen_version=2, steps_max=0)
    assert jobs.get_route(route_id="refunds").steps_max == 3
    act = AuditRow.objects.get(action="route.change")
    assert json.loads(act.before_text)["steps_max"] == 20
    assert act.reason == "calm"


@pytest.mark.parametrize("route_id", ["ghost", "ä", ""])
def test_an_unknown_route_is_not_found(route_id: str) -> None:
    with pytest.raises(NotFound) as refusal:
        jobs.get_route(route_id=route_id)
    assert refusal.value.error_code == "route_not_found"
    with pytest.raises(NotFound):
        jobs.change_route(route_id="ghost", actor=OPERATOR, seen_version=1)


def test_routes_are_listed_by_id() -> None:
    make_route("b")
    make_route("a")
    assert [row.id for row in jobs.list_routes()] == ["a", "b"]
