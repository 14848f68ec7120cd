"""Metering: each dialect in disjoint units; everything doubtful becomes a reason, never a number."""

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
    usage_of_body,
)
from kernel.usage.units import UNITS

CHAT = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def chat(**changes: Any) -> Metering:
    return read_usage({**CHAT, **changes})


# --- the dialects -----------------------------------------------------------------------------


def test_a_chat_usage_becomes_input_and_output():
    found = chat()
    assert (found.meters, found.reason) == ({"input": 10, "output": 5}, None)


def test_cached_written_and_audio_tokens_are_taken_out_of_the_prompt():
    found = read_usage(
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 5},
        }
    )
    assert found.meters == {
        "input": 30,
        "input_cached": 60,
        "input_cache_write": 10,
        "output": 25,
        "output_reasoning": 20,
        "output_audio": 5,
    }
    assert (found.input_tokens, found.output_tokens) == (100, 50)


def test_cached_tokens_reported_in_several_places_must_agree():
    same = {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}
    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    assert chat(**same, **details).meters == {"input": 6, "input_cached": 4, "output": 5}
    assert chat(cached_tokens=4).meters == {"input": 6, "input_cached": 4, "output": 5}
    assert chat(cached_tokens=3, **details).reason == "inconsistent_usage"
    assert chat(prompt_cache_hit_tokens=4, prompt_cache_miss_tokens=5).reason == "inconsistent_usage"


def test_a_responses_usage_contains_its_details():
    found = read_usage(
        {
            "input_tokens": 75,
            "input_tokens_details": {"cached_tokens": 25},
            "output_tokens": 1186,
            "output_tokens_details": {"reasoning_tokens": 1024},
            "total_tokens": 1261,
        }
    )
    assert found.meters == {
        "input": 50,
        "input_cached": 25,
        "output": 162,
        "output_reasoning": 1024,
    }


def test_a_messages_usage_counts_cache_reads_and_writes_beside_its_input():
    found = read_usage(
        {
            "input_tokens": 5,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10},
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 3},
            "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 9},
            "service_tier": "standard",
        }
    )
    assert found.meters == {
        "input": 5,
        "input_cached": 100,
        "input_cache_write": 20,
        "input_cache_write_1h": 10,
        "output": 4,
        "output_reasoning": 3,
        "web_search_requests": 2,
    }
    assert found.service_tier == "standard"


def test_cache_lifetimes_that_do_not_add_up_are_inconsistent():
    found = read_usage(
        {
            "input_tokens": 5,
            "output_tokens": 1,
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 11},
        }
    )
    assert found.reason == "inconsistent_usage"
    assert "cache_creation" in found.detail


def test_a_gemini_usage_adds_thoughts_and_splits_modalities():
    found = read_usage(
        {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 30,
            "candidatesTokenCount": 12,
            "thoughtsTokenCount": 8,
            "toolUsePromptTokenCount": 5,
            "totalTokenCount": 125,
            "promptTokensDetails": [
                {"modality": "TEXT", "tokenCount": 60},
                {"modality": "AUDIO", "tokenCount": 40},
            ],
            "cacheTokensDetails": [
                {"modality": "TEXT", "tokenCount": 20},
                {"modality": "AUDIO", "tokenCount": 10},
            ],
        }
    )
    assert found.meters == {
        "input": 45,
        "input_cached": 20,
        "input_audio": 30,
        "input_cached_audio": 10,
        "output": 12,
        "output_reasoning": 8,
    }
    assert found.input_tokens + found.output_tokens == 125


def test_gemini_leaves_out_a_zero_and_only_a_matching_total_confirms_it():
    usage = {"promptTokenCount": 100, "thoughtsTokenCount": 20}
    assert read_usage({**usage, "totalTokenCount": 120}).meters == {
        "input": 100,
        "output": 0,
        "output_reasoning": 20,
    }
    assert read_usage(usage).reason == "invalid_usage"
    assert read_usage({**usage, "totalTokenCount": 130}).reason == "invalid_usage"


def test_cached_tokens_of_unknown_modality_are_ambiguous():
    usage = {"promptTokenCount": 100, "cachedContentTokenCount": 30, "candidatesTokenCount": 1}
    details = [{"modality": "AUDIO", "tokenCount": 40}]
    assert read_usage({**usage, "promptTokensDetails": details}).reason == "ambiguous_usage"
    found = chat(prompt_tokens_details={"cached_tokens": 3, "audio_tokens": 3})
    assert found.reason == "ambiguous_usage"


def test_xai_counts_reasoning_outside_only_where_its_total_says_so():
    usage = {
        "prompt_tokens": 32,
        "completion_tokens": 9,
        "completion_tokens_details": {"reasoning_tokens": 94},
        "cost_in_usd_ticks": 232856000,
    }
    found = read_usage({**usage, "total_tokens": 135})
    assert found.meters == {"input": 32, "output": 9, "output_reasoning": 94}
    assert found.reported_cost_usd == "0.0232856"
    assert read_usage({**usage, "total_tokens": 41}).reason == "inconsistent_usage"
    del usage["cost_in_usd_ticks"]
    assert read_usage({**usage, "total_tokens": 135}).reason == "inconsistent_usage"


def test_perplexity_counts_citations_reasoning_and_searches_beside_the_answer():
    found = read_usage(
        {
            "prompt_tokens": 33,
            "completion_tokens": 7163,
            "total_tokens": 7196,
            "citation_tokens": 20016,
            "num_search_queries": 18,
            "reasoning_tokens": 73997,
        }
    )
    assert found.meters == {
        "input": 33,
        "output": 7163,
        "output_reasoning": 73997,
        "output_citation": 20016,
        "web_search_requests": 18,
    }


