"""The last commit against an older one: the same parts of the benchmark, in turns."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = Path("docs") / "benchmarks.md"
PARTS = ("gateway", "settlement", "decisions", "claims")
JUDGED = re.compile(
    r"^- (?P<what>.+?): target .+?, measured \*\*(?P<found>[\d,.]+)(?P<unit>[^*]*)\*\*"
)
HEAD = """## Before and after

The same parts of the benchmark on commit `{before}` (*before*) and `{after}` (*after*), each part
on both before the next one begins, each run on a database of its own.

| measure | before | after | after / before |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One judged line of a section: what, its figure, its unit."""

    what: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.value:,g}{self.unit}"


def figures(section: str) -> list[Figure]:
    """The judged figures of a section, in their order."""
    return [
        Figure(found["what"], float(found["found"].replace(",", "")), found["unit"])
        for line in section.splitlines()
        if (found := JUDGED.match(line))
    ]


def text(before: str, after: str, pairs: list[tuple[Figure, Figure]]) -> str:
    """The section of the document."""
    rows = [f"| {old.what} | {old} | {new} | {new.value / old.value:.2f} |" for old, new in pairs]
    return HEAD.format(before=before, after=after) + "\n".join(rows) + "\n"


def measure(commit: str, *, parts: tuple[str, ...] = PARTS) -> str:
    """Run the parts on both trees, which takes about four minutes each; the section."""
    before_name, after_name = (_git("rev-parse", "--short", name) for name in (commit, "HEAD"))
    pairs: list[tuple[Figure, Figure]] = []
    with _tree(commit) as before, _tree("HEAD") as after:
        for part in parts:
            old, new = (_figures_of(tree, part) for tree in (before, after))
            by_what = {figure.what: figure for figure in old}
            pairs += [(by_what[figure.what], figure) for figure in new if figure.what in by_what]
    return text(before_name, after_name, pairs)


def _figures_of(tree: Path, part: str) -> list[Figure]:
    (tree / OUT).unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.bench", "--only", part]
    subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return figures((tree / OUT).read_text(encoding="utf-8"))


@contextmanager
def _tree(commit: str) -> Iterator[Path]:
    """The files of a commit, for as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="bz-bench-") as place:
        path = Path(place) / "tree"
        _git("worktree", "add", "--detach", str(path), commit)
        try:
            yield path
        finally:
            _git("worktree", "remove", "--force", str(path))


def _git(*words: str) -> str:
    ended = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return ended.stdout.strip()
