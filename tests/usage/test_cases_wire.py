"""The field cases of metering and prices: wire bytes in, meters and nano-USD out."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from kernel.conf import conf
from kernel.errors import InvalidInput
from kernel.money import nano_to_usd, usd_to_nano
from kernel.usage import pricing
from kernel.usage.metering import facts_of_body
from kernel.usage.pricing import parse_rates
from kernel.usage.request_body import prepare_request, read_request
from kernel.usage.streams import StreamReader, UsageChunkFilter
from tests.usage.wire import DONE, body, delta, event, metered, nano, reason, streamed

# --- streams ----------------------------------------------------------------------------------


def test_g26_a_nul_byte_in_an_answer_is_read_and_stays_storable():
    raw = b'{"choices":[{"message":{"content":"a\\u0000b\x00"}}],"usage":%s}'
    found = facts_of_body(
        raw % b'{"prompt_tokens":9,"completion_tokens":4,"note":"\\u0000"}'
    ).metering
    assert found.meters == {"input": 9, "output": 4}
    assert "\x00" not in found.raw_text + found.to_text()


def test_g29_a_stream_cut_after_three_events_is_not_terminal_and_reports_no_usage():
    found = streamed(delta(), delta(), delta(), delta()[:-9])
    assert (found.terminal, found.error, found.metering.reason) == (False, None, "no_usage")


@pytest.mark.parametrize(
    ("usage", "pending"),
    [({"input_tokens": 9, "output_tokens": 4}, None), (None, "no_usage")],
)
def test_g31_a_failed_response_in_a_stream_is_an_error_with_the_usage_it_reports(
    usage: object, pending: str | None
):
    response = {"id": "r", "error": {"message": "model broke"}, "usage": usage}
    found = streamed(
        event({"type": "response.output_text.delta", "delta": "Hel"}),
        event({"type": "response.failed", "response": response}, "response.failed"),
    )
    assert (found.error, found.metering.reason) == ("model broke", pending)


def test_g35_hundreds_of_deltas_without_a_usage_chunk_are_pending_never_free():
    found = streamed(*[delta()] * 806)
    assert (found.metering.meters, found.metering.reason) == ({}, "no_usage")
    assert reason(found.metering, input="1", output="1") == "no_usage"


def test_g37_null_usage_first_is_ignored():
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    found = streamed(delta(usage=None), delta(usage=None), delta(finish="stop", usage=usage), DONE)
    assert found.metering.meters == {"input": 9, "output": 4}
    assert found.metering.reason is None


def test_g38_zero_usage_in_every_chunk_then_the_real_one():
    zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    real = {"prompt_tokens": 120, "completion_tokens": 45, "total_tokens": 165}
    early = [delta(usage=zero)] * 3
    found = streamed(*early, delta(finish="stop", usage=real), DONE)
    assert found.metering.meters == {"input": 120, "output": 45}
    assert found.metering.reason is None
    cut = streamed(*early)
    assert cut.metering.reason == "partial_usage"


def test_g40_we_ask_for_usage_and_strip_the_chunk_the_client_did_not_ask_for():
    asked = read_request(b'{"model":"fast","stream":true,"messages":[]}')
    sent = prepare_request(asked, upstream_model="gpt-4o")
    assert json.loads(sent.body)["stream_options"] == {"include_usage": True}
    usage = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
    answer = [delta("日本語"), delta(finish="stop"), usage, DONE]
    shown = UsageChunkFilter(sent.hide_usage)
    output = b"".join([*map(shown.feed, answer), shown.finish()])
    assert output == b"".join([*answer[:2], DONE])
    assert streamed(*answer).metering.meters == {"input": 9, "output": 4}


def test_g41_cumulative_deltas_are_not_summed():
    found = streamed(
        event(
            {
                "type": "message_start",
                "message": {"usage": {"input_tokens": 25, "output_tokens": 1}},
            },
            "message_start",
        ),
        event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 15},
            },
            "message_delta",
        ),
        event({"type": "message_stop"}, "message_stop"),
    )
    assert found.metering.meters == {"input": 25, "output": 15}
    assert (found.terminal, found.metering.reason) == (True, None)


def test_g43_the_last_snapshot_wins_field_by_field():
    start = {"input_tokens": 8834, "cache_read_input_tokens": 0, "output_tokens": 1}
    last = {"input_tokens": 18, "cache_read_input_tokens": 8831, "output_tokens": 426}
    found = streamed(
        event({"type": "message_start", "message": {"usage": start}}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}),
        event({"type": "message_stop"}),
    ).metering
    assert found.input_tokens == 8849
    assert found.meters == {"input": 18, "input_cached": 8831, "output": 426}


def test_g44_usage_nested_under_response_is_found():
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    found = streamed(
        event({"type": "response.created", "response": {"id": "r", "usage": None}}),
        event({"type": "response.completed", "response": {"id": "r", "usage": usage}}),
    )
    assert (found.terminal, found.provider_request_id) == (True, "r")
    assert found.metering.meters == {"input": 9, "output": 4}


def test_g46_the_providers_numbers_are_taken_verbatim():
    text = '{ "prompt_tokens": 9520,\t"completion_tokens": 1 }'
    found = facts_of_body(b'{"usage":' + text.encode() + b"}").metering
    assert found.meters["input"] == 9520
    assert found.raw_text == text


def test_g47_a_character_cut_between_chunks_is_passed_and_read():
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    stream = "".join(
        f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
        for value in (
            {"choices": [{"delta": {"content": "日本"}, "finish_reason": "stop"}], "usage": usage},
        )
    ).encode()
    cut = stream.index("本".encode()) + 2
    shown, reader = UsageChunkFilter(True), StreamReader()
    output = b""
    for piece in (stream[:cut], stream[cut:]):
        output += shown.feed(piece)
        reader.feed(piece)
    assert output + shown.finish() == stream
    assert reader.finish().metering.meters == {"input": 9, "output": 4}


# --- amounts ----------------------------------------------------------------------------------


def test_g49_cached_tokens_are_not_billed_at_the_full_rate_too():
    found = metered(
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920},
        }
    )
    assert nano(found, input="2.5", input_cached="1.25", output="10") == usd_to_nano("0.005615")


def test_g50_a_cache_write_is_billed_once():
    found = metered(
        {
            "input_tokens": 3,
            "cache_creation_input_tokens": 12304,
            "cache_read_input_tokens": 0,
            "output_tokens": 550,
        }
    )
    rates = {"input": "3", "input_cache_write": "3.75", "input_cached": "0.3", "output": "15"}
    assert nano(found, **rates) == usd_to_nano("0.054399")


def test_g52_cached_tokens_are_billed_at_the_cached_rate():
    found = metered(
        {
            "prompt_tokens": 51232 + 1188096,
            "completion_tokens": 12909,
            "prompt_tokens_details": {"cached_tokens": 1188096},
        }
    )
    rates = {"input": "1.25", "input_cached": "0.125", "output": "10"}
    assert nano(found, **rates) == usd_to_nano("0.341642")


def test_g53_each_input_token_of_a_messages_usage_is_counted_once():
    found = metered(
        {
            "input_tokens": 5,
            "cache_read_input_tokens": 128955,
            "cache_creation_input_tokens": 1253,
            "output_tokens": 1,
        }
    )
    assert found.input_tokens == 130213


def test_g55_reasoning_is_part_of_the_output():
    found = metered(
        {
            "prompt_tokens": 14746,
            "completion_tokens": 1944,
            "completion_tokens_details": {"reasoning_tokens": 1360},
        }
    )
    assert nano(found, input="30", output="180") == usd_to_nano("0.7923")


def test_g56_thoughts_are_billed_as_output():
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 12, "thoughtsTokenCount": 918}
    found = facts_of_body(json.dumps({"usageMetadata": usage}).encode()).metering
    assert nano(found, input="1.25", output="10") == usd_to_nano("0.009425")


def test_g58_audio_without_an_audio_rate_is_pending_not_free_and_not_text():
    found = metered(
        {
            "prompt_tokens": 1000,
            "completion_tokens": 0,
            "prompt_tokens_details": {"audio_tokens": 1000},
        }
    )
    assert found.meters == {"input": 0, "input_audio": 1000, "output": 0}
    assert reason(found, input="2.5", output="10") == "unpriced_unit"


def test_g59_the_tier_of_the_response_wins():
    assert read_request(b'{"model":"m","service_tier":"priority"}').service_tier == "priority"
    rates = {"input": "1", "output": "0", "input__priority": "2", "output__priority": "0"}
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    assert nano(metered(usage, service_tier="default"), **rates) == usd_to_nano("1")
    assert nano(metered(usage, service_tier="priority"), **rates) == usd_to_nano("2")
    assert reason(metered(usage, service_tier="flex"), **rates) == "unpriced_tier"


@pytest.mark.parametrize(("tokens", "usd"), [(200_000, "0.25"), (200_001, "0.5000025")])
def test_g61_one_token_above_the_border_changes_the_rate_of_the_whole_request(
    tokens: int, usd: str
):
    found = metered({"prompt_tokens": tokens, "completion_tokens": 0})
    assert nano(found, input=[[0, "1.25"], [200_000, "2.5"]], output="10") == usd_to_nano(usd)


def test_g62_attempts_on_several_models_are_pending_never_one_guessed_rate():
    turns = [
        {"type": "message", "model": "big", "input_tokens": 10, "output_tokens": 1},
        {"type": "fallback_message", "model": "small", "input_tokens": 10, "output_tokens": 4},
    ]
    usage = {"input_tokens": 20, "output_tokens": 5, "iterations": turns}
    assert metered(usage).reason == "several_models"
    turns[1]["model"] = "big"
    assert metered(usage).meters == {"input": 20, "output": 5}
    assert metered({**usage, "input_tokens": 10}).reason == "inconsistent_usage"


def test_g64_tiny_costs_keep_their_digits():
    found = metered({"prompt_tokens": 244, "completion_tokens": 0})
    assert nano_to_usd(nano(found, input="0.1", output="1")) == "0.0000244"


def test_g76_the_cost_a_reseller_reports_is_evidence_and_its_gap_is_shown():
    found = metered({"prompt_tokens": 1_000_000, "completion_tokens": 0, "cost": 0.95})
    assert nano(found, input="1", output="1") == usd_to_nano("1")
    assert found.reported_cost_usd == "0.95"
    assert pricing.reported_gap(Decimal(1), found.reported_cost_usd) == Decimal("-0.05")


def test_g77_a_rate_per_token_entered_as_per_million_must_be_confirmed():
    with pytest.raises(InvalidInput, match="not plausible") as caught:
        parse_rates({"input": "8000000", "output": "8"})
    assert caught.value.error_code == "implausible_rate"
    assert "per million" in caught.value.message
    with pytest.raises(InvalidInput, match="not plausible"):
        parse_rates({"input": "0.000008", "output": "8"})
    found = metered({"prompt_tokens": 9520, "completion_tokens": 0})
    assert nano(found, input="8", output="8") == usd_to_nano("0.07616")


# --- numbers that are no numbers --------------------------------------------------------------


@pytest.mark.parametrize("literal", ["null", '"10"', "true", "1.5", "NaN", "1e308", "-5"])
def test_g82_a_prompt_count_that_is_no_count_is_invalid_and_its_text_is_kept(literal: str):
    text = f'{{"prompt_tokens": {literal}, "completion_tokens": 5}}'
    found = facts_of_body(f'{{"usage":{text}}}'.encode()).metering
    assert (found.reason, found.raw_text) == ("invalid_usage", text)
    assert "prompt_tokens" in found.detail
    assert reason(found, input="1", output="1") == "invalid_usage"
    in_stream = streamed(f'data: {{"choices":[],"usage":{text}}}\n\n'.encode(), DONE)
    assert (in_stream.metering.reason, in_stream.metering.raw_text) == ("invalid_usage", text)


@pytest.mark.parametrize("total", [None, 0])
def test_g83_a_total_is_a_check_not_a_source(total: int | None):
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": total}
    assert metered(usage).meters == {"input": 10, "output": 5}
    assert metered({**usage, "total_tokens": 14}).reason == "inconsistent_usage"


def test_g86_a_stream_that_dies_after_its_final_usage_is_charged_what_it_reported():
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    found = streamed(delta(), delta(finish="stop"), event({"choices": [], "usage": usage}), b"da")
    assert (found.terminal, found.metering.reason) == (True, None)
    assert nano(found.metering, input="1", output="1") == 13_000
    failed = streamed(delta(usage=usage), event({"error": {"message": "overloaded"}}))
    assert (failed.error, failed.metering.reason) == ("overloaded", None)


def test_g88_a_subset_larger_than_its_parent_is_inconsistent():
    def usage(reasoning: int) -> dict[str, Any]:
        details = {"reasoning_tokens": reasoning}
        return {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "completion_tokens_details": details,
        }

    assert metered(usage(4)).meters == {"input": 10, "output": 1, "output_reasoning": 4}
    found = metered(usage(6))
    assert (found.reason, found.meters) == ("inconsistent_usage", {})


# --- prices by name ---------------------------------------------------------------------------


def test_g73_g74_an_unknown_or_prefixed_model_has_no_price():
    when = {"at": datetime(2026, 11, 20, tzinfo=UTC)}
    for model in ("gpt-5.5-2031-01-01", "cx/gpt-5.5", "vertex_ai/gemini-2.5-pro"):
        assert pricing.resolve(provider="openai", model=model, **when) is None
    assert pricing.resolve(provider="openai", model="gpt-5.5", **when) is not None
    found = metered({"prompt_tokens": 37_400_000, "completion_tokens": 0})
    assert pricing.price(None, found).reason == "unpriced"


def test_g17_the_providers_id_is_an_attribute_of_bounded_length():
    found = facts_of_body(body({"prompt_tokens": 1, "completion_tokens": 1}, id="x" * 5000))
    assert found.provider_request_id == "x" * 200


def test_the_bundled_price_charges_like_an_operators():
    at = datetime(2026, 11, 20, tzinfo=UTC)
    found = metered(
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "prompt_tokens_details": {"cached_tokens": 1920},
        }
    )
    charge = pricing.price(pricing.resolve(provider="openai", model="gpt-4o", at=at), found)
    assert charge.reference_usd == Decimal("0.005615")
    assert conf.metered_count_max >= 37_400_000
