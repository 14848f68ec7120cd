"""The schema subset: refused by name when saved, strict when a call is checked (C1, D4)."""

import time
from decimal import Decimal
from typing import Any

import pytest

from kernel.approvals.json_schema import check_schema, same, validate
from kernel.errors import InvalidInput


def of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


REFUND = of(
    {
        "order": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$", "maxLength": 20},
        "amount": {"type": "integer", "minimum": 1, "maximum": 50_000, "description": "in cents"},
        "rate": {"type": "number", "minimum": 0.1, "maximum": Decimal("0.9")},
        "mode": {"type": "string", "enum": ["full", "part"], "default": "full"},
        "fast": {"type": "boolean"},
        "note": {"type": "null"},
        "lines": {"type": "array", "items": of({"n": {"type": "integer"}}, required=["n"])},
        "free": {"type": "object", "additionalProperties": True},
        "kind": {"const": "refund"},
    },
    required=["order", "amount"],
    title="Refund",
)
FITS = {"order": "DE-1", "amount": 5}


def refused_field(act: Any) -> str:
    with pytest.raises(InvalidInput) as refusal:
        act()
    assert refusal.value.message
    return refusal.value.field


def test_a_schema_of_the_subset_is_accepted_with_everything_in_it() -> None:
    check_schema(REFUND)
    check_schema({"type": "object"})


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({}, "type"),
        ({"type": "float"}, "type"),
        ({"type": ["string", "null"]}, "type"),
        ({"type": "string", "format": "email"}, "format"),
        ({"type": "string", "$ref": "#/x"}, "$ref"),
        ({"anyOf": [{"type": "string"}], "type": "string"}, "anyOf"),
        ({"type": "string", "minimum": 1}, "minimum"),
        ({"type": "integer", "maxLength": 1}, "maxLength"),
        ({"type": "string", "items": {}}, "items"),
        ({"type": "string", "description": 1}, "description"),
        ({"type": "integer", "minimum": "1"}, "minimum"),
        ({"type": "integer", "minimum": True}, "minimum"),
        ({"type": "number", "minimum": float("nan")}, "minimum"),
        ({"type": "number", "minimum": 2, "maximum": 1}, "maximum"),
        ({"type": "string", "minLength": -1}, "minLength"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength"),
        ({"type": "string", "maxLength": 2.0}, "maxLength"),
        ({"type": "string", "enum": []}, "enum"),
        ({"type": "string", "enum": ["a", 1]}, "enum[1]"),
        ({"type": "integer", "const": "1"}, "const"),
        ({"type": "string", "enum": ["a"], "default": "b"}, "default"),
        ({"type": "integer", "minimum": 3, "default": 1}, "default"),
        ({"type": "array", "items": {"type": "text"}}, "items.type"),
        ({"type": "object", "properties": []}, "properties"),
        ({"type": "object", "properties": {"b": {"type": "x"}}}, "properties.b.type"),
        ({"type": "object", "required": ["b"]}, "required"),
        ({"type": "object", "properties": {"b": {"type": "null"}}, "required": "b"}, "required"),
        (
            {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b", "b"]},
            "required",
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "additionalProperties"),
        ("string", ""),
        (True, ""),
    ],
)
def test_what_the_subset_lacks_is_refused_by_name(part: Any, place: str) -> None:
    path = "parameters.properties.a" + (f".{place}" if place else "")
    assert refused_field(lambda: check_schema(of({"a": part}))) == path


@pytest.mark.parametrize("value", [None, [], "object", {"type": "string"}, {"type": "array"}])
def test_arguments_are_described_by_an_object(value: Any) -> None:
    assert refused_field(lambda: check_schema(value)).startswith("parameters")


