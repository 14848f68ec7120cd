"""Races between deciders through every door, over real HTTP: one wins, the others learn who."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from kernel import clock
from kernel.access import add_person, add_signing_key
from kernel.delivery.signing import sign
from kernel.ids import new_id
from tests.support import lives, work_data
from tests.support.client import Answer, Client
from tests.support.desk import Desk
from tests.support.house import House
from tests.support.kernel_process import KernelProcess
from tests.support.person import Person
from tests.support.sizes import FULL, proof_size, sized

pytestmark = pytest.mark.mysql("BAILING_APPROVAL_CONTINUATION_TEST_MYSQL")

APPROVALS, REPEATS = sized(10, 50), 20
PEOPLE, TOKENS, SIGNERS = 4, 6, 6
SIGNING = {"SHOP_SIGNING": "the secret that the shop signs with"}
PASSWORD = "a long enough password 1"
DECIDED = ("decision", "decision_id", "decided_by", "decided_by_kind", "decided_at", "reason")


@dataclass(frozen=True)
class Told:
    """What one decider was answered: the status, and the text that tells who decided."""

    door: str
    status: int
    text: str


Decide = Callable[[], Told]


def _by_person(person: Person, approval_id: str) -> Decide:
    """The form is rendered before the race, as a page that is open on many screens."""
    page = f"/approvals/{approval_id}/approve/"
    hidden = person.hidden(page, page)

    def decide() -> Told:
        answer = person.post(page, hidden, reason="looks right")
        return Told("console", answer.status_code, answer.text)

    return decide


def _post(port: int, approval_id: str, body: bytes, headers: dict[str, str]) -> Answer:
    client = Client(port, "", on_answer=lambda name, answer: None)
    path = f"/v1/approvals/{approval_id}/decision"
    return client.call("POST", path, body, headers=headers)


def _body(**more: str) -> bytes:
    value = {"decision": "approved", "decision_id": new_id("dec"), "reason": "", **more}
    return json.dumps(value).encode()


def _by_token(port: int, token: str, approval_id: str) -> Decide:
    def decide() -> Told:
        headers = {"Authorization": f"Bearer {token}"}
        answer = _post(port, approval_id, _body(), headers)
        return Told("api", answer.status, answer.body.decode())

    return decide


def _by_signature(port: int, approval_id: str) -> Decide:
    def decide() -> Told:
        body = _body(approval_id=approval_id)
        headers = sign(
            message_id=new_id("msg"),
            signed_at=clock.now(),
            body=body,
            secrets=list(SIGNING.values()),
        )
        answer = _post(port, approval_id, body, headers)
        return Told("callback", answer.status, answer.body.decode())

    return decide


def _at_once(deciders: list[Decide], threads: ThreadPoolExecutor) -> list[Told]:
    barrier = threading.Barrier(len(deciders))

    def run(decide: Decide) -> Told:
        barrier.wait(60)
        return decide()

    return list(threads.map(run, deciders))


@pytest.fixture
def people(house: House) -> Iterator[list[Callable[[KernelProcess], Person]]]:
    """Approvers; each signs in at the kernel it is given."""
    names = [f"approver-{number}" for number in range(PEOPLE)]
    with house.office():
        for name in names:
            add_person(name=name, role="approver", password=PASSWORD, actor=lives.ACTOR)
    with ExitStack() as stack:

        def signed_in(name: str, kernel: KernelProcess) -> Person:
            person = stack.enter_context(Person(f"http://127.0.0.1:{kernel.port}"))
            person.sign_in(name, PASSWORD)
            return person

        yield [partial(signed_in, name) for name in names]


def _approvals(house: House) -> list[str]:
    """Jobs that wait, one question each."""
    with house.office():
        work_data.tools_and_routes(service_id=lives.SERVICE)
        asked = [
            work_data.refund(f"order-{number}", account=lives.ACCOUNT)
            for number in range(APPROVALS)
        ]
    return [one.approval_ids[0] for one in asked]


@pytest.mark.timeout(600)  # in full eight hundred requests, a fourth of them to screens
def test_of_sixteen_deciders_over_every_door_one_wins_and_the_others_get_its_name(
    house: House, desk: Desk, people: list[Callable[[KernelProcess], Person]]
) -> None:
    desk.write("DELETE FROM bz_routes")
    with house.office():
        add_signing_key(account_id=lives.ACCOUNT, secret_env="SHOP_SIGNING", actor=lives.ACTOR)
        tokens = [desk.decider(f"decider-{number}") for number in range(TOKENS)]
    kernels = [house.kernel(limits=SIGNING), house.kernel(limits=SIGNING)]
    persons = [sign_in(kernels[n % 2]) for n, sign_in in enumerate(people)]
    wins: Counter[str] = Counter()
    approval_ids = _approvals(house)
    with ThreadPoolExecutor(PEOPLE + TOKENS + SIGNERS) as threads:
        for approval_id in approval_ids:
            deciders = [
                *threads.map(lambda person, a=approval_id: _by_person(person, a), persons),
                *(_by_token(kernels[n % 2].port, t, approval_id) for n, t in enumerate(tokens)),
                *(_by_signature(kernels[n % 2].port, approval_id) for n in range(SIGNERS)),
            ]
            wins[_one_won(house, approval_id, _at_once(deciders, threads))] += 1
    assert sum(wins.values()) == APPROVALS
    if proof_size() == FULL:  # a few rounds may all end in one way, and no promise is broken by it
        assert len(wins) > 1, f"every race was won at the same door: {wins}"
    house.verify()


def _one_won(house: House, approval_id: str, told: list[Told]) -> str:
    """The door of the winner. One decision, one audit row, one admission; losers know the name."""
    (row,) = house.rows(
        "SELECT a.*, j.state AS job_state, j.approval_continuation_keys AS markers,"
        " (SELECT COUNT(*) FROM bz_audit WHERE subject = CONCAT('approval:', a.id)"
        " AND action = 'approval.decided') AS decided,"
        " (SELECT COUNT(*) FROM bz_approval_continuations c WHERE c.approval_id = a.id) AS owed"
        " FROM bz_approvals a JOIN bz_jobs j ON j.id = a.job_id WHERE a.id = %s",
        approval_id,
    )
    assert (row["state"], row["decided"], row["owed"]) == ("approved", 1, 1)
    assert row["job_state"] == "queued"
    assert json.loads(row["markers"]) == [f"{approval_id}.{row['decision_id']}"]
    won = [each for each in told if each.status in (200, 303)]
    lost = [each for each in told if each.status == 409]
    assert (len(won), len(lost)) == (1, len(told) - 1), Counter(each.status for each in told)
    for each in lost:
        if each.door == "console":
            assert row["decided_by_id"] in each.text
            continue
        error = json.loads(each.text)["error"]
        assert (error["code"], error["by"]) == ("already_decided", row["decided_by_id"])
        assert error["by_kind"] == row["decided_by_kind"]
    return won[0].door


def test_the_same_decision_twenty_times_at_once_is_one_decision_and_one_execution(
    house: House, desk: Desk
) -> None:
    kernels = [desk.kernel(), desk.kernel()]
    asked = desk.ask()
    barrier = threading.Barrier(REPEATS)

    def decide(number: int) -> Answer:
        barrier.wait(60)
        return desk.decide(kernels[number % 2], asked)

    with ThreadPoolExecutor(REPEATS) as threads:
        answers = list(threads.map(decide, range(REPEATS)))
    assert {answer.status for answer in answers} == {200}
    documents: list[dict[str, Any]] = [answer.json for answer in answers]
    assert len({json.dumps([each[name] for name in DECIDED]) for each in documents}) == 1
    assert [each["replayed"] for each in documents].count(False) == 1
    desk.ends(asked, "done", calls=1)
    house.verify()
