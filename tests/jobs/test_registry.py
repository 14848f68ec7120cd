"""Tools: every wrong field is named, every change is a version and audited (C1, D4)."""

import json
from typing import Any

import pytest

from kernel import jobs, schema
from kernel.errors import Conflict, InvalidInput, LostRace, NotFound, Unavailable
from kernel.models import AuditRow, Tool
from tests.jobs.rows import PARAMETERS, POLICY, make_tool
from tests.support.product import OPERATOR
from tests.usage.flow import at_once

pytestmark = pytest.mark.usefixtures("kernel_db")


def acts() -> list[tuple[str, str]]:
    rows = AuditRow.objects.filter(subject="tool:refund").order_by("sequence")
    return list(rows.values_list("action", "actor_id"))


def test_a_tool_is_kept_in_canonical_text_and_audited() -> None:
    row = make_tool()
    assert jobs.get_tool(tool_id="refund") == row
    assert json.loads(row.parameters_text) == PARAMETERS
    assert json.loads(row.policy_text) == POLICY
    assert " " not in row.policy_text
    assert (row.version, row.side_effect, row.active) == (1, True, True)
    assert acts() == [("tool.create", "olga")]


def test_text_and_plain_values_are_the_same_tool() -> None:
    one = make_tool()
    other = make_tool("two", parameters=json.dumps(PARAMETERS), policy=json.dumps(POLICY))
    assert one.parameters_text == other.parameters_text
    assert one.policy_text == other.policy_text


def test_without_a_policy_a_person_is_asked_about_every_call() -> None:
    row = jobs.create_tool(tool_id="t", actor=OPERATOR, url="https://x.example/")
    assert json.loads(row.policy_text) == {"default": "approval", "risk": "high"}


def test_an_id_is_taken_once_whoever_is_first() -> None:
    found = at_once(make_tool, make_tool)
    assert sorted(type(one).__name__ for one in found) == ["Conflict", "Tool"]
    with pytest.raises(Conflict):
        make_tool()


@pytest.mark.parametrize("tool_id", ["", "a.b", "a:b", "ä", "x" * 65, None, "a b", "a\n"])
def test_an_id_that_no_provider_takes_as_a_function_is_refused(tool_id: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        make_tool(tool_id)
    assert refusal.value.field == "tool_id"
    assert not Tool.objects.exists()


def condition(**changes: Any) -> dict[str, Any]:
    when = {"argument": "amount", "is": "number", "op": ">", "value": 1, **changes}
    return {**POLICY, "rules": [{"when": when, "then": "auto"}]}


NESTED = {
    "type": "object",
    "properties": {
        "to": {"type": "object", "properties": {"iban": {"type": "string"}}},
        "free": {"type": "object", "additionalProperties": True},
        "list": {"type": "array"},
    },
    "required": ["to", "list"],
}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"method": "get"}, "method"),
        ({"method": None}, "method"),
        ({"url": ""}, "url"),
        ({"url": None}, "url"),
        ({"url": "https://x.example/" + "y" * 1000}, "url"),
        ({"url": "ftp://x.example/"}, "url"),
        ({"url": "https://me:pw@x.example/"}, "url"),
        ({"url": "http://127.0.0.1:9/"}, "url"),
        ({"url": "http://169.254.169.254/", "allow_private": True}, "url"),
        ({"url": "https://x.example/#{order}"}, "url"),
        ({"url": "https://{order}/refunds"}, "url"),
        ({"url": "https://{order}.example/"}, "url"),
        ({"url": "https://shop.example{order}/"}, "url"),
        ({"url": "https://shop.example:{amount}/"}, "url"),
        ({"url": "{order}://shop.example/"}, "url"),
        ({"url": "{order}"}, "url"),
        ({"url": "https://x.example/{other}"}, "url"),
        ({"url": "https://x.example/{note}"}, "url"),
        ({"url": "https://x.example/{order"}, "url"),
        ({"url": "https://x.example/{}"}, "url"),
        ({"url": "https://x.example/{list}", "parameters": NESTED, "policy": {}}, "policy.default"),
        ({"parameters": "{"}, "parameters"),
        ({"parameters": '{"type":"object","type":"object"}'}, "parameters"),
        ({"parameters": {"type": "string"}}, "parameters.type"),
        ({"parameters": {"type": "object", "oneOf": []}}, "parameters.oneOf"),
        ({"policy": "nonsense"}, "policy"),
        ({"policy": {"default": "maybe", "risk": "low"}}, "policy.default"),
        ({"policy": condition(argument="Amount")}, "policy.rules[0].when.argument"),
        ({"policy": condition(argument="amount.cents")}, "policy.rules[0].when.argument"),
        ({"policy": condition(argument="order")}, "policy.rules[0].when.is"),
        ({"policy": condition(argument="fast")}, "policy.rules[0].when.is"),
        ({"effect": "Refund {sum}."}, "effect"),
        ({"effect": "Refund {amount."}, "effect"),
        ({"effect": "two\nlines"}, "effect"),
        ({"effect": "x" * 501}, "effect"),
        ({"description": "x\x00"}, "description"),
        ({"description": "x" * 4001}, "description"),
        ({"side_effect": "yes"}, "side_effect"),
        ({"allow_private": 1}, "allow_private"),
        ({"idempotency_header": ""}, "idempotency_header"),
        ({"idempotency_header": "Content-Length"}, "idempotency_header"),
        ({"idempotency_header": "a b"}, "idempotency_header"),
        ({"secret_header": "Host"}, "secret_header"),
        ({"secret_header": "content-type"}, "secret_header"),
        ({"secret_header": "idempotency-key"}, "secret_header"),
        ({"secret_header": "x" * 81}, "secret_header"),
        ({"secret_env": "sk-live-123"}, "secret_env"),
        ({"secret_env": "MYSQL_PASSWORD"}, "secret_env"),
        ({"secret_env": "BAILING_API_TOKEN"}, "secret_env"),
        ({"body_bytes_max": 0}, "body_bytes_max"),
        ({"body_bytes_max": True}, "body_bytes_max"),
        ({"deadline_seconds": 601}, "deadline_seconds"),
        ({"deadline_seconds": 1.5}, "deadline_seconds"),
        ({"calls_per_minute_max": -1}, "calls_per_minute_max"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_saved(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        make_tool(**fields)
    assert refusal.value.field == field
    assert not Tool.objects.exists()
    assert not AuditRow.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "https://x.example/{order}/{amount}?fast={fast}"},
        {"url": "http://127.0.0.1:9/", "allow_private": True},
        {"url": "https://x.example/", "side_effect": False, "idempotency_header": ""},
        {"method": "GET", "effect": "", "description": "two\nlines: ä"},
        {"body_bytes_max": 1, "deadline_seconds": 600, "calls_per_minute_max": 1},
        {"secret_env": "SHOP_KEY", "secret_header": "X-Api-Key"},
        {
            "url": "https://x.example/",
            "effect": "Send to {to}.",
            "parameters": NESTED,
            "policy": condition(argument="to.iban", **{"is": "string", "op": "==", "value": "x"}),
        },
        {
            "url": "https://x.example/",
            "effect": "",
            "parameters": NESTED,
            "policy": condition(argument="free.deep.amount"),
        },
    ],
)
def test_what_is_allowed_is_saved(fields: dict[str, Any]) -> None:
    row = make_tool(**fields)
    assert row.url == fields.get("url", row.url)