def test_a_schema_nested_too_deeply_is_refused_without_a_crash() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        schema = of({"a": schema})
    assert refused_field(lambda: check_schema(schema)).startswith("parameters.properties.a")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"rate": Decimal("0.1")},
        {"rate": 0.9},
        {"mode": "part", "fast": False, "note": None, "kind": "refund"},
        {"lines": [], "free": {"anything": [1]}},
        {"lines": [{"n": 1}, {"n": -1}]},
    ],
)
def test_what_fits_passes(more: dict[str, Any]) -> None:
    validate(REFUND, {**FITS, **more})


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "arguments"),
        ([], "arguments"),
        ("{}", "arguments"),
        ({"order": "DE-1"}, "arguments.amount"),
        ({**FITS, "Amount": 1}, "arguments"),
        ({**FITS, "amount": "5"}, "arguments.amount"),
        ({**FITS, "amount": True}, "arguments.amount"),
        ({**FITS, "amount": Decimal("5.0")}, "arguments.amount"),
        ({**FITS, "amount": None}, "arguments.amount"),
        ({**FITS, "amount": 0}, "arguments.amount"),
        ({**FITS, "amount": 50_001}, "arguments.amount"),
        ({**FITS, "rate": Decimal("0.0999999999999999999999")}, "arguments.rate"),
        ({**FITS, "rate": Decimal("1E+400")}, "arguments.rate"),
        ({**FITS, "rate": float("inf")}, "arguments.rate"),
        ({**FITS, "order": "de-1"}, "arguments.order"),
        ({**FITS, "order": "DE-1\n"}, "arguments.order"),
        ({**FITS, "order": "DE-١"}, "arguments.order"),
        ({**FITS, "order": "DE-" + "1" * 30}, "arguments.order"),
        ({**FITS, "mode": "FULL"}, "arguments.mode"),
        ({**FITS, "fast": 1}, "arguments.fast"),
        ({**FITS, "note": ""}, "arguments.note"),
        ({**FITS, "kind": "Refund"}, "arguments.kind"),
        ({**FITS, "lines": [{"n": 1}, {}]}, "arguments.lines[1].n"),
        ({**FITS, "lines": [{"n": 1, "m": 2}]}, "arguments.lines[0]"),
    ],
)
def test_what_does_not_fit_is_named(value: Any, field: str) -> None:
    assert refused_field(lambda: validate(REFUND, value)) == field


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*b", "(?:a*)*", "[a[](x+)+", r"[\]](x+)+", "(a)\\1", "(?=a)a", "(?i)a", "(",
     "a" * 201, "", 5, "(a{1,9}){1,9}"],
)  # fmt: skip
def test_a_pattern_that_could_take_for_ever_is_refused(pattern: Any) -> None:
    part = {"type": "string", "pattern": pattern}
    assert refused_field(lambda: check_schema(of({"a": part}))).endswith(".pattern")


@pytest.mark.parametrize(
    ("pattern", "fits", "misfits"),
    [
        ("^[$)*+]$", "$", "a"),
        ("^(?:a|b)?c$", "bc", "bbc"),
        (r"^\$\d+$", "$12", "$x"),
        ("b", "abc", "ac"),
        ("^[]a]+$", "]a", "b"),
        (r"^[^\]]$", "a", "]"),
    ],
)
def test_patterns_mean_what_json_schema_says(pattern: str, fits: str, misfits: str) -> None:
    schema = of({"a": {"type": "string", "pattern": pattern}})
    check_schema(schema)
    validate(schema, {"a": fits})
    assert refused_field(lambda: validate(schema, {"a": misfits})) == "arguments.a"


def test_a_hostile_text_cannot_hold_a_worker() -> None:
    schema = of({"a": {"type": "string", "pattern": "^a*a*b$"}})
    check_schema(schema)
    started = time.perf_counter()
    refused_field(lambda: validate(schema, {"a": "a" * 1_000}))
    refused_field(lambda: validate(schema, {"a": "a" * 1_000_000}))
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, True, False),
        (0, False, False),
        (1, Decimal("1.0"), True),
        (Decimal("0.1"), 0.1, True),
        (1, "1", False),
        (None, None, True),
        ([1, {"a": 1}], [1, {"a": Decimal("1")}], True),
        ([1], [True], False),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_equality_is_that_of_json(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
