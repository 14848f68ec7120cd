"""Which cases of a flow are run: all of them in full size, a fixed spread every day.

Every day each flow has its dry run, which counts the boundaries. Then one boundary is killed on
SQLite, another one on the server, and there one commit meets one of the faults: each time others,
so that the flows together reach the beginning, the middle and the end, and every fault.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tests.support.sizes import FULL, proof_size
from tests.support.sweep import EVERY_FAULT, Scene
from tests.support.sweep_places import Boundary

Scenes = Callable[[str], Scene]
T = TypeVar("T")
SECONDS_MAX = 1800  # of one flow in full size, on a busy machine


def sweep(scene: Scene) -> None:
    """Every boundary x SIGKILL; on a server also every commit x every lost acknowledgement."""
    found = scene.boundaries()
    kills = [partial(scene.killed_at, boundary) for boundary in _kills(scene, found)]
    faults = [partial(scene.unacknowledged, *pair) for pair in _faults(scene, found)]
    _run_all([*kills, *faults])


def _kills(scene: Scene, found: Sequence[Boundary]) -> list[Boundary]:
    if proof_size() == FULL:
        return list(found)
    return [_one_of(found, scene, later=0 if scene.has_server else len(found) // 2)]


def _faults(scene: Scene, found: Sequence[Boundary]) -> list[tuple[Boundary, str]]:
    commits = [boundary for boundary in found if boundary.is_commit]
    if not (scene.has_server and commits):
        return []
    if proof_size() == FULL:
        return [(commit, fault) for commit in commits for fault in EVERY_FAULT]
    return [(_one_of(commits, scene), _one_of(EVERY_FAULT, scene))]


def _one_of(found: Sequence[T], scene: Scene, *, later: int = 0) -> T:
    """Always the same one for a flow, another one for the next."""
    return found[(sum(map(ord, scene.flow.name)) + later) % len(found)]


def _run_all(cases: "Sequence[partial[list[str]]]") -> None:
    """Run every case, then say what is broken in any of them."""
    broken: list[str] = []
    for case in cases:
        try:
            broken += case()
        except AssertionError as error:
            broken.append(f"{', '.join(map(str, case.args))}: {error}")
    assert not broken, "\n".join(broken)
