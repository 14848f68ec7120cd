"""A generation end to end: one physical call, whoever asks, leaves or cancels (A3, A5, A16)."""

import asyncio
import hashlib
from unittest import mock

import pytest

from kernel import usage
from kernel.conf import conf, override
from kernel.errors import CapReached, Conflict, LostRace
from kernel.models import Request
from kernel.usage import gateway, providers, results
from kernel.usage.admission import Admission
from kernel.usage.gateway import Flight
from tests.support.product import (
    OPERATOR,
    again,
    ask,
    generate,
    look,
    reread,
    running_kernel,
    settled,
)
from tests.support.provider import ProviderProcess
from tests.support.slept import sleeps_after
from tests.usage.flow import result_of, states_now, the_request

# --- one call --------------------------------------------------------------------------------


async def test_a_request_is_sent_once_saved_and_settled(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        end = await generate(kernel, ask("op-1"))
        await settled(kernel)
        row = await look(kernel, the_request)
        assert (row.result_state, row.billing_state) == ("complete", "settled")
        assert row.billed_nano == 62_500
        assert await look(kernel, lambda: result_of(row)) == end.outcome.body
        assert hashlib.sha256(end.outcome.body).hexdigest() == row.result_sha256
        assert kernel.gateway.running == 0
    (call,) = shop.calls("op-1")
    assert call.json["model"] == "upstream-model"
    assert call.headers["idempotency-key"] == row.id, "unique also between accounts"


async def test_a_repeat_is_the_original_request_and_no_call(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        item = ask("op-1")
        await generate(kernel, item)
        found = await kernel.gateway.submit(again(item))
        assert isinstance(found, Admission)
        assert not found.created
    assert shop.count() == 1


async def test_sixteen_at_once_with_one_key_make_one_call(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        item = ask("op-1")
        found = await asyncio.gather(*(kernel.gateway.submit(again(item)) for _ in range(16)))
        (flight,) = [one for one in found if isinstance(one, Flight)]
        await flight.wait_ended()
    assert shop.count() == 1


async def test_two_kernels_and_one_key_make_one_call(shop: ProviderProcess) -> None:
    async with running_kernel() as first, running_kernel() as second:
        item = ask("op-1")
        found = await asyncio.gather(
            *(kernel.gateway.submit(again(item)) for kernel in (first, second) for _ in range(8))
        )
        (flight,) = [one for one in found if isinstance(one, Flight)]
        await flight.wait_ended()
    assert shop.count() == 1


@pytest.mark.parametrize("behaviour", ["close", "rst", "garbage", "status_500", "status_307"])
async def test_whatever_goes_wrong_there_is_no_second_call(
    shop: ProviderProcess, behaviour: str
) -> None:
    shop.default(behaviour)
    async with running_kernel() as kernel:
        end = await generate(kernel, ask("op-1"))
        assert end.saved.result_state == "unknown"
        await kernel.tick()
        await settled(kernel)
    assert shop.count() == 1


async def test_a_provider_that_does_not_answer_in_time_is_unknown_and_called_once(
    shop: ProviderProcess,
) -> None:
    shop.next("hang", marker="op-1")
    async with running_kernel() as kernel:
        with override(provider_deadline_seconds=0.2):
            end = await generate(kernel, ask("op-1"))
        assert end.saved == results.Saved(True, "unknown", "pending")
    assert shop.count("op-1") == 1


async def test_a_generation_outlives_the_caller_that_asked(shop: ProviderProcess) -> None:
    shop.next("hold", marker="op-1")
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1"))
        listening = asyncio.create_task(flight.wait_ended())
        await asyncio.to_thread(shop.wait_for_call, "op-1")
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        shop.release("op-1")
        await settled(kernel)
        assert await look(kernel, states_now) == ("complete", "settled", "")


async def test_a_caller_that_leaves_during_admission_leaves_a_whole_request(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        asking = asyncio.create_task(kernel.gateway.submit(ask("op-1")))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await settled(kernel)
        assert await look(kernel, states_now) == ("complete", "settled", "")


# --- admitted only ---------------------------------------------------------------------------


async def test_an_admitted_request_is_sent_when_asked_and_never_by_itself(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        admission = await kernel.gateway.admit(ask("op-1"))
        await kernel.tick()
        await settled(kernel)
        assert shop.count() == 0
        flight = await kernel.gateway.dispatch(admission.request)
        end = await flight.wait_ended()
        assert end.saved.result_state == "complete"
        await settled(kernel)
    (call,) = shop.calls()
    assert call.json["user"] == "op-1", "the stored body is what is sent"


async def test_of_two_explicit_dispatches_one_sends(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        admission = await kernel.gateway.admit(ask("op-1"))
        flights = [await kernel.gateway.dispatch(admission.request) for _ in range(2)]
        ends = await asyncio.gather(
            *(flight.wait_ended() for flight in flights), return_exceptions=True
        )
        assert sorted(type(end).__name__ for end in ends) == ["Ended", "LostRace"]
    assert shop.count() == 1


async def test_a_refused_admission_is_the_callers_to_know_and_no_failure_of_ours(
    shop: ProviderProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_kernel() as kernel:
        await kernel.gateway.admit(ask("op-1"))
        for verb in (kernel.gateway.admit, kernel.gateway.submit):
            with pytest.raises(Conflict):
                await verb(ask("op-1", temperature=1))
        assert kernel.background.failures.total() == 0
    assert "failed" not in caplog.text
    assert shop.count() == 0


# --- proven not sent -------------------------------------------------------------------------


async def test_a_process_that_slept_past_its_lease_after_the_dispatch_sends_nothing(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have called the request unknown by then, and a person not executed."""
    slept = sleeps_after(
        monkeypatch, gateway, "dispatch", seconds=conf.dispatch_lease_seconds + 1.0
    )
    async with running_kernel() as kernel:
        end = await generate(kernel, ask("op-1"))
        assert slept
        assert end.saved == results.Saved(True, "failed", "not_charged")
        assert end.outcome.error_code == "lease_ended"
    assert shop.count() == 0


async def test_without_its_key_a_call_is_not_sent_and_nothing_is_owed(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    async with running_kernel() as kernel:
        change = {"service_id": "gpt", "version": 1, "actor": OPERATOR, "api_key_env": "SOME_KEY"}
        await kernel.database.in_tx(usage.change_service, **change)
        end = await generate(kernel, ask("op-1"))
        assert end.saved == results.Saved(True, "failed", "not_charged")
        assert end.outcome.error_code == "provider_key_missing"
    assert shop.count() == 0


async def test_a_key_that_is_no_text_is_not_sent_and_the_reason_does_not_show_it(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-\udcff-12345678")  # the byte 0xff, as Python reads it
    async with running_kernel() as kernel:
        change = {"service_id": "gpt", "version": 1, "actor": OPERATOR, "api_key_env": "SOME_KEY"}
        await kernel.database.in_tx(usage.change_service, **change)
        end = await generate(kernel, ask("op-1"))
        assert end.saved == results.Saved(True, "failed", "not_charged")
        assert end.outcome.error_code == "provider_key_unreadable"
        assert end.outcome.error_text == (
            "The environment variable SOME_KEY holds bytes that are no UTF-8."
        )
    assert shop.count() == 0


async def test_the_key_is_read_from_the_environment_at_the_call(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    async with running_kernel() as kernel:
        change = {"service_id": "gpt", "version": 1, "actor": OPERATOR, "api_key_env": "SOME_KEY"}
        await kernel.database.in_tx(usage.change_service, **change)
        await generate(kernel, ask("op-1"))
        row = await look(kernel, lambda: Request.objects.values().get())
        assert "sk-secret" not in repr(row)
    digest = hashlib.sha256(b"Bearer sk-secret").hexdigest()
    assert shop.calls()[0].headers["authorization"] == f"sha256:{digest}"


async def test_a_call_that_cannot_be_built_was_not_sent(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        with mock.patch.object(providers, "build_call", side_effect=ValueError("a defect")):
            end = await generate(kernel, ask("op-1"))
        assert end.saved == results.Saved(True, "failed", "not_charged")
    assert shop.count() == 0


async def test_a_provider_nobody_listens_at_was_not_sent_to(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        change = {"service_id": "gpt", "version": 1, "actor": OPERATOR}
        await kernel.database.in_tx(
            usage.change_service, base_url="http://127.0.0.1:9/v1", **change
        )
        end = await generate(kernel, ask("op-1"))
        assert end.saved == results.Saved(True, "failed", "not_charged")


async def test_a_defect_after_bytes_may_have_left_is_unknown(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        with mock.patch.object(providers, "send", side_effect=ValueError("a defect")):
            end = await generate(kernel, ask("op-1"))
        assert end.saved == results.Saved(True, "unknown", "pending")


# --- cancel ----------------------------------------------------------------------------------


async def test_a_call_cancelled_while_it_runs_is_charged_for_what_it_used(
    shop: ProviderProcess,
) -> None:
    shop.next("hold", marker="op-1")
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1"))
        await asyncio.to_thread(shop.wait_for_call, "op-1")
        await kernel.database.in_tx(
            usage.cancel, request_id=flight.request.id, actor=OPERATOR, reason="changed my mind"
        )
        shop.release("op-1")
        end = await flight.wait_ended()
        assert not end.saved.applied
        await settled(kernel)
        assert await look(kernel, states_now) == ("cancelled", "settled", "")
        row = await look(kernel, lambda: reread(flight.request))
        assert row.billed_nano == 62_500


async def test_a_cancel_before_dispatch_means_no_call(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        admission = await kernel.gateway.admit(ask("op-1"))
        await kernel.database.in_tx(usage.cancel, request_id=admission.request.id, actor=OPERATOR)
        flight = await kernel.gateway.dispatch(admission.request)
        with pytest.raises(LostRace):
            await flight.wait_ended()
    assert shop.count() == 0


# --- caps ------------------------------------------------------------------------------------


async def test_holds_of_running_calls_count_while_no_projection_runs(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        hold = len(ask("op-1").body) * 2500 + 10 * 10_000
        await kernel.database.in_tx(
            usage.change_account, account_id="acme", version=1, actor=OPERATOR, cap_nano=hold * 2
        )
        shop.default("hold")
        items = [ask(f"op-{number}", max_tokens=10) for number in range(1, 6)]
        found = await asyncio.gather(
            *(kernel.gateway.submit(item) for item in items), return_exceptions=True
        )
        assert sum(isinstance(one, CapReached) for one in found) >= 4
        for flight in found:
            if isinstance(flight, Flight):
                await asyncio.to_thread(shop.wait_for_call, flight.request.operation_id)
                shop.release(flight.request.operation_id)
                await flight.wait_ended()
    assert shop.count() <= 1
