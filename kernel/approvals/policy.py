"""The risk policy of a tool: typed conditions on arguments say auto, approval or forbidden (D4).

Pure. The first rule that matches decides. What cannot be compared - another type, a missing
argument - is forbidden: a condition never lets pass what it could not judge.

{"default": "approval", "risk": "medium", "rules": [
    {"when": {"argument": "amount", "is": "number", "op": "<=", "value": 20}, "then": "auto"},
    {"when": {"argument": "amount", "is": "number", "op": ">", "value": 500}, "then": "approval",
     "risk": "high"}]}
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from kernel.approvals.arguments import Number, canonical, parse
from kernel.errors import InvalidInput

AUTO, APPROVAL, FORBIDDEN = "auto", "approval", "forbidden"
ACTIONS = (AUTO, APPROVAL, FORBIDDEN)
RISKS = ("low", "medium", "high")
RULES_COUNT_MAX = 100
FIELD = "policy"
TYPES: dict[str, type] = {"number": Number, "string": str, "boolean": bool}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "in": lambda one, others: any(one == other for other in others),
}
FOR_ALL = frozenset({"==", "!=", "in"})  # the others compare numbers


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says about one call: `auto`, `approval` or `forbidden`, the risk, and why."""

    action: str
    risk: str
    reason: str


class _Mismatch(Exception):
    """A condition met an argument that it cannot judge."""


def check_policy(value: Any) -> str:
    """Check a policy (JSON text or plain values); returns its canonical text for storing (D4).

    InvalidInput names the place, such as `policy.rules[0].when.op`.
    """
    try:
        text = canonical(value).text
    except InvalidInput as error:
        _refuse(FIELD, f"cannot be read: {error.message}")
    policy = parse(text, field=FIELD)
    _check_keys(policy, FIELD, needed={"default", "risk"}, possible={"rules"})
    _check_word(policy["default"], ACTIONS, f"{FIELD}.default")
    _check_word(policy["risk"], RISKS, f"{FIELD}.risk")
    rules = policy.get("rules", [])
    if not isinstance(rules, list) or len(rules) > RULES_COUNT_MAX:
        _refuse(f"{FIELD}.rules", f"must be a list of at most {RULES_COUNT_MAX} rules")
    for index, rule in enumerate(rules):
        _check_rule(rule, f"{FIELD}.rules[{index}]")
    return text


def decide_policy(*, policy_text: str, arguments_text: str) -> Verdict:
    """What the policy says about these final arguments (D4).

    A policy or arguments that cannot be read are forbidden, never raised.
    """
    try:
        policy = parse(check_policy(policy_text), field=FIELD)
        values = parse(arguments_text)
    except InvalidInput as error:
        return Verdict(FORBIDDEN, "high", f"the policy cannot be applied: {error.message}")
    risk = policy["risk"]
    for place, rule in enumerate(policy.get("rules", []), start=1):
        try:
            matches = _matches(rule["when"], values)
        except _Mismatch as error:
            return Verdict(FORBIDDEN, rule.get("risk", risk), f"rule {place}: {error}")
        if matches:
            return Verdict(rule["then"], rule.get("risk", risk), f"rule {place}: {_spoken(rule)}")
    return Verdict(policy["default"], risk, "no rule matches: the default")


def _matches(when: dict[str, Any], values: Any) -> bool:
    name, kind = when["argument"], when["is"]
    found = values
    for step in name.split("."):
        if not isinstance(found, dict) or step not in found:
            raise _Mismatch(f"{name} is missing")
        found = found[step]
    if type(found) is not TYPES[kind]:
        raise _Mismatch(f"{name} is no {kind}")
    return OPERATORS[when["op"]](_comparable(found), _comparable(when["value"]))


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return Decimal(value) if isinstance(value, Number) else value


def _spoken(rule: dict[str, Any]) -> str:
    when = rule["when"]
    return f"{when['argument']} {when['op']} {_written(when['value'])}"


def _written(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_rule(rule: Any, field: str) -> None:
    _check_keys(rule, field, needed={"when", "then"}, possible={"risk"})
    _check_word(rule["then"], ACTIONS, f"{field}.then")
    if "risk" in rule:
        _check_word(rule["risk"], RISKS, f"{field}.risk")
    when = rule["when"]
    _check_keys(when, f"{field}.when", needed={"argument", "is", "op", "value"}, possible=set())
    if type(when["argument"]) is not str or not when["argument"]:
        _refuse(f"{field}.when.argument", "must name an argument")
    _check_word(when["is"], tuple(TYPES), f"{field}.when.is")
    _check_word(when["op"], tuple(OPERATORS), f"{field}.when.op")
    if when["is"] != "number" and when["op"] not in FOR_ALL:
        _refuse(f"{field}.when.op", f"does not compare a {when['is']}")
    _check_value(when, f"{field}.when.value")


def _check_value(when: dict[str, Any], field: str) -> None:
    value, kind = when["value"], when["is"]
    if when["op"] == "in" and type(value) is not list:
        _refuse(field, "must be a list")
    for each in value if when["op"] == "in" else [value]:
        if type(each) is not TYPES[kind]:
            _refuse(field, f"must be of the type {kind}")


def _check_keys(value: Any, field: str, *, needed: set[str], possible: set[str]) -> None:
    if not isinstance(value, dict):
        _refuse(field, "must be a JSON object")
    missing = sorted(needed - value.keys())
    if missing:
        _refuse(f"{field}.{missing[0]}", "is missing")
    unknown = sorted(value.keys() - needed - possible)
    if unknown:
        _refuse(f"{field}.{unknown[0][:80]}", "is no part of a policy")


def _check_word(value: Any, words: tuple[str, ...], field: str) -> None:
    if type(value) is not str or value not in words:
        _refuse(field, f"must be one of {' '.join(words)}")


def _refuse(field: str, message: str) -> NoReturn:
    raise InvalidInput(f"{field} {message}", field=field)
