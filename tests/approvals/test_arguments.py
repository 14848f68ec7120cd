"""Canonical arguments: one text, one hash; never wider, never retyped, never shown with secrets."""

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel import approvals
from kernel.approvals import arguments
from kernel.conf import conf, override
from kernel.errors import InvalidInput

SCHEMA = json.dumps(
    {
        "type": "object",
        "required": ["order"],
        "properties": {
            "order": {"type": "string"},
            "amount": {"type": "number", "default": 50},
            "note": {"type": "string"},
            "options": {
                "type": "object",
                "default": {},
                "properties": {"notify": {"type": "boolean", "default": True}},
            },
            "lines": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"count": {"type": "integer", "default": 1}},
                },
            },
        },
    }
)
EMPTY = '{"type": "object", "properties": {}}'

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    LEAVES | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def sha(text: str) -> str:
    return approvals.canonical(text).sha256


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(each, chance)) for key, each in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [shuffled(each, chance) for each in value] if isinstance(value, list) else value


@given(VALUES, st.randoms())
@settings(deadline=None)
def test_the_order_of_keys_and_the_spacing_change_nothing(value: Any, chance: random.Random):
    plain = approvals.canonical(json.dumps(value, ensure_ascii=False))
    other = json.dumps(shuffled(value, chance), ensure_ascii=True, indent=3)
    assert approvals.canonical(other) == plain
    if not isinstance(value, str):  # a text is JSON text, not a value
        assert approvals.canonical(value) == plain


@given(VALUES)
@settings(deadline=None)
def test_the_canonical_text_means_the_same_and_is_its_own_canonical_text(value: Any) -> None:
    found = approvals.canonical(json.dumps(value))
    assert json.loads(found.text) == json.loads(json.dumps(value))
    assert approvals.canonical(found.text) == found
    assert found.sha256 == hashlib.sha256(found.text.encode()).hexdigest()
    assert found.version == 1


@given(VALUES, VALUES)
@settings(deadline=None)
def test_two_values_share_a_hash_only_when_they_are_one_text(one: Any, other: Any) -> None:
    first, second = (approvals.canonical(json.dumps(value)) for value in (one, other))
    assert (first.sha256 == second.sha256) == (first.text == second.text)


@given(VALUES, VALUES)
@settings(deadline=None)
def test_a_difference_is_empty_exactly_for_equal_arguments(one: Any, other: Any) -> None:
    texts = [approvals.canonical(json.dumps(value)).text for value in (one, other)]
    hidden = [approvals.masked(text) for text in texts]
    assert bool(approvals.difference(*texts)) == (hidden[0] != hidden[1])


@pytest.mark.parametrize("token", ["25", "25.0", "2.5e1", "25E0", "-0", "0", "1e400", "9" * 300])
def test_a_number_stays_as_it_was_written(token: str) -> None:
    assert approvals.canonical(f'{{"n": {token}}}').text == f'{{"n":{token}}}'


def test_a_number_that_became_a_text_is_another_call() -> None:
    texts = ['{"a":25}', '{"a":"25"}', '{"a":25.0}', '{"a":true}', '{"a":[25]}', '{"a":null}', "{}"]
    assert len({sha(text) for text in texts}) == len(texts)


def test_lists_keep_their_order_and_objects_have_none() -> None:
    assert sha('{"a":1,"b":{"c":2,"d":3}}') == sha('{"b":{"d":3,"c":2},"a":1}')
    assert sha("[1,2]") != sha("[2,1]")


def test_keys_stand_in_code_point_order_on_every_host() -> None:
    found = approvals.canonical({"amount": 1, "Currency": 2, "ZONE": 3, "ä": 4, "z": 5, "😀": 6})
    assert found.text == '{"Currency":2,"ZONE":3,"amount":1,"z":5,"ä":4,"😀":6}'


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":-Infinity}',
        '{"a":"\\ud800"}',
        '{"\\udfff":1}',
        '{"a":"\ud800"}',
        '{"a":"\\u0000"}',
        '{"a":"\x00"}',
        '{"a":"line\nfeed"}',
        '{"a":01}',
        '{"a":1,}',
        "{'a':1}",
        '{"a":1} {"b":2}',
        "\ufeff{}",
        "{",
        "",
        f'{{"a":{"9" * 401}}}',
        '{"a":1e99999999999999999999}',
    ],
)
def test_what_is_no_strict_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        approvals.canonical(text)
    assert caught.value.field == "arguments"


@pytest.mark.parametrize("value", [b'{"a":"\xff"}', {"a": float("nan")}, {"a": {1}}, {"a": b"x"}])
def test_bytes_and_values_that_are_no_json_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        approvals.canonical(value)


def test_the_depth_is_bounded_however_deep_it_goes() -> None:
    most = conf.arguments_depth_count_max
    approvals.canonical("[" * most + "]" * most)
    for depth in (most + 1, 5_000, 100_000):
        with pytest.raises(InvalidInput, match=f"deeper than {most} levels"):
            approvals.canonical("[" * depth + "]" * depth)


def test_an_argument_of_200_kilobytes_is_kept_whole() -> None:
    text = json.dumps({"note": "x" * 200_000})
    found = approvals.canonical(text)
    assert len(found.text) > 200_000 and json.loads(found.text) == json.loads(text)
    changed = approvals.canonical(text.replace('x"}', 'y"}'))
    assert changed.sha256 != found.sha256, "the last character counts"


