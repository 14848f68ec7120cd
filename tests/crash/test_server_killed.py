"""The database server is killed under load and started again: what was acknowledged is there.

The server is one of this file's own, also where the run was given another one.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.faults import FaultRecord
from tests.support.house import House
from tests.support.mariadb_server import MortalServer, mortal_server
from tests.support.provider import ProviderProcess
from tests.support.schemas import Schemas
from tests.support.sizes import sized
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST"),
    pytest.mark.timeout(sized(240, 900)),
]

KILLS = sized(1, 10)
CLIENTS = 12
# Passes that met a dead server wait a minute by default (B5).
QUICK = {"BAILING_BACKOFF_FIRST_SECONDS": "1", "BAILING_BACKOFF_MAX_SECONDS": "2"}
ANSWERS = sized(20, 40)  # whole answers before each kill, and after the last one


@pytest.fixture
def mortal() -> Iterator[MortalServer]:
    with mortal_server() as server:
        yield server


@pytest.fixture
def house(
    mortal: MortalServer,
    schemas: Schemas,
    the_provider: ProviderProcess,
    fault_record: FaultRecord,
    django_db_blocker: Any,
) -> Iterator[House]:
    """A case on a server that it may kill."""
    own = Schemas(mortal.server, like=schemas)
    url = own.clone()
    made = House(server=mortal.server, url=url, provider=the_provider, record=fault_record)
    with django_db_blocker.unblock():
        try:
            made.open()
            yield made
            fault_record.cases += 1
            fault_record.planned += len(made.faults)
            fault_record.fired += sum(fault.has_fired() for fault in made.faults)
        finally:
            made.close()
            own.close()


def _whole(house: House) -> int:
    """How many whole answers clients have had so far."""
    return sum(answer.status == 200 and not answer.lost for _, answer in list(house.answers))


def _post_on(house: House, client: Client, place: int, over: threading.Event) -> None:
    """One client: an operation after the other, whatever becomes of them."""
    number = 0
    while not over.is_set():
        answer = client.post(house.operation(f"op{place}.{number}"))
        number += 1
        if answer.status != 200:
            over.wait(0.05)


def _settles(house: House) -> None:
    """Until no call is under way, and everything that can be charged is charged."""
    wait_until(
        lambda: (
            not house.rows(
                "SELECT 1 FROM bz_usage_requests WHERE result_state = 'dispatched'"
                " OR (billing_state = 'pending' AND usage_text <> '') LIMIT 1"
            )
        ),
        90,
        about="every lease has ended and what was used is charged",
        look_every=0.2,
    )


def test_the_database_server_killed_under_load_keeps_what_it_acknowledged_and_the_kernels_go_on(
    house: House, mortal: MortalServer, fault_record: FaultRecord
) -> None:
    kernels = [house.kernel(limits=QUICK) for _ in range(2)]
    clients = [house.client(kernel) for kernel in kernels]
    house.plan(f"database server: {KILLS} kills", lambda: mortal.kills == KILLS)
    over = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as threads:
        posting = [
            threads.submit(_post_on, house, clients[place % 2], place, over)
            for place in range(CLIENTS)
        ]
        try:
            for number in range(KILLS + 1):
                before = _whole(house)
                wait_until(
                    lambda seen=before: _whole(house) >= seen + ANSWERS,
                    90,
                    about=f"{ANSWERS} whole answers after {number} kills",
                    look_every=0.02,
                )
                if number < KILLS:
                    fault_record.kills += 1
                    mortal.kill()
                    mortal.start()
        finally:
            over.set()
        for each in posting:
            each.result()
    house.look_anew()
    assert all(kernel.is_running() for kernel in kernels)
    _settles(house)
    answered = {op: answer.body for op, answer in house.answers if answer.status == 200}
    rows = house.rows("SELECT operation_id FROM bz_usage_requests WHERE result_state = 'complete'")
    assert answered.keys() <= {row["operation_id"] for row in rows}
    for operation in list(answered)[-CLIENTS:]:
        again = clients[0].post(operation)
        assert (again.status, again.replayed, again.body) == (200, True, answered[operation])
    house.verify()