def test_a_placeholder_in_the_url_must_be_a_plain_value() -> None:
    fields: dict[str, Any] = {"url": "https://x.example/{to}", "parameters": NESTED, "effect": ""}
    with pytest.raises(InvalidInput, match="plain value"):
        make_tool(**fields, policy={"default": "auto", "risk": "low"})


def test_every_change_is_a_version_that_says_before_and_after() -> None:
    make_tool()
    row = jobs.change_tool(
        tool_id="refund", actor=OPERATOR, seen_version=1, reason="slow shop", deadline_seconds=60
    )
    assert (row.version, row.deadline_seconds) == (2, 60)
    assert json.loads(row.policy_text) == POLICY
    act = AuditRow.objects.get(action="tool.change")
    assert json.loads(act.before_text)["deadline_seconds"] == 30
    assert json.loads(act.after_text)["deadline_seconds"] == 60
    assert act.reason == "slow shop"


def test_a_change_of_what_somebody_changed_meanwhile_is_refused() -> None:
    make_tool()
    jobs.change_tool(tool_id="refund", actor=OPERATOR, seen_version=1, active=False)
    with pytest.raises(LostRace) as refusal:
        jobs.change_tool(tool_id="refund", actor=OPERATOR, seen_version=1, active=True)
    assert refusal.value.details["version"] == 2
    assert not jobs.get_tool(tool_id="refund").active
    assert [action for action, _ in acts()] == ["tool.create", "tool.change"]


def test_a_change_is_checked_against_the_whole_tool() -> None:
    make_tool()
    with pytest.raises(InvalidInput) as refusal:
        jobs.change_tool(
            tool_id="refund", actor=OPERATOR, seen_version=1, parameters={"type": "object"}
        )
    assert refusal.value.field in ("url", "effect", "policy.rules[0].when.argument")
    assert jobs.get_tool(tool_id="refund").version == 1


def test_an_unknown_tool_is_not_found_and_all_are_listed_by_id() -> None:
    with pytest.raises(NotFound):
        jobs.get_tool(tool_id="refund")
    with pytest.raises(NotFound):
        jobs.change_tool(tool_id="refund", actor=OPERATOR, seen_version=1)
    make_tool("b")
    make_tool("a")
    assert [row.id for row in jobs.list_tools()] == ["a", "b"]


def test_without_its_migration_the_registry_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise Unavailable("missing", code="migration_missing", migration=name)

    monkeypatch.setattr(schema, "require", missing)
    for act in (make_tool, jobs.list_tools, jobs.list_routes):
        with pytest.raises(Unavailable) as refusal:
            act()
        assert refusal.value.details["migration"] == "0068_agent_jobs"
