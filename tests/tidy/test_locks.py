"""The lock files serve every Python that the README names, not only the one that made them."""

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYTHONS = ("3.11.0", "3.12.0", "3.13.0", "3.14.0")  # the first of each kind: the most is missing
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", re.MULTILINE)


def lacking(lock: str) -> list[str]:
    """Each requirement of a locked package, on some Python, that the lock has not."""
    locked = {canonicalize_name(name) for name in PINNED.findall(Path(lock).read_text("utf-8"))}
    assert len(locked) > 20, lock
    found = set()
    for package in locked:
        try:
            asked = requires(package) or []
        except PackageNotFoundError:  # of another platform
            continue
        for line in asked:
            one = Requirement(line)
            if one.marker is None or "extra" in str(one.marker):
                continue
            for python in PYTHONS:
                here = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
                if one.marker.evaluate(here) and canonicalize_name(one.name) not in locked:
                    found.add(f"{package} needs {one.name} on Python {python}")
    return sorted(found)


@pytest.mark.parametrize("name", ["run", "mysql", "dev"])
def test_a_lock_lacks_nothing_on_any_python_that_may_be_used(name: str) -> None:
    assert lacking(f"requirements/{name}.lock") == []


def test_a_lock_without_what_an_older_python_needs_would_be_seen(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    text = Path("requirements/run.lock").read_text("utf-8")
    lock.write_text(text.replace("async-timeout==", "# async-timeout=="), "utf-8")
    assert lacking(str(lock)) == ["redis needs async-timeout on Python 3.11.0"]
