"""Flows of model requests: sent, streamed, admitted first, cancelled, read again, settled."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.support.sweep_flow import Flow, prepare_account

if TYPE_CHECKING:
    from tests.support.sweep import Scene
    from tests.support.sweep_child import Hand

OP = "op-sweep"


async def post(hand: "Hand") -> None:
    """One request."""
    await hand.post(OP)


async def post_again(hand: "Hand") -> None:
    """The repeat; what was not sent is dispatched by name, then asked for once more."""
    answer = await hand.post(OP)
    if answer.code == "not_dispatched":
        await hand.call(f"/usage/v1/requests/{OP}/dispatch", b"{}")
    await hand.post(OP)
    await hand.post(OP)


def answered(scene: "Scene") -> Iterator[str]:
    """The last repeats agree: the saved bytes, or that nobody knows; never anything else."""
    last = [answer for operation, answer in scene.answers if operation == OP][-2:]
    words = {(answer.status, answer.code) for answer in last}
    if len(words) != 1 or not words <= {(200, ""), (502, "outcome_unknown")}:
        yield f"the last repeats were answered {sorted(words)}"
    if (502, "outcome_unknown") in words and not scene.may_be("model"):
        yield "the outcome is unknown, though nothing was lost between request and result"


USAGE = (
    Flow(
        name="plain",
        boundaries=11,
        prepare=prepare_account,
        act=post,
        again=post_again,
        check=answered,
    ),
)
