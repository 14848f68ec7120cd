"""The field cases of identity, settlement and streams: what went wrong elsewhere, right here."""

import asyncio
import json

import pytest

from kernel import usage
from kernel.errors import Conflict, InvalidInput
from kernel.models import Account, LedgerRow, Request
from kernel.states import Billing
from kernel.usage.admission import Admission, check_operation_id
from kernel.usage.gateway import Flight
from kernel.usage.settlement import settlement_page
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.support.product import (
    OPERATOR,
    again,
    ask,
    assert_invariants,
    generate,
    look,
    make_account,
    make_service,
    running_kernel,
    settled,
    stream_bytes,
)
from tests.support.provider import ProviderProcess
from tests.usage.flow import (
    CHARGE_NANO,
    USAGE,
    admit_all,
    answered,
    at_once,
    body_with,
    dispatched,
    outcome_of,
    result_of,
    row_of,
    saved,
    states,
    states_now,
    the_request,
)


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_service(max_output_tokens=100)


# --- identity ---------------------------------------------------------------------------------


async def test_g01_posting_again_after_a_client_timeout_returns_the_saved_body(
    shop: ProviderProcess,
) -> None:
    shop.next("hold", marker="op-1")
    async with running_kernel() as kernel:
        item = ask("op-1")
        flight = await kernel.gateway.submit(item)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flight.wait_ended(), timeout=0.05)
        shop.release("op-1")
        await settled(kernel)
        found = await kernel.gateway.submit(again(item))
        assert isinstance(found, Admission)
        assert found.request.result_state == "complete"
        assert await look(kernel, lambda: result_of(found.request))
    assert shop.count() == 1


async def test_g02_a_provider_slower_than_our_timeout_is_called_once_and_keeps_the_hold(
    shop: ProviderProcess,
) -> None:
    shop.default("rst")
    async with running_kernel() as kernel:
        change = {"account_id": "acme", "version": 1, "actor": OPERATOR, "cap_nano": 10**12}
        await kernel.database.in_tx(usage.change_account, **change)
        end = await generate(kernel, ask("op-1", max_tokens=5))
        assert end.saved.result_state == "unknown"
        assert (await look(kernel, Account.objects.get)).held_nano > 0
    assert shop.count() == 1


def test_g04_ids_of_durable_steps_are_the_kernels_own_and_no_caller_can_invent_one() -> None:
    with pytest.raises(InvalidInput):
        check_operation_id("job:run-7:3")


def test_g05_the_same_id_with_reworded_content_is_a_conflict_and_keeps_the_first(
    acme: None,
) -> None:
    admit_all(ask("op-1"))
    first = the_request().content_sha256
    (refusal,) = admit_all(ask("op-1", seed=2))
    assert isinstance(refusal, Conflict)
    assert the_request().content_sha256 == first


