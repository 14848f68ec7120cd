"""The template language: one look for each value, hostile text harmless everywhere (case 29)."""

from datetime import UTC, datetime, timedelta

import pytest

from console.filters import read_filters
from console.paging import IdPage
from console.timeline import Step
from kernel import states
from tests.console.urls import FILTERS

HOSTILE = '"><script>alert(1)</script>\u202e'
NOW = datetime(2026, 11, 29, 14, 2, 5, tzinfo=UTC)


@pytest.mark.parametrize("name", states.RESULT_STATES + states.BILLING_STATES)
def test_each_state_has_an_icon_and_a_word(render, name):
    html = render("{% status name %}", name=name)
    assert "<use href=" in html
    assert name.replace("_", " ").capitalize() in html


def test_only_states_that_need_a_person_are_loud(render):
    names = states.RESULT_STATES + states.BILLING_STATES
    loud = [name for name in names if "is-loud" in render("{% status name %}", name=name)]
    assert loud == ["unknown", "pending"]


def test_a_state_nobody_described_is_shown_by_its_name(render):
    assert "Made up" in render("{% status 'made_up' %}")


def test_pending_money_is_a_word_and_zero_is_a_number(render):
    assert "pending" in render("{% money None %}")
    assert "$" not in render("{% money None %}")
    assert "$0.00" in render("{% money 0 %}")
    assert 'value="0.005615"' in render("{% money 5615000 %}")


def test_a_time_is_relative_and_absolute_with_its_zone(render):
    html = render("{% ago at %}", at=NOW)
    assert 'datetime="2026-11-29T14:02:05+00:00"' in html
    assert "ago" in html and "UTC" in html
    assert "–" in render("{% ago None %}")


def test_an_id_is_whole_in_the_page_even_when_it_is_clipped_by_width(render):
    value = "req_01a227b111498f5b793d0e453f508249"
    html = render("{% id value short=True %}", value=value)
    assert f'data-copy="{value}"' in html
    assert "req_01a227b111498f5b793d0e453f</span><span>508249" in html


@pytest.mark.parametrize(
    "tag",
    [
        "{% escaped value %}",
        "{% escaped value block=True %}",
        "{% id value href=value short=True row=True %}",
        "{% copy value %}",
        "{% status value reason=value %}",
        "{% icon value value %}",
        "{% button value href=value unavailable=value %}",
        "{% button value name=value value=value %}",
        "{% callout value title=value %}x{% endcallout %}",
        "{% fact value hint=value %}{{ value }}{% endfact %}",
        "{% stat value href=value note=value %}{{ value }}{% endstat %}",
        "{% spark trend value %}",
        "{% meter value 10 ok=3 %}",
        "{% progress 1 2 value %}",
        "{% crumbs value value %}",
        "{% empty 'empty' value value value value %}",
        "{% act action=value target=value version=value %}{% endact %}",
        "{% timeline steps %}",
    ],
)
def test_hostile_text_is_harmless_in_every_tag(render, tag):
    steps = [Step(HOSTILE, "ring", at=NOW, text=HOSTILE, facts=((HOSTILE, HOSTILE),))]
    html = render(tag, value=HOSTILE, trend=[1, 2], steps=steps)
    assert "<script" not in html
    assert HOSTILE not in html


def test_a_forbidden_button_says_why_and_does_nothing(render, person):
    html = render(
        "{% button 'Resolve' href='/x' permission='operate' %}", user=person("v", "viewer")
    )
    assert "aria-disabled" in html
    assert "Your role (viewer) may not" in html
    assert 'href="/x"' not in html
    allowed = render(
        "{% button 'Resolve' href='/x' permission='operate' %}", user=person("o", "operator")
    )
    assert 'href="/x"' in allowed


def test_an_unavailable_button_says_why(render, person):
    html = render("{% button 'Cancel' unavailable='It is final.' %}", user=person("o", "operator"))
    assert "It is final." in html
    assert "<button" not in html


def test_the_timeline_shows_the_time_between_steps(render):
    steps = [
        Step("Admitted", "ring", at=NOW),
        Step("Dispatched", "sent", at=NOW + timedelta(milliseconds=9)),
        Step("Saved", "check", at=NOW + timedelta(seconds=131)),
        Step("Settled", "coin-check"),
    ]
    html = render("{% timeline steps %}", steps=steps)
    assert "9 ms later" in html
    assert "is-slow" in html and "2 min 11 s later" in html
    assert "not reached" in html


def test_a_clock_that_went_back_is_shown_not_repaired(render):
    steps = [Step("A", "ring", at=NOW), Step("B", "ring", at=NOW - timedelta(seconds=2))]
    assert "−2.00 s later" in render("{% timeline steps %}", steps=steps)


def test_the_pager_keeps_the_filters(render):
    chosen = read_filters({"result": "unknown"}, FILTERS)
    html = render("{% pager page chosen %}", page=IdPage(["a"], "OLD", "NEW"), chosen=chosen)
    assert 'href="?result=unknown&amp;after=OLD"' in html
    assert 'href="?result=unknown&amp;before=NEW"' in html
    assert 'href="?result=unknown"' in html


def test_the_filter_bar_names_its_zone_and_its_values(render):
    chosen = read_filters({"account": "acme"}, FILTERS)
    html = render("{% filters chosen %}", chosen=chosen)
    assert 'value="acme"' in html
    assert "Since (UTC)" in html


def test_the_four_empty_states_look_and_read_differently(render):
    kinds = ("empty", "filtered", "forbidden", "unavailable")
    shown = {render("{% empty kind 'Title' %}", kind=kind) for kind in kinds}
    assert len(shown) == 4


def test_a_field_ties_hint_and_error_to_its_widget(render):
    from tests.console.urls import NoteForm

    html = render("{% field form.note %}", form=NoteForm({"outcome": "done", "note": ""}))
    assert 'aria-describedby="id_note_hint id_note_error"' in html
    assert 'id="id_note_error"' in html and 'aria-invalid="true"' in html
