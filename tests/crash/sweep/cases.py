"""Which cases of a flow are run: all of them in full size, a fixed spread every day.

Every day each flow has its dry run, which counts the boundaries. Then one boundary is killed on
SQLite; on the server another one is killed, or one commit meets one of the faults, in turn. Of each
flow it is always the same, and another than of the next: together they reach the beginning, the
middle and the end, and every fault.
"""

from collections.abc import Callable, Sequence
from functools import partial

from tests.support.sizes import FULL, proof_size
from tests.support.sweep import EVERY_FAULT, Scene
from tests.support.sweep_flows import FLOWS
from tests.support.sweep_places import Boundary

Scenes = Callable[[str], Scene]
STRIDE = 7  # prime, so that flows of one length do not begin at one place
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
    turn = _turn(scene)
    if scene.has_server:
        return [found[turn * STRIDE % len(found)]] if turn % 2 else []
    return [found[(turn * STRIDE + len(found) // 2) % len(found)]]


def _faults(scene: Scene, found: Sequence[Boundary]) -> list[tuple[Boundary, str]]:
    if not scene.has_server:
        return []
    commits = [boundary for boundary in found if boundary.is_commit]
    if proof_size() == FULL:
        return [(commit, fault) for commit in commits for fault in EVERY_FAULT]
    turn = _turn(scene)
    here = commits[turn * STRIDE % len(commits)], EVERY_FAULT[turn // 2 % len(EVERY_FAULT)]
    return [] if turn % 2 else [here]


def _turn(scene: Scene) -> int:
    """The number of the flow."""
    return list(FLOWS).index(scene.flow.name)


def _run_all(cases: "Sequence[partial[list[str]]]") -> None:
    """Run every case, then say what is broken in any of them."""
    broken: list[str] = []
    for case in cases:
        try:
            broken += case()
        except AssertionError as error:
            broken.append(f"{', '.join(map(str, case.args))}: {error}")
    assert not broken, "\n".join(broken)
