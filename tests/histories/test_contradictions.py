"""The check of histories bites: answers that cannot all be true are named."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.histories.contradictions import contradictions
from tests.support.client import Answer


@dataclass
class Told:
    """What a house remembers, as far as the check asks."""

    states: dict[str, str]
    answers: list[tuple[str, Answer]] = field(default_factory=list)

    def request(self, operation: str) -> dict[str, Any]:
        state = self.states.get(operation)
        return {"result_state": state} if state else {}


def whole(*, replayed: bool = False) -> Answer:
    return Answer(200, {"idempotent-replayed": "true" if replayed else "false"}, b"{}")


def refusal(code: str, status: int = 409) -> Answer:
    return Answer(status, {}, json.dumps({"error": {"code": code}}).encode())


@pytest.mark.parametrize(
    ("state", "answers"),
    [
        ("complete", [whole(), whole(replayed=True), whole(replayed=True)]),
        ("complete", [refusal("not_dispatched"), refusal("in_flight"), whole()]),
        ("complete", [refusal("outcome_unknown", 502), whole(replayed=True)]),
        ("unknown", [refusal("in_flight"), refusal("outcome_unknown", 502)]),
        ("unknown", [Answer(lost="RemoteDisconnected"), refusal("outcome_unknown", 502)]),
    ],
)
def test_answers_that_can_all_be_true_are_no_contradiction(
    state: str, answers: list[Answer]
) -> None:
    told = Told({"op": state}, [("op", answer) for answer in answers])
    assert contradictions(told) == []


@pytest.mark.parametrize(
    ("state", "answers", "complaint"),
    [
        ("unknown", [whole()], "answered 200 and is unknown"),
        ("complete", [whole(), whole()], "answered 2 times as if it were the first"),
        ("admitted", [refusal("outcome_unknown", 502)], "answered outcome_unknown and is admitted"),
        ("admitted", [refusal("in_flight")], "answered in_flight and is admitted"),
        ("complete", [refusal("cancelled")], "answered cancelled and is complete"),
        ("complete", [refusal("internal", 500)], "answered internal and is complete"),
        (None, [refusal("in_flight")], "answered in_flight and is gone"),
    ],
)
def test_answers_that_cannot_be_true_are_named(
    state: str | None, answers: list[Answer], complaint: str
) -> None:
    told = Told({"op": state} if state else {}, [("op", answer) for answer in answers])
    (found,) = contradictions(told)
    assert complaint in found
