"""Every screen, both themes, at a desk and on a phone: no axe violation, nothing cut off (L).

axe-core runs inside the page through the debugger, so the page keeps its content policy. The rules
are those of WCAG 2.0, 2.1 and 2.2, levels A and AA. What depends on neither size nor theme (names,
roles, order, target size) is asked once per size; contrast in all four combinations, once for
all that is painted alike: a list repeats its row, and contrast is most of axe's time. Whether all
fits, and every row can be told from the next, is asked at laptop widths too.
"""

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Page

from tests.browser.conftest import DESK, LAPTOP, PHONE, Opener, Watch
from tests.browser.console import Console
from tests.browser.screens import REFUSED, SCREENS, address

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
COMMON = {"resultTypes": ["violations"], "preload": False, "iframes": False}
CONTRAST = "color-contrast"
WHOLE = {
    "runOnly": {"type": "tag", "values": LEVELS},
    "rules": {CONTRAST: {"enabled": False}},
    **COMMON,
}
LOOKS = {"runOnly": {"type": "rule", "values": [CONTRAST]}, **COMMON}
PARTS = 8  # of the screens, so that a slow machine ends each in its time
SMALL, USUAL = {"width": 1280, "height": 800}, {"width": 1366, "height": 768}  # more laptops
VIEWS: tuple[tuple[Any, str, list[Any]], ...] = (
    (DESK, "light", [WHOLE, LOOKS]),
    (DESK, "dark", [LOOKS]),
    (LAPTOP, "dark", []),  # it fits, too
    (SMALL, "dark", []),
    (USUAL, "light", []),
    (PHONE, "dark", [WHOLE, LOOKS]),
    (PHONE, "light", [LOOKS]),
)
# A table wider than its frame would lose columns; a field beyond the edge cannot be seen at all.
CUT = """[
  ...[...document.querySelectorAll('.table-wrap')]
    .filter((one) => one.scrollWidth > one.clientWidth + 1),
  ...[...document.querySelectorAll('.filters *, .form *, .actions *')].filter((one) => {
    const box = one.getBoundingClientRect();
    const beyond = box.right > innerWidth + 1 || box.left < -1;
    return box.width && beyond && one.checkVisibility() && !one.closest('.sr-only, .explain-text');
  }),
  ...[...document.querySelectorAll('td .button')].filter((one) => {
    const edge = one.closest('td').getBoundingClientRect().right;
    return one.checkVisibility() && one.getBoundingClientRect().right > edge + 1;
  }),
].map((one) => `${one.className}: ${one.innerText.slice(0, 40)}`)"""

# The cell that says which row it is: its link's, else the first that is no number and no tick.
IDENTITY_PX_MIN = 96
CRUSHED = """(least) => [...document.querySelectorAll('.table tbody tr:first-child')].map((row) =>
  row.querySelector('.row-link')?.closest('td')
    ?? [...row.cells].find((one) => !one.matches('.is-number, .w-check'))
).filter((one) => one?.checkVisibility() && one.getBoundingClientRect().width < least)
.map((one) => `${Math.round(one.getBoundingClientRect().width)} px: ${one.innerText.slice(0, 40)}`)
"""

# What shows text, once for each way of painting it and all that lies behind it. Two of the same
# way have the same contrast, whatever their place in a list.
PAINTED = """() => {
  const ways = new Map(), numbers = new Map([[null, 0]]), found = new Map();
  const number = (one) => {
    if (!numbers.has(one)) {
      const s = getComputedStyle(one);
      const way = [
        number(one.parentElement), s.color, s.backgroundColor, s.backgroundImage, s.opacity,
        s.fontSize, s.fontWeight, s.textShadow, s.position, s.filter, s.mixBlendMode, s.clipPath,
        one.matches(':disabled, [aria-disabled=true]'),
      ].join();
      if (!ways.has(way)) ways.set(way, ways.size + 1);
      numbers.set(one, ways.get(way));
    }
    return numbers.get(one);
  };
  for (const one of document.body.querySelectorAll('*')) {
    const box = one.getBoundingClientRect();
    const says = one.matches('input, select, textarea')
      || [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const seen = box.width && box.height && one.checkVisibility({visibilityProperty: true});
    if (says && seen && !found.has(number(one))) found.set(number(one), one);
  }
  return [...found.values()];
}"""

# The widest age there is: what fits must fit at any hour.
AGED = "document.querySelectorAll('[data-ago]').forEach((one) => one.textContent = '59 min ago')"


def violations(page: Page, options: Any) -> list[str]:
    """The rules that this page breaks, with the first place of each."""
    where = f"({PAINTED})()" if options is LOOKS else "document"
    found = page.evaluate(f"(options) => axe.run({where}, options)", options)["violations"]
    return [
        f"{one['id']} x{len(one['nodes'])} at {one['nodes'][0]['target']}: "
        f"{one['nodes'][0]['failureSummary'][:200]}"
        for one in found
    ]


def faults(page: Page) -> list[str]:
    """All that is wrong with the open page, in every view."""
    page.evaluate(AXE)
    page.evaluate(AGED)
    found = []
    for size, theme, asked in VIEWS:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        where = f"{size['width']} {theme}"
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > size["width"]:
            found.append(f"{where}: {width} px wide")
        found += [f"{where}: cut off {one}" for one in page.evaluate(CUT)]
        crushed = page.evaluate(CRUSHED, IDENTITY_PX_MIN)
        found += [f"{where}: crushed to {one}" for one in crushed]
        for options in asked:
            found += [f"{where}: {one}" for one in violations(page, options)]
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_screen_breaks_a_rule_or_is_cut_off(
    page: Page, watch: Watch, console: Console, part: int
):
    watch.allow(*REFUSED)
    broken = {}
    for name in list(SCREENS)[part::PARTS]:
        answer = page.goto(address(name, console.made))
        assert answer is not None and answer.status in {200, *REFUSED}, (name, answer)
        if found := faults(page):
            broken[name] = found
    assert not broken


def test_sign_in_and_the_open_sheets_break_no_rule(page: Page, open_page: Opener):
    stranger = open_page(signed_in=False)
    stranger.goto("/sign-in/")
    assert faults(stranger) == []
    page.goto("/")
    page.keyboard.press("?")
    assert page.locator("#shortcuts:popover-open").count() == 1
    assert faults(page) == []


# A word in the last row of a list, painted like no other.
PALE = """() => {
  const one = document.createElement('span');
  one.textContent = 'pale';
  one.style.color = 'rgb(130, 130, 130)';
  one.style.backgroundColor = 'rgb(120, 120, 120)';
  document.querySelector('main tbody tr:last-child').firstElementChild.append(one);
}"""


def test_the_check_sees_a_crushed_identity_where_one_column_takes_its_room(page: Page):
    page.goto("/accounts/")
    page.evaluate("document.querySelector('th.w-state').style.width = '26rem'")
    crushed = {one.split()[0] for one in faults(page) if "crushed" in one}
    assert "1280" in crushed and not crushed & {"1024", "1366"}


def test_the_check_bites(page: Page):
    page.goto("/accounts/")
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    page.evaluate("document.querySelector('.filters').style.marginLeft = '2000px'")
    page.evaluate(PALE)
    found = faults(page)
    assert any("image-alt" in one for one in found)
    assert len([one for one in found if "color-contrast x1" in one]) == 4
    assert any("cut off" in one for one in found)
