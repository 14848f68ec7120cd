"""The tree that docs/architecture.md draws, and what docs/contributing.md names, are there."""

import re
from pathlib import Path

from tests.tidy.tree import ROOT, files, functions

ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "docs" / "contributing.md"
EXAMPLE = "pager"  # the channel that one of its walks adds
NAME = re.compile(r"[\w.-]+(?:/|\.\w+)|Makefile|Dockerfile")


def drawing(text: str) -> list[str]:
    """The lines of the block below the heading "The tree"."""
    return text.split("## The tree", 1)[1].split("```", 2)[1].strip("\n").splitlines()


def drawn_in(lines: list[str]) -> set[str]:
    """The paths that these lines draw: what stands before a line's remark, below its folder.

    A remark begins after two spaces. A word in it that ends in a slash, such as `crash/`, is a
    name too, below the one folder of its line.
    """
    found: set[str] = set()
    folder = ""
    for line in lines:
        names, _, remark = line.strip().partition("  ")
        inner = line.startswith(" ")
        here = [name for name in names.split() if NAME.fullmatch(name)]
        found |= {f"{folder if inner else ''}{name}" for name in here}
        if not inner:
            folder = here[0] if here else ""
        parent = f"{folder if inner else ''}{here[0]}" if len(here) == 1 else ""
        if parent.endswith("/"):
            within = re.findall(r"(?<!\S)[\w-]+/(?=\s|$)", remark)
            found |= {f"{parent}{name}" for name in within}
    return found


def there(folder: str) -> set[str]:
    """The modules and packages directly in a folder, as they are drawn."""
    packages = {f"{path.parent.name}/" for path in (ROOT / folder).glob("*/*.py")}
    modules = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    return {f"{folder}/{name}" for name in packages | modules}


def missing_from(text: str) -> list[str]:
    drawn = drawn_in(drawing(text))
    return sorted(there("kernel") - drawn)


def test_everything_that_is_drawn_exists() -> None:
    drawn = drawn_in(drawing(ARCHITECTURE.read_text()))
    absent = [name for name in drawn if not (ROOT / name).exists()]
    assert len(drawn) > 50 and absent == []
    assert [name for name in drawn if (ROOT / name).is_dir() != name.endswith("/")] == []


def test_every_package_and_module_of_the_kernel_is_drawn() -> None:
    assert missing_from(ARCHITECTURE.read_text()) == []


def test_every_folder_of_the_console_and_of_the_tests_is_drawn() -> None:
    drawn = drawn_in(drawing(ARCHITECTURE.read_text()))
    folders = {name for name in there("console") if name.endswith("/")}
    assert sorted(folders - drawn) == []
    top = {f"{path.parent.name}/" for path in ROOT.glob("*/__init__.py")}
    assert sorted(top - drawn) == []
    own = {name for name in there("tests") if name.endswith("/")}
    own -= {f"tests/{Path(name).name}/" for name in there("kernel") if name.endswith("/")}
    mirrors = {"tests/console/", "tests/kernel/"}
    assert sorted(own - mirrors - drawn) == []


def test_a_drawing_that_lies_would_be_caught() -> None:
    text = ARCHITECTURE.read_text()
    assert missing_from(text.replace("  doctor/ ", "  nowhere/ ")) == ["kernel/doctor/"]
    assert missing_from(text.replace(" csv_cells.py", "")) == ["kernel/csv_cells.py"]
    assert "kernel/nowhere/" in drawn_in(["kernel/    the domain", "  nowhere/   a folder"])


def test_every_file_and_test_that_the_walks_name_exists() -> None:
    text = CONTRIBUTING.read_text()
    paths = set(re.findall(r"\b(?:kernel|console|tests)/[\w/]+\.py\b", text))
    paths -= {"tests/x.py"}
    absent = {path for path in paths if not (ROOT / path).is_file()}
    assert len(paths) > 20 and {path for path in absent if EXAMPLE not in path} == set()
    known = {each.name for path in files("tests") for each in functions(path)}
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 3 and named - known == set()
