"""What every template must hold: no inline style or script, icons that exist, the whole guide."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
STATIC = ROOT / "static" / "console"
SPRITE = (ROOT / "templates" / "console" / "_icons.html").read_text()
SYMBOLS = set(re.findall(r'<symbol id="i-([\w-]+)"', SPRITE))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_template_has_nothing_that_the_policy_would_block(path):
    text = path.read_text()
    assert not re.search(r"\sstyle\s*=", text), "inline style"
    assert not re.search(r"\son\w+\s*=", text), "inline handler"
    assert not re.search(r"hx-on|hx-vars|js:|javascript:", text), "evaluated code"
    assert not re.search(r"hx-trigger=\"[^\"]*\[", text), "trigger filter"
    assert not re.search(r"<script(?![^>]*\bsrc=)", text), "inline script"
    assert not re.search(r"<style", text), "inline style sheet"
    assert "|safe" not in text and "autoescape off" not in text
    assert not re.search(r"https?://(?!127\.0\.0\.1|www\.w3\.org)", text), "foreign address"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_icon_exists(path):
    named = set(re.findall(r'{% icon "([\w-]+)"', path.read_text()))
    named |= set(re.findall(r'icon="([\w-]+)"', path.read_text()))
    assert named <= SYMBOLS


def test_every_icon_named_in_python_exists():
    from console.navigation import OWN, SECTIONS
    from console.statuses import STATUSES
    from console.templatetags.parts import CALLOUT_ICONS, EMPTY_ICONS

    named = {screen.icon for section in SECTIONS for screen in section.screens}
    named |= {screen.icon for screen in OWN}
    named |= {status.icon for status in STATUSES.values()}
    named |= {*CALLOUT_ICONS.values(), *EMPTY_ICONS.values(), "copy", "check", "alert"}
    assert named <= SYMBOLS


def test_no_two_screens_share_a_key():
    from console.navigation import OWN, SECTIONS

    keys = [screen.key for section in SECTIONS for screen in section.screens]
    keys += [screen.key for screen in OWN]
    assert len(keys) == len(set(keys))


def test_style_sheets_and_scripts_load_nothing_from_elsewhere():
    for path in [*STATIC.glob("*.css"), *STATIC.glob("*.js")]:
        text = path.read_text()
        assert "http://" not in text and "https://" not in text.replace('"https:"', "")
        assert "@import" not in text and "url(" not in text
        assert "eval(" not in text and "innerHTML" not in text and "new Function" not in text


def test_colours_are_named_once_in_the_tokens():
    for path in STATIC.glob("*.css"):
        if path.name != "tokens.css":
            literal = re.sub(r"light-dark\([^;]*\)", "", path.read_text())
            assert not re.search(r"#[0-9a-fA-F]{3,8}\b", literal), path.name


class Outline(HTMLParser):
    """Collects ids, label targets and form controls of a page."""

    def __init__(self):
        super().__init__()
        self.ids, self.labels, self.controls, self.described = [], set(), [], set()
        self.in_label = 0

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "label":
            self.in_label += 1
            self.labels.add(values.get("for"))
        for name in ("aria-labelledby", "aria-describedby"):
            self.described |= set((values.get(name) or "").split())
        if tag in ("input", "select", "textarea") and values.get("type") != "hidden":
            named = self.in_label or "aria-label" in values
            self.controls.append((values.get("id"), bool(named)))

    def handle_endtag(self, tag):
        self.in_label -= tag == "label"


@pytest.fixture
def guide(signed_in):
    response = signed_in("viewer").get("/guide")
    assert response.status_code == 200
    return response.text


def test_the_guide_has_unique_ids_and_named_controls(guide):
    outline = Outline()
    outline.feed(guide)
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.described <= set(outline.ids)
    for control_id, named in outline.controls:
        assert named or control_id in outline.labels, control_id


def test_the_guide_is_served_only_with_debug_or_in_tests(signed_in, settings):
    settings.CONSOLE_STYLEGUIDE = False
    assert signed_in("viewer").get("/guide").status_code == 404


def test_a_page_costs_few_queries(signed_in, django_assert_max_num_queries):
    client = signed_in("viewer")
    client.get("/guide")
    with django_assert_max_num_queries(5):  # session, person, roles, waiting approvals, taste
        client.get("/guide")


def test_the_sidebar_shows_only_screens_that_exist_and_marks_the_current_one(signed_in):
    text = signed_in("viewer").get("/act").text
    assert 'data-go="r"' in text and "Dead letters" not in text
    assert "aria-current" not in text
    assert text.count('<nav class="nav"') == 1
