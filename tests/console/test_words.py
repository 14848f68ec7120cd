"""Plain words for codes: acts, what they changed, rates."""

import json
import re
from pathlib import Path

from console.words import ACTS, act_text, changes_of, pages_text, rates_of
from kernel.models import AuditRow
from kernel.outbox import REQUEST_UNKNOWN, REQUEST_UNPRICED

ROOT = Path(__file__).resolve().parents[2]


def changes(before, after):
    row = AuditRow(
        before_text="" if before is None else json.dumps(before),
        after_text="" if after is None else json.dumps(after),
    )
    return [(one.name, one.before, one.after) for one in changes_of(row)]


def test_every_act_of_the_kernel_has_words():
    source = "".join(path.read_text() for path in (ROOT / "kernel").rglob("*.py"))
    codes = set(re.findall(r'action="([a-z_]+\.[a-z_]+)"', source))
    codes |= set(re.findall(r'"((?:request|account|token|person|price|service)\.[a-z_]+)"', source))
    events = {REQUEST_UNKNOWN, REQUEST_UNPRICED}  # of the outbox: the audit never holds them
    codes -= events
    assert not events & set(ACTS), "the audit's filter offers what no row has"
    assert codes >= {"request.cancel", "pass.run"}
    assert codes <= set(ACTS)
    assert act_text("something.new") == "something.new"


def test_a_change_lists_only_what_differs_in_units_for_people():
    before = {"cap_nano": 250 * 10**9, "multiplier_millionths": 10**6, "active": True, "name": "a"}
    after = {"cap_nano": None, "multiplier_millionths": 1_250_000, "active": False, "name": "a"}
    assert changes(before, after) == [
        ("active", "yes", "no"),
        ("cap", "$250.00", "none"),
        ("multiplier", "× 1", "× 1.25"),
    ]


def test_a_creation_has_no_before_and_an_end_no_after():
    assert changes(None, {"name": "a"}) == [("name", "", "a")]
    assert changes({"state": "x"}, {}) == [("state", "x", "")]
    assert changes(None, None) == []


def test_what_cannot_be_read_is_shown_as_it_is():
    row = AuditRow(before_text="{broken", after_text="[1, 2]")
    assert [(one.before, one.after) for one in changes_of(row)] == [("{broken", "[1, 2]")]


def test_rates_put_the_common_units_first_and_keep_steps():
    rates = rates_of({"output": "10", "input": [[0, "2.5"], [200_000, "5"]], "input@fast": "4.25"})
    assert rates.common == [("input", "$2.50; above 200,000: $5.00"), ("output", "$10.00")]
    assert rates.special == [("input@fast", "$4.25")]


def test_pages_are_counted_in_words():
    assert pages_text(1) == "1 page"
    assert pages_text(1204) == "1,204 pages"
