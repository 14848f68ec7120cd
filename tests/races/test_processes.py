"""Races between whole kernels in processes of their own, through their HTTP doors."""

import re
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel import usage
from tests.support import lives
from tests.support.client import Answer, Client
from tests.support.house import House
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_USAGE_TEST_MYSQL")


def _at_once(clients: list[Client], operations: list[str], **fields: object) -> list[Answer]:
    """Each client posts its operation at the same moment."""
    barrier = threading.Barrier(len(clients))

    def post(client: Client, operation: str) -> Answer:
        barrier.wait(60)
        return client.post(operation, **fields)

    with ThreadPoolExecutor(len(clients)) as threads:
        return list(threads.map(post, clients, operations))


def test_eight_processes_at_a_cap_that_has_room_for_one_admit_exactly_one(house: House) -> None:
    """G79, G28: cap 1.00, settled 0.80, eight at once that hold 0.15 each."""
    with house.office():
        usage.add_price(
            provider="own",
            model="capped",
            rates={"input": "0", "output": "100"},
            valid_from_at=None,
            actor=lives.ACTOR,
            confirm=True,
        )
        lives.add_service(
            "capped",
            base_url=house.provider.base_url,
            price_provider="own",
            price_model="capped",
            max_output_tokens=1500,
        )
        usage.change_account(
            account_id=lives.ACCOUNT, version=1, cap_nano=1_000_000_000, actor=lives.ACTOR
        )
        fence = lives.dispatched(house.operation("before"), service="capped")
        spent = {"prompt_tokens": 0, "completion_tokens": 8000, "total_tokens": 8000}
        lives.save(lives.answer_of(fence, metering=spent))
        lives.settle(fence.request_id)
    assert house.account()["consumed_nano"] == 800_000_000
    operations = [house.operation(f"op{number}") for number in range(8)]
    for operation in operations:
        house.provider.next("hold", marker=operation)
    clients = [house.client(kernel) for kernel in house.kernels(8)]
    with ThreadPoolExecutor(1) as thread:
        posted = thread.submit(_at_once, clients, operations, service="capped")
        wait_until(lambda: len(house.answers) == 7, 60, about="seven processes were answered")
        assert house.account()["held_nano"] == 150_000_000
        (admitted,) = house.rows(
            "SELECT operation_id FROM bz_usage_requests WHERE result_state = 'dispatched'"
        )
        house.provider.release(admitted["operation_id"])
        answers = posted.result()
    refused = [answer for answer in answers if answer.status == 402]
    assert len(refused) == 7
    assert {answer.code for answer in refused} == {"cap_reached"}
    house.wait_states(admitted["operation_id"], "complete", "settled")
    assert house.account()["held_nano"] == 0
    house.verify()


def test_two_kernels_that_settle_one_page_charge_each_request_once(house: House) -> None:
    with house.office():
        lives.complete_many([f"op-{number}" for number in range(20)])
    first = house.kernel(stops=[("settle", "before")])
    first.wait_stopped("settle", "before")
    second = house.kernel()
    house.wait_for_a_lock()
    first.release("settle", "before")
    house.wait_states("op-19", "complete", "settled")
    first.stop()
    house.wait_maintained(second)
    assert house.account()["consumed_nano"] == 20 * lives.CHARGE_NANO
    assert house.account()["held_nano"] == 0
    house.verify()


def _answered(port: int) -> float:
    """Answers of the class 2xx that one process has counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as scraped:
        text = scraped.read().decode()
    (count,) = re.findall(r'bailing_api_answers_total\{status="2xx"\} ([\d.e+]+)', text)
    return float(count)


def test_the_counters_of_two_processes_only_grow_and_add_up(house: House) -> None:
    """Each process has an address of its own: no scrape falls back to what another counted."""
    kernels = house.kernels(2)
    clients = [house.client(kernel) for kernel in kernels]
    seen = [[_answered(kernel.port)] for kernel in kernels]
    for number in range(8):
        assert clients[number % 2].post(house.operation(f"op{number}")).status == 200
        for counts, kernel in zip(seen, kernels, strict=True):
            counts.append(_answered(kernel.port))
    for counts in seen:
        assert counts == sorted(counts) and counts[-1] - counts[0] == 4
    house.verify()
