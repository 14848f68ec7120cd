"""What a flow of the sweep is."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernel.access import issue_token
from tests.support import lives

if TYPE_CHECKING:
    from tests.support.sweep import Scene
    from tests.support.sweep_child import Hand

PROVIDER, SHOP, RECEIVER = "provider", "shop", "receiver"
Step = Callable[["Hand"], Awaitable[None]]
# (witness, behaviour, its parameters): what the next call there meets.
Said = tuple[str, str, dict[str, Any]]
SCOPES = ("usage:read", "usage:write", "approvals:read", "approvals:decide", "jobs:write")


async def nothing(hand: "Hand") -> None:
    """Nothing is prepared, or repeated."""


def no_more(scene: "Scene") -> Iterator[str]:
    """The promises say it all."""
    yield from ()


@dataclass(frozen=True)
class Flow:
    """One flow: `prepare` once, then per case `act` in one process and `again` in its replacement.

    `boundaries` is the recorded number: a run that finds fewer fails. `says` is what the witnesses
    do, call by call, `said_before` while it is prepared; after that they answer well. `check` names
    what is not as it must be.
    """

    name: str
    boundaries: int
    act: Step
    again: Step
    prepare: Step = nothing
    says: tuple[Said, ...] = ()
    said_before: tuple[Said, ...] = ()
    check: Callable[["Scene"], Iterator[str]] = no_more
    arrange: Callable[[], None] = lambda: None
    limits: dict[str, str] = field(default_factory=dict)


async def prepare_account(hand: "Hand") -> None:
    """An account with a cap, a priced service at the provider, a token."""

    def make() -> str:
        lives.open_account()
        lives.add_service(base_url=hand.facts["provider_url"])
        return issue_token(
            account_id=lives.ACCOUNT, name="sweep", scopes=SCOPES, actor=lives.ACTOR
        )[1]

    hand.facts["token"] = await hand.db(make)
