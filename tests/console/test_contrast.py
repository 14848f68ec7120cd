"""Text and controls reach WCAG 2.2 AA contrast in both themes, computed from the tokens."""

import re
from pathlib import Path

import pytest

TOKENS = (Path(__file__).parents[2] / "static" / "console" / "tokens.css").read_text()
PAIRS = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", TOKENS)
COLOURS = {name: (light, dark) for name, light, dark in PAIRS}
TONES = ("ok", "info", "warn", "danger", "unknown", "calm")
SURFACES = ("canvas", "sidebar", "surface", "raised", "sunken", "hover", "selected")

TEXT = [(text, surface) for text in ("text", "muted") for surface in SURFACES]
TEXT += [
    ("faint", surface) for surface in ("canvas", "sidebar", "surface", "sunken", "raised", "hover")
]
TEXT += [("accent", surface) for surface in ("canvas", "surface", "sunken", "hover")]
TEXT += [(tone, surface) for tone in TONES for surface in ("surface", "hover", "selected")]
TEXT += [(tone, f"{tone}-soft") for tone in TONES]
TEXT += [("text", f"{tone}-soft") for tone in TONES]
TEXT += [("on-accent", "accent"), ("on-accent", "accent-strong"), ("on-danger", "danger-fill")]
TEXT += [("accent-strong", "accent-soft"), ("text", "accent-soft")]
CONTROLS = [("control-line", "surface"), ("control-line", "canvas"), ("accent", "canvas")]
CONTROLS += [("accent", "sidebar"), ("accent", "selected")]


def luminance(colour):
    channels = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "surface"), TEXT)
def test_text_is_readable(theme, text, surface):
    index = ("light", "dark").index(theme)
    assert contrast(COLOURS[text][index], COLOURS[surface][index]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("line", "surface"), CONTROLS)
def test_borders_of_controls_and_focus_rings_are_visible(theme, line, surface):
    index = ("light", "dark").index(theme)
    assert contrast(COLOURS[line][index], COLOURS[surface][index]) >= 3
