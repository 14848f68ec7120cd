"""Metering: each dialect in disjoint units that add up to what was reported."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.usage.metering import Metering, facts_of_body, read_usage

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
    assert (
        chat(prompt_cache_hit_tokens=4, prompt_cache_miss_tokens=5).reason == "inconsistent_usage"
    )


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


# --- sums ---------------------------------------------------------------------------------------


counts = st.integers(0, 10**6)


@given(cached=counts, written=counts, fresh=counts, reasoning=counts, audio=counts, text=counts)
def test_chat_meters_are_disjoint_and_add_up_to_what_was_reported(
    *, cached: int, written: int, fresh: int, reasoning: int, audio: int, text: int
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
    *, read: int, short: int, hour: int, fresh: int, made: int
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
    assert facts_of_body(body).metering.meters == {"input": 10, "output": 5}


def test_a_body_that_reports_two_different_usages_is_invalid():
    one, two = (
        b'{"prompt_tokens":1,"completion_tokens":1}',
        b'{"prompt_tokens":2,"completion_tokens":1}',
    )
    assert facts_of_body(b'{"usage":%s,"usage":%s}' % (one, two)).metering.reason == "invalid_usage"


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
