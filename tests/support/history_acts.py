"""What may happen in a history: each act with the arguments it may have.

An argument is one of a few plain values; `at` names a process and `pick` an object, counted round
what there is. An act without its object does nothing, so every plan can be played. An act of a
process may meet a fault of its own, `meets`: at its k-th commit the process dies or hears nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.history_outside import HOWS
from tests.support.history_process import FAULTS, CommitFault

if TYPE_CHECKING:
    from tests.support.history_world import World

PROCESSES_MAX = 3
Possible = Callable[["World"], object]  # something, or nothing
AT, PICK, YES_NO = (0, 1, 2), (0, 1, 2, 3), (False, True)
HOUR, DAY = 3600, 86400
PURGES = ("purge",)
# Half of the acts meet nothing.
MEETS = (*[""] * 16, *(f"{what} {k}" for what in FAULTS for k in (1, 2, 3, 4)))


# What the next call meets: every other time nothing.
MET = {kind: (*["ok"] * len(hows), *hows[1:]) for kind, hows in HOWS.items()}


@dataclass(frozen=True, slots=True)
class Act:
    """One act: what it does, the values of its arguments, and when there is something to do."""

    do: Callable[..., None]
    arguments: dict[str, tuple[Any, ...]]
    is_possible: Possible


ACTS: dict[str, Act] = {}


def act(when: Possible = lambda world: True, **arguments: tuple[Any, ...]) -> Any:
    """Register an act."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        ACTS[function.__name__] = Act(function, arguments, when)
        return function

    return register


def act_of_a_process(when: Possible = lambda world: True, **arguments: tuple[Any, ...]) -> Any:
    """Register an act that one of the processes does, and that may meet a fault."""
    return act(when, at=AT, meets=MEETS, **arguments)


def picked(found: list[Any], pick: int) -> Any:
    """One of them, counted round."""
    return found[pick % len(found)]


# --- what lies outside ----------------------------------------------------------------------------


@act(what=tuple(f"{kind} {how}" for kind, hows in HOWS.items() for how in hows))
def outside_will(world: "World", *, what: str) -> None:
    """What the next call of the provider, the shop or the receiver meets."""
    world.outside.plan(*what.split())


@act(lambda world: bool(world.outside.held), pick=PICK, how=("ok", "lost", "refused", "no_usage"))
def answers(world: "World", *, pick: int, how: str) -> None:
    """A call that is held is answered now."""
    world.outside.answer(picked(world.outside.held, pick), how)


# --- processes, time, faults ----------------------------------------------------------------------


@act(at=AT, k=(1, 2, 3, 5, 8, 13), what=FAULTS)
def fault(world: "World", *, at: int, k: int, what: str) -> None:
    """The k-th commit of a process from now on is where it dies, or hears no acknowledgement."""
    world.plan_fault(world.process(at), CommitFault(what, k))


@act(at=AT)
def kill(world: "World", *, at: int) -> None:
    """A process is killed where it stands."""
    world.process(at).kill()


@act(lambda world: len(world.up) + len(world.frozen) < PROCESSES_MAX)
def replacement(world: "World") -> None:
    """One more process, beside those that are there."""
    world.begin_process()


@act(lambda world: len(world.up) > 0, at=AT)
def freeze(world: "World", *, at: int) -> None:
    """A process hangs: it holds what it holds, and does nothing."""
    world.process(at).is_frozen = True


@act(lambda world: bool(world.frozen), pick=PICK)
def thaw(world: "World", *, pick: int) -> None:
    """A process that hung goes on, with the leases and fences of then."""
    picked(world.frozen, pick).is_frozen = False


@act(lambda world: bool(world.up), at=AT)
def close(world: "World", *, at: int) -> None:
    """A process is asked to end, and has ten seconds."""
    process = world.process(at)
    task = world.task(process, process.kernel.close(10))
    world.run(11)
    if task.done():
        process.is_closed = True
    else:
        process.kill()


@act_of_a_process()
def tick(world: "World", *, at: int) -> None:
    """One pass of maintenance."""
    world.tick(world.process(at))


@act(seconds=(1, 5, 20, 70))
def wait(world: "World", *, seconds: int) -> None:
    """Time passes, and who lives works, renews and looks."""
    world.run(seconds)


@act(seconds=(70, 400, HOUR, 2 * DAY, 31 * DAY))
def jump(world: "World", *, seconds: int) -> None:
    """The clock jumps: leases and questions end, retention is over, before anybody renews."""
    world.clock.move(seconds)
    if seconds > HOUR and world.up:
        world.tick(world.up[0], PURGES)
