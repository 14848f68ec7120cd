"""Crowds: 64 clients at one cap, every process at one key; plain SQL looks at each round."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kernel import usage
from tests.support import lives
from tests.support.client import Answer
from tests.support.house import House
from tests.support.racers import Racers
from tests.support.sizes import sized

pytestmark = [
    pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST"),
    pytest.mark.timeout(sized(120, 900)),
]

ROUNDS = sized(6, 500)
PROCESSES = pytest.mark.parametrize("processes", sized([4], [2, 4, 8]))
CLIENTS = 64
HOLD_NANO = 150_000_000


def _capped_accounts() -> list[tuple[str, int]]:
    """An account a round, and how many of the clients it has room for: 0 to 64 of 64, and a bit."""
    usage.add_price(
        provider="own",
        model="capped",
        rates={"input": "0", "output": "100"},
        valid_from_at=None,
        actor=lives.ACTOR,
        confirm=True,
    )
    lives.add_service("capped", price_provider="own", price_model="capped", max_output_tokens=1500)
    made = [(f"cap-{number}", number * 11 % (CLIENTS + 1)) for number in range(ROUNDS)]
    for account, room in made:
        lives.open_account(account, cap_nano=room * HOLD_NANO + HOLD_NANO // 2)
    return made


@PROCESSES
def test_of_64_clients_at_a_cap_exactly_as_many_are_admitted_as_there_is_room_for(
    house: House, processes: int
) -> None:
    with house.office():
        accounts = _capped_accounts()
    racers = Racers(house, processes=processes, threads=CLIENTS // processes)
    told = racers.race(
        "admit",
        [
            [
                {"operation_id": f"op-{n}", "account": account, "service": "capped"}
                for n in range(CLIENTS)
            ]
            for account, _ in accounts
        ],
    )
    found = house.rows(
        "SELECT a.id, a.cap_nano, a.held_nano, a.consumed_nano, COUNT(r.id) AS requests,"
        " COALESCE(SUM(r.hold_nano), 0) AS holds FROM bz_usage_accounts a"
        " LEFT JOIN bz_usage_requests r ON r.account_id = a.id GROUP BY a.id"
    )
    rows = {row["id"]: row for row in found}
    for (account, room), answers in zip(accounts, told, strict=True):
        row = rows[account]
        said = Counter("admitted" if state == "admitted" else name for state, name in answers)
        assert said == Counter({"admitted": room}) + Counter({"cap_reached": CLIENTS - room})
        assert (row["requests"], row["consumed_nano"]) == (room, 0)
        assert row["held_nano"] == row["holds"] == room * HOLD_NANO <= row["cap_nano"]
    house.verify()


@pytest.mark.parametrize("processes", sized([6], [2, 4, 8]))
def test_of_processes_that_post_one_key_at_once_one_calls_and_the_others_get_its_answer(
    house: House, processes: int
) -> None:
    clients = [house.client(kernel) for kernel in house.kernels(processes)]
    operations = [house.operation(f"op{number}") for number in range(ROUNDS)]
    with ThreadPoolExecutor(processes) as threads:
        barrier = Barrier(processes)

        def post(place: int) -> list[Answer]:
            told = []
            for operation in operations:
                barrier.wait(60)
                told.append(clients[place].post(operation))
            return told

        columns = list(threads.map(post, range(processes)))
    requests = house.rows("SELECT id, operation_id, result_state FROM bz_usage_requests")
    ids = {row["operation_id"]: row["id"] for row in requests if row["result_state"] == "complete"}
    assert len(requests) == len(ids) == ROUNDS
    calls = Counter(call.marker for call in house.provider.calls())
    for operation, answers in zip(operations, zip(*columns, strict=True), strict=True):
        assert calls[operation] == 1
        assert {answer.request_id for answer in answers} == {ids[operation]}
        fresh = [answer for answer in answers if answer.status == 200 and not answer.replayed]
        assert len(fresh) == 1
        for answer in answers:
            if answer.status != 200:
                assert json.loads(answer.body)["error"]["code"] in ("not_dispatched", "in_flight")
    house.verify()
