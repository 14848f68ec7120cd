"""Ids: one alphabet, the same on every database; fresh ids sort by time (A1)."""

import pytest
from django.db import models
from hypothesis import given
from hypothesis import strategies as st

from kernel.errors import InvalidId, InvalidInput
from kernel.ids import IdField, check_id, check_text, is_id, new_id
from kernel.models import Account, Request
from tests.support.product import admitted, ask, make_account, make_service

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"


@given(st.text(alphabet=ALPHABET, min_size=1, max_size=128))
def test_every_text_of_the_alphabet_is_an_id(text: str) -> None:
    assert check_id(text, field="x") == text


@given(st.text(max_size=130))
def test_any_other_text_is_refused_by_name(text: str) -> None:
    if 1 <= len(text) <= 128 and set(text) <= set(ALPHABET):
        assert is_id(text)
        return
    with pytest.raises(InvalidId, match="order_id") as refusal:
        check_id(text, field="order_id")
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    "value",
    ["", "a b", "x ", " x", "é", "ａ", "a\n", "a/b", "a\x00", "x" * 129, "İ", None, 7, b"a"],
    ids=ascii,
)
def test_what_databases_would_merge_or_cut_is_no_id(value: object) -> None:
    with pytest.raises(InvalidId):
        check_id(value, field="x")


def test_ids_differ_by_case_on_this_database(kernel_db: None) -> None:
    make_account("a")
    make_account("A")
    make_service()
    upper, lower = (admitted(ask(name, account_id="a")) for name in ("Op-1", "op-1"))
    assert upper.id != lower.id
    assert Account.objects.get(id="A").id == "A"
    assert list(Request.objects.filter(operation_id="OP-1")) == []


def test_a_lookup_with_no_id_is_refused_before_it_reaches_the_database(kernel_db: None) -> None:
    for wrong in ("é", "x ", "日本", "x" * 129):
        with pytest.raises(InvalidId):
            Account.objects.filter(id=wrong).first()


def test_the_longest_id_can_be_stored_and_audited(kernel_db: None) -> None:
    longest = "A" * 128
    make_account(longest)
    make_service()
    row = admitted(ask(longest, account_id=longest))
    assert Request.objects.get(account_id=longest, operation_id=longest).id == row.id


def test_fresh_ids_sort_by_time_and_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1_700_000_000_000_000_000, 1_700_000_010_000_000_000, 1_000_000))
    monkeypatch.setattr("time.time_ns", lambda: next(ticks))
    ids = [new_id("req") for _ in range(1000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000
    assert all(is_id(each, chars_max=64) for each in ids)


def test_ids_of_one_millisecond_do_not_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    assert len({new_id("x") for _ in range(10_000)}) == 10_000


def test_an_id_column_is_binary_ascii_on_mysql(server_db: None) -> None:
    from django.db import connection

    for field in Request._meta.concrete_fields:
        if isinstance(field, IdField):
            assert "ascii_bin" in (field.db_type(connection) or "")
    assert isinstance(Request._meta.get_field("operation_id"), models.CharField)


@pytest.mark.parametrize("text", ["", "   ", "two\nlines", "nul\x00", "\ud800", "x" * 11, 3, None])
def test_a_text_is_one_printable_line_within_its_length(text: object) -> None:
    with pytest.raises(InvalidInput, match="name"):
        check_text(text, field="name", chars_max=10)
    assert check_text("  Zoë 日本 ", field="name", chars_max=10) == "Zoë 日本"
