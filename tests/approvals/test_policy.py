"""The risk policy: the first rule that matches; what cannot be judged is forbidden."""

import json
from typing import Any

import pytest

from kernel import approvals
from kernel.errors import InvalidInput

RULES = [
    {"when": {"argument": "amount", "is": "number", "op": "<=", "value": 20}, "then": "auto"},
    {
        "when": {"argument": "amount", "is": "number", "op": ">", "value": 500},
        "then": "approval",
        "risk": "high",
    },
    {
        "when": {"argument": "to.country", "is": "string", "op": "in", "value": ["KP", "IR"]},
        "then": "forbidden",
    },
]
POLICY = {"default": "approval", "risk": "medium", "rules": RULES}


def verdict(values: Any, policy: Any = POLICY) -> tuple[str, str]:
    found = approvals.decide_policy(
        policy_text=json.dumps(policy), arguments_text=json.dumps(values)
    )
    assert found.reason
    return found.action, found.risk


def rule(op: str, value: Any, kind: str = "number", then: str = "auto") -> dict[str, Any]:
    when = {"argument": "a", "is": kind, "op": op, "value": value}
    return {"default": "approval", "risk": "low", "rules": [{"when": when, "then": then}]}


def test_the_first_rule_that_matches_decides() -> None:
    here = {"country": "DE"}
    assert verdict({"amount": 20, "to": here}) == ("auto", "medium")
    assert verdict({"amount": 20.01, "to": here}) == ("approval", "medium")
    assert verdict({"amount": 501, "to": here}) == ("approval", "high")
    assert verdict({"amount": 100, "to": {"country": "KP"}}) == ("forbidden", "medium")


@pytest.mark.parametrize(
    "values",
    [
        {"amount": "20"},
        {"amount": None},
        {"amount": True},
        {"amount": [1]},
        {},
        {"amount": 100, "to": "KP"},
        {"amount": 100, "to": {}},
        [],
        None,
    ],
)
def test_what_a_condition_cannot_judge_is_forbidden(values: Any) -> None:
    assert verdict(values)[0] == "forbidden"


@pytest.mark.parametrize(
    ("op", "value", "kind", "given", "matches"),
    [
        (">", 5, "number", 6, True),
        (">", 5, "number", 5, False),
        (">=", 5, "number", 5, True),
        ("<", 0.3, "number", 0.1, True),
        ("<=", 5, "number", 5.0, True),
        ("==", 1, "number", 1.0, True),
        ("!=", 1, "number", 2, True),
        ("in", [1, 2], "number", 2, True),
        ("in", [], "number", 2, False),
        ("==", "x", "string", "X", False),
        ("!=", "x", "string", "y", True),
        ("in", ["x", "y"], "string", "y", True),
        ("==", True, "boolean", True, True),
        ("!=", True, "boolean", True, False),
    ],
)
def test_each_operator(op: str, value: Any, kind: str, given: Any, matches: bool) -> None:
    assert verdict({"a": given}, rule(op, value, kind))[0] == ("auto" if matches else "approval")


def test_numbers_are_compared_exactly() -> None:
    policy = json.dumps(rule("==", 0)).replace('"value": 0', '"value": 0.1')
    for token, action in (("0.1", "auto"), ("0.10", "auto"), ("0.1000000000000000001", "approval")):
        found = approvals.decide_policy(policy_text=policy, arguments_text=f'{{"a":{token}}}')
        assert found.action == action


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"default":"allow","risk":"low"}'])
def test_a_stored_policy_that_cannot_be_read_forbids(text: str) -> None:
    found = approvals.decide_policy(policy_text=text, arguments_text="{}")
    assert (found.action, found.risk) == ("forbidden", "high")


def test_arguments_that_cannot_be_read_are_forbidden() -> None:
    text = json.dumps({"default": "auto", "risk": "low"})
    found = approvals.decide_policy(policy_text=text, arguments_text='{"a":1,"a":2}')
    assert found.action == "forbidden"


def test_a_good_policy_is_returned_as_its_canonical_text() -> None:
    assert approvals.check_policy(POLICY) == approvals.check_policy(json.dumps(POLICY, indent=2))
    assert approvals.check_policy({"risk": "low", "default": "auto"}) == (
        '{"default":"auto","risk":"low"}'
    )


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ([], "policy"),
        ("{", "policy"),
        ({"risk": "low"}, "policy.default"),
        ({"default": "allow", "risk": "low"}, "policy.default"),
        ({"default": "auto", "risk": "LOW"}, "policy.risk"),
        ({"default": "auto", "risk": "low", "rule": []}, "policy.rule"),
        ({"default": "auto", "risk": "low", "rules": {}}, "policy.rules"),
        ({"default": "auto", "risk": "low", "rules": [1]}, "policy.rules[0]"),
        (rule(">", "5"), "policy.rules[0].when.value"),
        (rule(">", True), "policy.rules[0].when.value"),
        (rule(">", "a", "string"), "policy.rules[0].when.op"),
        (rule("~", 5), "policy.rules[0].when.op"),
        (rule("in", 5), "policy.rules[0].when.value"),
        (rule("in", [5, "6"]), "policy.rules[0].when.value"),
        (rule("==", 5, "integer"), "policy.rules[0].when.is"),
        (rule("==", 5, then="maybe"), "policy.rules[0].then"),
    ],
)
def test_a_bad_policy_is_refused_with_its_place(policy: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        approvals.check_policy(policy)
    assert caught.value.field == field
