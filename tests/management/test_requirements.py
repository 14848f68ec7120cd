"""The locked requirements: every package pinned and hashed, no index named, one version each."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "requirements"
LOCKS = sorted(FOLDER.glob("*.lock"))


def _pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", path.read_text(), re.MULTILINE))


def test_there_is_a_lock_to_run_one_for_mysql_and_one_to_develop() -> None:
    assert [path.stem for path in LOCKS] == ["dev", "mysql", "run"]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_line_is_a_pin_a_hash_or_a_remark(path: Path) -> None:
    entry = re.compile(r"(#.*|[a-z0-9-]+==\S+ \\| +--hash=sha256:[0-9a-f]{64}( \\)?| +# .*|)")
    assert [line for line in path.read_text().splitlines() if not entry.fullmatch(line)] == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_no_index_is_named(path: Path) -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links", path.read_text())


def test_the_larger_locks_hold_the_smaller_ones_unchanged() -> None:
    run, mysql, dev = (_pins(FOLDER / f"{name}.lock") for name in ("run", "mysql", "dev"))
    assert run.items() < mysql.items() < dev.items()
    assert mysql.keys() - run.keys() == {"mysqlclient"}
