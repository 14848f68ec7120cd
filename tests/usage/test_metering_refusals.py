"""What cannot be charged: everything doubtful becomes a reason, never a number, and is kept."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.conf import conf, override
from kernel.usage.metering import (
    REASONS,
    Metering,
    facts_of_body,
    read_usage,
    read_usage_text,
)
from kernel.usage.units import UNITS

CHAT = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def chat(**changes: Any) -> Metering:
    return read_usage({**CHAT, **changes})


BAD_NUMBERS = [
    "10",
    "",
    True,
    False,
    1.5,
    10.0,
    float("nan"),
    float("inf"),
    1e308,
    -5,
    -(10**30),
    [],
    {},
    [10],
]


@pytest.mark.parametrize("value", [None, *BAD_NUMBERS], ids=repr)
@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens"])
def test_a_required_count_that_is_no_whole_number_is_invalid(field: str, value: object):
    found = chat(**{field: value, "total_tokens": None})
    assert (found.reason, found.meters) == ("invalid_usage", {})
    assert field in found.detail
    assert found.raw_text


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "path",
    [
        ("total_tokens",),
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_tokens_details", "audio_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
        ("completion_tokens_details", "accepted_prediction_tokens"),
        ("server_tool_use", "web_search_requests"),
        ("num_search_queries",),
    ],
    ids=".".join,
)
def test_an_optional_count_of_a_wrong_type_is_invalid_too(path: tuple[str, ...], value: object):
    for name in reversed(path[1:]):
        value = {name: value}
    assert chat(**{path[0]: value}).reason == "invalid_usage"


@pytest.mark.parametrize("value", ["x", 3, True, []], ids=repr)
@pytest.mark.parametrize(
    "field", ["prompt_tokens_details", "completion_tokens_details", "server_tool_use"]
)
def test_details_that_are_no_object_are_invalid(field: str, value: object):
    found = chat(**{field: value})
    assert (found.reason, field in found.detail) == ("invalid_usage", True)


def test_null_details_tell_nothing_apart():
    found = chat(prompt_tokens_details=None, completion_tokens_details={"reasoning_tokens": None})
    assert found.meters == {"input": 10, "output": 5}


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt_tokens_details": {"cached_tokens": 11}},
        {"prompt_tokens_details": {"audio_tokens": 11}},
        {"prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 5}},
        {"completion_tokens_details": {"reasoning_tokens": 6}},
        {"completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 3}},
        {"total_tokens": 16},
        {"total_tokens": 1},
    ],
    ids=repr,
)
def test_numbers_that_contradict_each_other_are_inconsistent(changes: dict[str, Any]):
    found = chat(**changes)
    assert (found.reason, found.meters) == ("inconsistent_usage", {})


def test_the_detail_names_both_numbers_of_a_contradiction():
    found = chat(prompt_tokens_details={"cached_tokens": 11})
    assert found.detail == "prompt_tokens_details.cached_tokens is 11, more than prompt_tokens 10"


def test_a_count_beyond_belief_is_implausible_and_not_clamped():
    assert chat(prompt_tokens=conf.metered_count_max, total_tokens=0).reason is None
    found = chat(prompt_tokens=conf.metered_count_max + 1, total_tokens=0)
    assert (found.reason, found.meters) == ("implausible_usage", {})
    digits = "9" * 5000
    text = f'{{"prompt_tokens": {digits}, "completion_tokens": 1}}'
    assert read_usage_text(text).reason == "implausible_usage"


def test_nothing_reported_is_no_usage_and_a_reported_zero_is_a_value():
    assert read_usage(None).reason == "no_usage"
    assert chat(prompt_tokens=0, completion_tokens=0, total_tokens=0) == Metering(
        {"input": 0, "output": 0},
        json.dumps({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
    )


@pytest.mark.parametrize("raw", [[], "usage", 5, True, {}, {"tokens": 5}, {"a": None}], ids=repr)
def test_what_is_no_usage_object_of_a_known_shape_is_invalid(raw: object):
    assert read_usage(raw).reason == "invalid_usage"


def test_a_tier_that_is_no_text_is_invalid_and_the_tier_inside_the_usage_wins():
    assert read_usage(CHAT, service_tier=5).reason == "invalid_usage"
    assert read_usage(CHAT, service_tier="default").service_tier == "default"
    inside = {**CHAT, "service_tier": "priority"}
    assert read_usage(inside, service_tier="default").service_tier == "priority"
    assert read_usage({**CHAT, "speed": "fast"}).service_tier == "fast"
    assert read_usage({**CHAT, "speed": "standard"}).service_tier is None


@pytest.mark.parametrize(
    ("cost", "kept"),
    [
        (0.95, "0.95"),
        ("0.00014", "0.00014"),
        (0, "0"),
        ({"total_cost": 0.006}, "0.006"),
        (-1, None),
        ("free", None),
        (float("nan"), None),
        (True, None),
        ([], None),
    ],
    ids=repr,
)
def test_a_reported_cost_is_kept_as_evidence_when_it_is_an_amount(cost: object, kept: str | None):
    found = chat(cost=cost)
    assert (found.reported_cost_usd, found.reason) == (kept, None)


def test_the_exact_text_of_a_reported_cost_is_kept():
    text = '{"prompt_tokens":1,"completion_tokens":1,"cost":0.10000000000000000555}'
    assert read_usage_text(text).reported_cost_usd == "0.10000000000000000555"


# --- hostile input ----------------------------------------------------------------------------


HOSTILE = [
    '{"prompt_tokens": 5, "prompt_tokens": 9, "completion_tokens": 1}',
    '{"prompt_tokens": 1e308, "completion_tokens": 1}',
    '{"prompt_tokens": 1e99999999999999999999, "completion_tokens": 1}',
    '{"prompt_tokens": NaN, "completion_tokens": 1}',
    '{"prompt_tokens": 5, "completion_tokens": 1, "x": "\\u0000"',
    '{"prompt_tokens": "\\u0000\\ud800", "completion_tokens": 1}',
    '{"a":' * 50_000,
    "[" * 50_000,
    "",
    "\x00",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:40])
def test_a_hostile_usage_text_is_refused_and_kept_in_a_storable_form(text: str):
    found = read_usage_text(text)
    assert found.reason in ("invalid_usage", "implausible_usage")
    assert "\x00" not in found.raw_text
    assert len(found.raw_text.encode()) <= conf.metering_bytes_max
    assert Metering.from_text(found.to_text()) == found


def test_a_usage_nested_too_deeply_or_in_a_circle_never_raises():
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"a": deep}
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    assert read_usage(deep).reason == "invalid_usage"
    assert read_usage({**CHAT, "more": ring}).meters == {"input": 10, "output": 5}
    assert read_usage({**CHAT, "prompt_tokens_details": {"cached_tokens": deep}}).reason


def test_a_usage_larger_than_its_budget_is_implausible_and_cut():
    with override(metering_bytes_max=1024):
        found = read_usage({**CHAT, "padding": "é" * 5000})
        text = read_usage_text(json.dumps({**CHAT, "padding": "é" * 900}, ensure_ascii=False))
    for one in (found, text):
        assert one.reason == "implausible_usage"
        assert len(one.raw_text.encode()) <= 1024


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["1", "\x00", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8)
            | st.sampled_from(
                [
                    "prompt_tokens",
                    "completion_tokens",
                    "total_tokens",
                    "prompt_tokens_details",
                    "completion_tokens_details",
                    "cached_tokens",
                    "reasoning_tokens",
                    "input_tokens",
                    "output_tokens",
                    "cache_creation",
                    "cache_read_input_tokens",
                    "promptTokenCount",
                    "candidatesTokenCount",
                    "promptTokensDetails",
                    "iterations",
                    "server_tool_use",
                    "service_tier",
                    "cost",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(json_values)
@settings(max_examples=200, deadline=None)
def test_arbitrary_json_gives_meters_or_a_known_reason_and_never_raises(raw: object):
    for found in (read_usage(raw), read_usage_text(json.dumps(raw)), metering_of_body(raw)):
        assert found.reason is None or found.reason in REASONS
        assert bool(found.meters) == (found.reason is None)
        assert all(unit in UNITS and type(n) is int and n >= 0 for unit, n in found.meters.items())
        assert Metering.from_text(found.to_text()) == found


def metering_of_body(raw: object) -> Metering:
    body = json.dumps({"usage": raw, "model": raw, "id": raw}).encode()
    return facts_of_body(body).metering


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_arbitrary_bytes_as_a_body_never_raise(body: bytes):
    assert facts_of_body(body).metering.reason is not None
