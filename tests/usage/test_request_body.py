"""Request bodies: only model and wish for usage change; doubtful bodies name their field."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.errors import InvalidInput
from kernel.usage.json_text import has_more_values
from kernel.usage.request_body import PreparedRequest, prepare_request, read_request
from kernel.usage.submissions import check_values


def prepare(body: str, **options: Any) -> PreparedRequest:
    return prepare_request(read_request(body.encode()), upstream_model="real-1", **options)


def test_only_the_model_changes_in_a_plain_request():
    body = (
        '{"temperature": 1.10, "model" : "alias", "x": 1E5, "messages":[{"content":"\\ud83d é"}] }'
    )
    found = prepare(body)
    assert found == PreparedRequest(body.replace('"alias"', '"real-1"').encode(), False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", '{"stream_options":{"include_usage":true},"model":"real-1","stream":true}'),
        (
            ',"stream_options":null',
            '{"model":"real-1","stream":true,"stream_options":{"include_usage":true}}',
        ),
        (
            ',"stream_options":{}',
            '{"model":"real-1","stream":true,"stream_options":{"include_usage":true}}',
        ),
        (
            ',"stream_options":{"a":1}',
            '{"model":"real-1","stream":true,"stream_options":{"include_usage":true,"a":1}}',
        ),
        (
            ',"stream_options":{"include_usage":true,"include_usage":false}',
            '{"model":"real-1","stream":true,'
            '"stream_options":{"include_usage":true,"include_usage":true}}',
        ),
        (
            ',"stream_options":{"include_usage":false,"a":1}',
            '{"model":"real-1","stream":true,"stream_options":{"include_usage":true,"a":1}}',
        ),
    ],
)
def test_a_stream_is_asked_for_usage_and_the_extra_chunk_is_hidden(options: str, expected: str):
    found = prepare(f'{{"model":"a","stream":true{options}}}')
    assert (found.body.decode(), found.hide_usage) == (expected, True)


def test_usage_that_the_caller_asked_for_is_not_hidden():
    body = '{"model":"real-1","stream":true,"stream_options":{"include_usage":true}}'
    assert prepare(body) == PreparedRequest(body.encode(), False)
    plain = '{"model":"real-1","stream":true}'
    assert prepare(plain, ask_usage=False) == PreparedRequest(plain.encode(), False)


def test_limits_choices_and_tier_are_read_for_the_hold():
    found = read_request(
        b'{"model":"m","n":3,"max_tokens":10,"max_completion_tokens":20,"service_tier":"flex"}'
    )
    assert (found.choices, found.max_output_tokens, found.service_tier) == (3, 20, "flex")
    assert not found.stream
    assert found.fields["n"] == 3
    bare = read_request(b'{"model":"m","n":null,"stream":null}')
    assert (bare.choices, bare.max_output_tokens, bare.stream) == (1, None, False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b'{"model":"m"} x', "body"),
        (b'{"model":"\xff"}', "body"),
        (b'\xef\xbb\xbf{"model":"m"}', "body"),
        (b'{"a":' * 50_000, "body"),
        (b"{}", "model"),
        (b'{"model":5}', "model"),
        (b'{"model":"a","model":"b"}', "model"),
        (b'{"model":"a","stream":false,"stream":true}', "stream"),
        (b'{"model":"m","stream":1}', "stream"),
        (b'{"model":"m","stream_options":[]}', "stream_options"),
        (b'{"model":"m","stream_options":{"include_usage":1}}', "stream_options.include_usage"),
        (b'{"model":"m","n":0}', "n"),
        (b'{"model":"m","n":true}', "n"),
        (b'{"model":"m","max_tokens":"10"}', "max_tokens"),
        (b'{"model":"m","max_completion_tokens":1.5}', "max_completion_tokens"),
        (b'{"model":"m","service_tier":5}', "service_tier"),
        (b'{"model":"m","temperature":NaN}', "temperature"),
        (b'{"model":"m","temperature":Infinity}', "temperature"),
        (b'{"model":"m","temperature":-Infinity}', "temperature"),
        (b'{"model":"m","temperature":1e999}', "temperature"),
        (b'{"model":"m","temperature":-1.5E+400}', "temperature"),
        (b'{"model":"m","a":[1,{"b":[0.5,NaN]},Infinity]}', "a[1].b[1]"),
        (b'{"model":"m","a":{"b":NaN,"b":1}}', "a"),
        (b'{"model":NaN}', "model"),
    ],
)
def test_a_body_that_cannot_be_trusted_names_the_field(body: bytes, field: str):
    with pytest.raises(InvalidInput) as caught:
        read_request(body)
    assert caught.value.field == field


def test_a_number_that_json_does_not_have_is_quoted_and_text_about_it_passes():
    with pytest.raises(InvalidInput, match=r"^a\[0\]: 1e999 is no number in JSON$"):
        read_request(b'{"model":"m","a":[1e999]}')
    body = '{"model":"real-1","a":["NaN","Infinity",1e308,-1e-999,0.0]}'
    assert prepare(body) == PreparedRequest(body.encode(), False)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[]", 1),
        ("[1,2,[3],{}]", 6),
        ('{"a":1,"b":[0,0]}', 4),
        ('{"a":",[{,,,[[[","b\\",[":["\\\\"]}', 3),
        ('["\\",",1]', 2),
    ],
)
def test_values_are_counted_outside_of_strings_without_decoding(text: str, values: int):
    assert not has_more_values(text.encode(), most=values)
    assert has_more_values(text.encode(), most=values - 1)


@pytest.mark.parametrize(
    "tiny", [b"[],", b"{},", b'"",', b"0,", b'{"a":[]},', b'"," '], ids=lambda tiny: tiny.decode()
)
def test_millions_of_tiny_values_are_refused_before_they_are_decoded(tiny: bytes):
    raw = b'{"model":"m","messages":[' + tiny * (10_000_000 // len(tiny)) + b"0]}"
    started = time.process_time()
    with pytest.raises(InvalidInput, match="at most 100000 JSON values") as caught:
        check_values(raw)
    assert time.process_time() - started < 3
    assert (caught.value.field, caught.value.error_code) == ("body", "body_too_complex")


def test_a_long_text_full_of_commas_and_brackets_is_no_long_list():
    raw = b'{"model":"m","messages":["' + b"[1, {2}, \\n " * 800_000 + b'"]}'
    check_values(raw)


@given(
    st.dictionaries(
        st.text(max_size=6),
        st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5),
        max_size=5,
    ),
    st.sampled_from([None, {}, {"include_usage": False}, {"x": [1]}]),
)
def test_nothing_but_model_and_stream_options_changes(fields: dict[str, Any], options: Any):
    body = {**fields, "model": "alias", "stream": True, "n": 1}
    body.pop("max_tokens", None)
    if options is not None:
        body["stream_options"] = options
    sent = json.loads(prepare(json.dumps(body)).body)
    assert sent.pop("stream_options") == {**(options or {}), "include_usage": True}
    body.pop("stream_options", None)
    assert sent == {**body, "model": "real-1"}