def test_reasoning_beside_the_answer_needs_a_total_that_shows_it_is_inside():
    assert chat(reasoning_tokens=3).meters == {"input": 10, "output": 5}
    assert chat(reasoning_tokens=3, total_tokens=None).reason == "ambiguous_usage"


def test_messages_fields_in_a_chat_usage_are_ambiguous_unless_the_details_agree():
    assert chat(cache_read_input_tokens=4).reason == "ambiguous_usage"
    assert chat(cache_read_input_tokens=0, cache_creation_input_tokens=0).reason is None
    found = chat(cache_read_input_tokens=4, prompt_tokens_details={"cached_tokens": 4})
    assert found.meters == {"input": 6, "input_cached": 4, "output": 5}
    both = {"input_tokens": 9, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 4}}
    assert read_usage({**both, "cache_read_input_tokens": 4}).reason == "ambiguous_usage"


# --- what cannot be charged -------------------------------------------------------------------


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
@settings(max_examples=400, deadline=None)
def test_arbitrary_json_gives_meters_or_a_known_reason_and_never_raises(raw: object):
    for found in (read_usage(raw), read_usage_text(json.dumps(raw)), usage_of_body_of(raw)):
        assert found.reason is None or found.reason in REASONS
        assert bool(found.meters) == (found.reason is None)
        assert all(unit in UNITS and type(n) is int and n >= 0 for unit, n in found.meters.items())
        assert Metering.from_text(found.to_text()) == found


def usage_of_body_of(raw: object) -> Metering:
    return usage_of_body(json.dumps({"usage": raw, "model": raw, "id": raw}).encode())


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_arbitrary_bytes_as_a_body_never_raise(body: bytes):
    assert facts_of_body(body).metering.reason is not None


counts = st.integers(0, 10**6)


@given(cached=counts, written=counts, fresh=counts, reasoning=counts, audio=counts, text=counts)
def test_chat_meters_are_disjoint_and_add_up_to_what_was_reported(
    cached: int, written: int, fresh: int, reasoning: int, audio: int, text: int
):
    found = read_usage(
        {
            "prompt_tokens": cached + written + fresh,
            "completion_tokens": reasoning + audio + text,
            "total_tokens": cached + written + fresh + reasoning + audio + text,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": audio},
        }
    )
    assert found.reason is None
    assert found.input_tokens == cached + written + fresh
    assert found.output_tokens == reasoning + audio + text
    assert found.meters["input"] == fresh
    assert found.meters["output"] == text


@given(read=counts, short=counts, hour=counts, fresh=counts, made=counts)
def test_messages_meters_are_disjoint_and_add_up_to_all_four_numbers(
    read: int, short: int, hour: int, fresh: int, made: int
):
    found = read_usage(
        {
            "input_tokens": fresh,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": short + hour,
            "cache_creation": {
                "ephemeral_5m_input_tokens": short,
                "ephemeral_1h_input_tokens": hour,
            },
            "output_tokens": made,
        }
    )
    assert found.input_tokens == fresh + read + short + hour
    assert (found.meters["input"], found.output_tokens) == (fresh, made)


# --- whole bodies -----------------------------------------------------------------------------


def test_a_body_tells_id_model_error_tier_and_the_usage_as_it_was_written():
    usage = '{ "prompt_tokens": 10,\n "completion_tokens":5 }'
    body = f'{{"id":"c-1","model":"m","service_tier":"flex","error":null,"usage":{usage}}}'
    found = facts_of_body(body.encode())
    assert (found.provider_request_id, found.model, found.error) == ("c-1", "m", None)
    assert found.metering.raw_text == usage
    assert found.metering.service_tier == "flex"


@pytest.mark.parametrize(
    "body",
    [
        {"response": {"id": "r", "usage": {"input_tokens": 10, "output_tokens": 5}}},
        {"id": "r", "usage": {"input_tokens": 10, "output_tokens": 5}},
        {"responseId": "r", "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5}},
    ],
    ids=repr,
)
def test_usage_is_found_where_each_dialect_puts_it(body: dict[str, Any]):
    found = facts_of_body(json.dumps(body).encode())
    assert found.metering.meters == {"input": 10, "output": 5}
    assert found.provider_request_id == "r"


@pytest.mark.parametrize(
    "body",
    [b"", b"oops", b"[]", b"null", b'{"usage": {"prompt', b'{"a":1} x', b"\xff\xfe{}", b"{" * 9999],
)
def test_an_unreadable_body_has_no_usage(body: bytes):
    found = facts_of_body(body)
    assert (found.readable, found.metering.reason) == (False, "no_usage")


def test_broken_text_elsewhere_in_a_body_does_not_hide_its_usage():
    body = b'{"text":"\xff\x00","usage":{"prompt_tokens":10,"completion_tokens":5}}'
    assert usage_of_body(body).meters == {"input": 10, "output": 5}


def test_a_body_that_reports_two_different_usages_is_invalid():
    one, two = b'{"prompt_tokens":1,"completion_tokens":1}', b'{"prompt_tokens":2}'
    assert usage_of_body(b'{"usage":%s,"usage":%s}' % (one, two)).reason == "invalid_usage"


def test_an_error_in_a_body_is_told_in_storable_words():
    body = json.dumps({"error": {"message": "no\x00\ud800" + "x" * 1000, "code": 5}})
    error = facts_of_body(body.encode()).error
    assert error is not None and error.startswith("no\ufffd?x") and len(error) == 300
    assert facts_of_body(b'{"error":"plain"}').error == "plain"
    assert facts_of_body(b'{"error":{"code":5}}').error == '{"code": 5}'


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"meters":{"tea":1}}', '{"meters":[]}'])
def test_a_damaged_saved_metering_is_refused(text: str):
    with pytest.raises(ValueError, match=r".*"):
        Metering.from_text(text)