async def test_g07_a_worker_whose_admission_was_not_acknowledged_recognises_its_row_and_goes_on(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel, running_kernel() as other:
        item = ask("op-1")
        with at_commit("admit", LANDED) as fault:
            found = await kernel.gateway.submit(item)
        assert fault.fired == 1
        assert isinstance(found, Flight), "it is its own, no rival's"
        repeat = await other.gateway.submit(again(item))
        assert isinstance(repeat, Admission), "another worker's repeat only finds it"
        await found.wait_ended()
    assert shop.count() == 1


def test_g08_a_settlement_without_acknowledgement_moves_the_balance_once(acme: None) -> None:
    request_id = answered()
    with at_commit("settle", LANDED), pytest.raises(Exception, match="acknowledged"):
        usage.settle(items=[request_id])
    settlement_page(cursor=None, limit=50)
    assert Account.objects.get().consumed_nano == CHARGE_NANO
    assert LedgerRow.objects.count() == 1


async def test_g10_a_usage_write_that_failed_once_is_settled_by_the_retry_and_never_zero(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        with at_commit("settle", AWAY, times=2) as fault:
            await generate(kernel, ask("op-1"))
            await settled(kernel)
        assert fault.fired == 2
        await kernel.run_pass("settlement")
        row = await look(kernel, the_request)
        assert (row.billing_state, row.billed_nano) == ("settled", CHARGE_NANO)


async def test_g11_after_a_restore_from_backup_only_the_ledger_row_decides(
    shop: ProviderProcess,
) -> None:
    def restore() -> None:
        LedgerRow.objects.all().delete()
        Account.objects.update(consumed_nano=0)
        Request.objects.update(
            billing_state=Billing.PENDING, billed_nano=None, reference_nano=None, settled_at=None
        )

    async with running_kernel() as kernel:
        await generate(kernel, ask("op-1"))
        await settled(kernel)
        await look(kernel, restore)
        await kernel.run_pass("settlement")
        assert await look(kernel, LedgerRow.objects.count) == 1
        assert (await look(kernel, Account.objects.get)).consumed_nano == CHARGE_NANO


def test_g13_a_response_after_its_request_was_given_up_is_still_charged_and_the_overrun_flagged(
    kernel_db: None,
) -> None:
    make_account(cap_nano=2_000_000)
    make_service(max_output_tokens=10)
    fence = dispatched()
    Request.objects.update(lease_expires_at="2020-01-01T00:00:00Z")
    usage.expiry_page(limit=10)
    large = {"prompt_tokens": 9, "completion_tokens": 1000}
    assert saved(outcome_of(fence, body=body_with(large))).applied
    usage.settle(items=[fence.request_id])
    account = Account.objects.get()
    assert account.consumed_nano == 9 * 2500 + 1000 * 10_000 > account.cap_nano
    assert account.overrun_at is not None
    assert_invariants()


def test_g14_reading_a_result_five_times_charges_once(acme: None) -> None:
    request_id = answered()
    usage.settle(items=[request_id])
    for _ in range(5):
        usage.result_body(request=row_of(request_id))
        usage.settle(items=[request_id])
    assert Account.objects.get().consumed_nano == CHARGE_NANO


async def test_g16_one_operation_is_one_charge_however_many_layers_it_passes(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        item = ask("op-1")
        await generate(kernel, item)
        for _ in range(3):
            await kernel.gateway.submit(again(item))
        await settled(kernel)
        await kernel.run_pass("settlement")
        assert await look(kernel, LedgerRow.objects.count) == 1


def test_g17_two_operations_with_one_provider_id_are_two_rows_and_two_charges(acme: None) -> None:
    ids = [answered(name) for name in ("op-1", "op-2")]
    usage.settle(items=ids)
    assert {row_of(each).provider_request_id for each in ids} == {"chatcmpl-213"}
    assert LedgerRow.objects.count() == 2


def test_g19_a_trace_id_shared_by_three_operations_is_no_key(acme: None) -> None:
    raw = ask("x", metadata={"trace": "t-1"}).body
    found = admit_all(*(ask(f"op-{number}", raw=raw) for number in range(3)))
    assert len({one.request.id for one in found}) == 3


# --- settlement -------------------------------------------------------------------------------


async def test_g22_what_a_stopped_process_left_unsettled_is_settled_by_the_next(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        with at_commit("settle", AWAY, times=1000):
            await asyncio.gather(*(generate(kernel, ask(f"op-{n}")) for n in range(30)))
            await settled(kernel)
        assert await look(kernel, LedgerRow.objects.count) == 0
    async with running_kernel() as kernel:
        await kernel.tick()
        await settled(kernel)
        assert await look(kernel, LedgerRow.objects.count) == 30
        assert (await look(kernel, Account.objects.get)).consumed_nano == 30 * CHARGE_NANO


def test_g23_a_page_of_fifty_that_died_rolls_back_whole_and_settles_each_once(acme: None) -> None:
    for number in range(50):
        answered(f"op-{number}")
    with at_commit("settle", VANISHED), pytest.raises(Exception, match="acknowledged"):
        settlement_page(cursor=None, limit=50)
    assert LedgerRow.objects.count() == 0
    assert settlement_page(cursor=None, limit=50).settled == 50
    assert Account.objects.get().consumed_nano == 50 * CHARGE_NANO


def test_g25_two_settlers_in_opposite_order_reach_the_exact_total(acme: None) -> None:
    ids = [answered(f"op-{number}") for number in range(12)]
    at_once(
        *(
            lambda order=order: [usage.settle(items=[each]) for each in order]
            for order in (ids, ids[::-1])
        )
    )
    assert Account.objects.get().consumed_nano == 12 * CHARGE_NANO
    assert_invariants()


def test_g26_a_nul_byte_is_stored_losslessly_and_49_others_settle(acme: None) -> None:
    for number in range(49):
        answered(f"op-{number}")
    body = body_with(USAGE, text="a\u0000b") + b"\x00"
    poisoned = answered("nul", body=body)
    assert settlement_page(cursor=None, limit=50).settled >= 49
    assert result_of(row_of(poisoned)) == body


# --- streams and disconnects ------------------------------------------------------------------


async def test_g29_a_stream_cut_after_three_events_keeps_its_part_and_tells_the_client(
    shop: ProviderProcess,
) -> None:
    shop.next("truncate_sse", marker="op-1", events=3)
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1", stream=True))
        heard = await stream_bytes(flight)
        await settled(kernel)
        assert await look(kernel, states_now) == ("unknown", "pending", "truncated")
        assert json.loads(heard.split(b"data: ")[-1])["error"]["code"] == "outcome_unknown"


async def test_g31_a_failure_inside_a_200_stream_is_a_failure_with_the_usage_it_reports(
    shop: ProviderProcess,
) -> None:
    told = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    shop.next("response_failed", marker="told", usage=told)
    shop.next("response_failed", marker="silent")
    async with running_kernel() as kernel:
        found = {}
        for name in ("told", "silent"):
            flight = await kernel.gateway.submit(ask(name, stream=True))
            await flight.wait_ended()
            await settled(kernel)
            found[name] = await look(kernel, lambda f=flight: states(f.request))
    assert found == {"told": ("failed", "settled", ""), "silent": ("failed", "pending", "no_usage")}


async def test_g34_a_client_that_leaves_before_a_plain_answer_is_charged_in_full(
    shop: ProviderProcess,
) -> None:
    shop.next("hold", marker="op-1")
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1"))
        client = asyncio.create_task(flight.wait_ended())
        await asyncio.to_thread(shop.wait_for_call, "op-1")
        client.cancel()
        shop.release("op-1")
        await settled(kernel)
        assert (await look(kernel, the_request)).billed_nano == CHARGE_NANO


async def test_g35_text_without_a_usage_chunk_is_pending_with_its_hold_and_never_free(
    shop: ProviderProcess,
) -> None:
    shop.next("no_usage", marker="op-1", chunks=806)
    async with running_kernel() as kernel:
        change = {"account_id": "acme", "version": 1, "actor": OPERATOR, "cap_nano": 10**12}
        await kernel.database.in_tx(usage.change_account, **change)
        flight = await kernel.gateway.submit(ask("op-1", stream=True, max_tokens=1000))
        await stream_bytes(flight)
        await settled(kernel)
        await kernel.run_pass("settlement")
        assert await look(kernel, states_now) == ("complete", "pending", "no_usage")
        assert (await look(kernel, Account.objects.get)).held_nano > 0
