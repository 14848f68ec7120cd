"""The rows of long lists are made by hand: hostile text is harmless in each of their cells."""

from datetime import UTC, datetime

import pytest

from console.access import Ability
from console.queries.actors import Who
from console.queries.approvals import ApprovalRow
from console.queries.dead_letters import GroupRow
from kernel.models import Approval, DeadLetter, DeadLetterGroup, Request

HOSTILE = '"><script>alert(1)</script>\u202e'
NOW = datetime(2026, 11, 29, 14, 2, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def real_addresses(settings):
    settings.ROOT_URLCONF = "console.urls"


def hostile(model, **fields):
    """A row, not saved, whose every text is hostile and every time is NOW."""
    row = model(**fields)
    for field in model._meta.concrete_fields:
        kind = field.get_internal_type()
        if field.name not in fields and kind in ("CharField", "TextField"):
            setattr(row, field.attname, HOSTILE)
        elif field.name not in fields and kind == "DateTimeField":
            setattr(row, field.attname, NOW)
    return row


def approval(state, **fields):
    who = Who("token", HOSTILE, HOSTILE)
    return ApprovalRow(hostile(Approval, **fields), state, HOSTILE, asker=who, decider=who)


def letter(**fields):
    row = hostile(DeadLetter, **fields)
    row.error_head = HOSTILE
    return row


ROWS = {
    "{% request_rows rows %}": [hostile(Request, streamed=True, billed_nano=5)],
    "{% open_approval_rows rows may %}": [approval("open"), approval("expired")],
    "{% closed_approval_rows rows %}": [
        approval("approved", decision="approved"),
        approval("open", decision=""),
    ],
    "{% letter_rows rows %}": [letter(unknown_attempts=2), letter(channel="apprise")],
    "{% letter_group_rows rows %}": [
        GroupRow(hostile(DeadLetterGroup, open_count=3, total_count=4), 2, 3)
    ],
}


@pytest.mark.parametrize("tag", ROWS)
def test_hostile_text_is_harmless_in_every_row(render, person, tag):
    html = render(tag, rows=ROWS[tag], may=Ability(True), user=person("o", "operator"))
    assert "<script" not in html and HOSTILE not in html
    assert html.count("<tr>") == html.count("</tr>") == len(ROWS[tag])
    assert html.count("<td") == html.count("</td>")


def test_a_question_that_is_over_cannot_be_ticked(render, person):
    rows = ROWS["{% open_approval_rows rows may %}"]
    tag = "{% open_approval_rows rows may %}"
    html = render(tag, rows=rows, may=Ability(True), user=person("a", "approver"))
    assert html.count('type="checkbox"') == 2 and html.count(" disabled>") == 1
    html = render(tag, rows=rows, may=Ability(False, "no"), user=person("v", "viewer"))
    assert "checkbox" not in html


def test_who_may_not_replay_reads_why_in_each_group(render, person):
    tag = "{% letter_group_rows rows %}"
    html = render(tag, rows=ROWS[tag], user=person("v", "viewer"))
    assert "aria-disabled" in html and "Your role (viewer) may not" in html