def test_the_size_is_bounded_in_bytes_also_after_defaults() -> None:
    with override(arguments_bytes_max=1024):
        exact = '"' + "é" * 511 + '"'
        assert len(approvals.canonical(exact).text.encode()) == 1024
        with pytest.raises(InvalidInput, match="has 1026 bytes"):
            approvals.canonical('"' + "é" * 512 + '"')
    schema = json.dumps(
        {"type": "object", "properties": {"a": {"type": "string", "default": "x" * 900}}}
    )
    with override(arguments_bytes_max=1024):
        assert approvals.final_arguments(schema_text=schema, given_text="{}")
        with override(arguments_bytes_max=905), pytest.raises(InvalidInput):
            arguments._canonical_of({"a": "x" * 900})


# --- final arguments --------------------------------------------------------------------------


def final(given_text: str, schema: str = SCHEMA) -> str:
    return approvals.final_arguments(schema_text=schema, given_text=given_text).text


def test_defaults_are_part_of_what_is_approved() -> None:
    found = '{"amount":50,"options":{"notify":true},"order":"o-1"}'
    assert final('{"order":"o-1"}') == found
    assert final('{"order":"o-1","amount":50}') == found
    assert final('{"order":"o-1","options":{"notify":false},"lines":[{},{"count":2}]}') == (
        '{"amount":50,"lines":[{"count":1},{"count":2}],"options":{"notify":false},"order":"o-1"}'
    )


def test_a_default_of_the_tool_that_changed_changes_the_hash() -> None:
    changed = SCHEMA.replace('"default": 50', '"default": 100')
    one = approvals.final_arguments(schema_text=SCHEMA, given_text='{"order":"o-1"}')
    other = approvals.final_arguments(schema_text=changed, given_text='{"order":"o-1"}')
    assert one.sha256 != other.sha256


def test_missing_null_and_empty_arguments_are_three_things() -> None:
    assert final("{}", EMPTY) == "{}"
    for text, says in (("", "are missing"), ("  \n", "are missing"), ("null", "type object")):
        with pytest.raises(InvalidInput, match=says):
            final(text, EMPTY)


def test_null_does_not_stand_for_a_default_and_nothing_unknown_slips_in() -> None:
    for text, field in (
        ('{"order":"o-1","amount":null}', "arguments.amount"),
        ('{"order":"o-1","amount":"50"}', "arguments.amount"),
        ('{"amount":5}', "arguments.order"),
        ('{"order":"o-1","extra":1}', "arguments"),
    ):
        with pytest.raises(InvalidInput) as caught:
            final(text)
        assert caught.value.field == field


# --- for eyes ---------------------------------------------------------------------------------


def test_secrets_are_masked_and_still_told_apart() -> None:
    headers = '{"Authorization":"Bearer x","X-Api-Key":"k","Accept":"json"}'
    text = f'{{"headers":{headers},"pay":[{{"tokens":[1]}}]}}'
    hidden = json.loads(approvals.masked(text))
    short = hashlib.sha256(b"Bearer x").hexdigest()[:8]
    assert hidden["headers"]["Authorization"] == f"•••• (8 characters, sha256 {short})"
    assert hidden["headers"]["Accept"] == "json"
    assert hidden["headers"]["X-Api-Key"].startswith("•••• (1 characters")
    assert hidden["pay"][0]["tokens"].startswith("•••• (3 characters")
    assert approvals.masked('{"password":"a"}') != approvals.masked('{"password":"b"}')
    assert approvals.masked('{"password":null}') == '{"password":null}'


@pytest.mark.parametrize("text", ["", "no json", '{"a":1,"a":2}', '{"a":"\ud800"}'])
def test_a_view_of_an_old_text_that_cannot_be_read_shows_nothing_and_never_fails(text: str) -> None:
    shown = json.loads(approvals.masked(text))
    assert shown.startswith(f"•••• ({len(text)} characters, sha256 ")
    assert [each.path for each in approvals.difference(text, "{}")] == ["$"]
    assert approvals.effect_sentence("Refund {amount}.", text) == "Refund (none)."


def test_masks_that_are_longer_than_the_secrets_are_still_compared() -> None:
    with override(arguments_bytes_max=1024):
        before = approvals.canonical({f"token{n:03}": "x" for n in range(50)}).text
        after = before.replace('"x"', '"y"', 1)
        assert [each.path for each in approvals.difference(before, after)] == ["token000"]


def test_a_difference_names_places_types_and_no_secret() -> None:
    before = '{"amount":25,"lines":[{"n":1}],"a b":1,"cookie":"s3cret-1"}'
    after = '{"amount":"25","lines":[{"n":2},{"n":3}],"new":null,"cookie":"s3cret-2"}'
    found = {each.path: (each.before, each.after) for each in approvals.difference(before, after)}
    assert found["amount"] == ("25", '"25"')
    assert found["lines[0].n"] == ("1", "2")
    assert found["lines[1]"] == (None, '{"n":3}')
    assert found['["a b"]'] == ("1", None)
    assert found["new"] == (None, "null")
    assert "s3cret" not in str(found) and "cookie" in found
    assert [each.path for each in approvals.difference("[]", "{}")] == ["$"]


def test_invisible_characters_are_left_alone_in_bytes_and_hash() -> None:
    text = '{"host":"p\u0430ypal.example\u202e\u200b\u2028","note":"' + " " * 5000 + '"}'
    assert approvals.canonical(text).text == text
    assert approvals.masked(text) == text


def test_the_effect_is_said_in_words_without_secrets_or_walls_of_text() -> None:
    text = json.dumps({"amount": 100, "order": "o-1", "password": "s3cret", "note": "x" * 5000})
    assert approvals.effect_sentence("Refund {amount} of {order}.", text) == "Refund 100 of o-1."
    assert "s3cret" not in approvals.effect_sentence("{password}", text)
    assert len(approvals.effect_sentence("{note}", text)) == 201
    assert approvals.effect_sentence("{gone} {0.__class__}", text) == "(none) (none)"
    assert approvals.effect_sentence("{order}", '{"order":"{amount}"}') == "{amount}"
