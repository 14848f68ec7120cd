"""Races between verbs, as theorems: whoever wins, nothing is sent twice, lost or charged twice."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kernel import usage
from kernel.errors import LostRace
from kernel.models import Account, Request
from kernel.states import Billing, Result
from kernel.usage.dispatch import Fence
from kernel.usage.results import Saved
from tests.support import lives
from tests.support.house import House
from tests.support.together import race

pytestmark = pytest.mark.mysql("BAILING_USAGE_TEST_MYSQL")
ROUNDS = 25


@pytest.fixture(autouse=True)
def office(house: House) -> Iterator[None]:
    """This process's verbs work on the case's database."""
    with house.office():
        yield


def _cancel(request_id: str) -> str:
    return usage.cancel(request_id=request_id, actor=lives.ACTOR, reason="changed my mind")


def _settle_everything() -> None:
    ids = Request.objects.filter(billing_state=Billing.PENDING).values_list("id", flat=True)
    for request_id in ids:
        lives.settle(request_id)


def test_of_two_dispatches_of_one_request_exactly_one_gets_the_fence(house: House) -> None:
    requests = [lives.admitted(f"op-{n}") for n in range(ROUNDS)]
    rounds = [
        (partial(lives.dispatch, each, owner="krn_a"), partial(lives.dispatch, each, owner="krn_b"))
        for each in requests
    ]
    for request, results in zip(requests, race(house.url, rounds), strict=True):
        (fence,) = [result for result in results if isinstance(result, Fence)]
        (lost,) = [result for result in results if isinstance(result, LostRace)]
        assert lost.error_code == "not_admitted"
        assert lives.read(request.id).fence_token == fence.token
    house.verify()


def test_a_cancelled_request_that_is_not_charged_was_never_dispatched(house: House) -> None:
    requests = [lives.admitted(f"op-{n}") for n in range(ROUNDS)]
    rounds = [(partial(lives.dispatch, each), partial(_cancel, each.id)) for each in requests]
    for request, (dispatched, billing) in zip(requests, race(house.url, rounds), strict=True):
        row = lives.read(request.id)
        assert row.result_state == Result.CANCELLED
        if isinstance(dispatched, Fence):
            assert billing == row.billing_state == Billing.PENDING
        else:
            assert isinstance(dispatched, LostRace)
            assert billing == row.billing_state == Billing.NOT_CHARGED
    house.verify()


def test_what_was_used_is_charged_once_whether_the_cancel_or_the_result_came_first(
    house: House,
) -> None:
    fences = [lives.dispatched(f"op-{n}") for n in range(ROUNDS)]
    rounds = [
        (partial(lives.save, lives.answer_of(fence)), partial(_cancel, fence.request_id))
        for fence in fences
    ]
    results = race(house.url, rounds)
    _settle_everything()
    for fence, (saved, cancelled) in zip(fences, results, strict=True):
        row = lives.read(fence.request_id)
        assert (row.billing_state, row.billed_nano) == (Billing.SETTLED, lives.CHARGE_NANO)
        assert isinstance(saved, Saved)
        if saved.applied:
            assert row.result_state == Result.COMPLETE
            assert isinstance(cancelled, LostRace)
        else:
            assert row.result_state == Result.CANCELLED
    account = Account.objects.get(id=lives.ACCOUNT)
    assert (account.consumed_nano, account.held_nano) == (ROUNDS * lives.CHARGE_NANO, 0)
    house.verify()


def _lose_lease(fence: Fence) -> Request:
    lives.let_lease_end(fence.request_id)
    usage.expiry_page(limit=200)
    row = lives.read(fence.request_id)
    assert row.result_state == Result.UNKNOWN
    return row


def _resolve(row: Request, **evidence: Any) -> Request:
    return usage.resolve_unknown(
        request_id=row.id,
        evidence=usage.Evidence(**evidence),
        note="looked it up at the provider",
        actor=lives.ACTOR,
        seen_updated_at=row.updated_at,
    )


def test_a_late_result_of_the_original_fence_and_an_operator_never_both_win(house: House) -> None:
    fences = [lives.dispatched(f"op-{n}") for n in range(ROUNDS)]
    unknown = [_lose_lease(fence) for fence in fences]
    rounds = [
        (partial(lives.save, lives.answer_of(fence)), partial(_resolve, row, executed=False))
        for fence, row in zip(fences, unknown, strict=True)
    ]
    results = race(house.url, rounds)
    _settle_everything()
    for fence, (saved, resolved) in zip(fences, results, strict=True):
        row = lives.read(fence.request_id)
        if saved.applied:
            assert isinstance(resolved, LostRace)
            assert (row.result_state, row.billed_nano) == (Result.COMPLETE, lives.CHARGE_NANO)
        else:
            assert isinstance(resolved, Request)
            assert (row.result_state, row.billing_state) == (Result.FAILED, Billing.NOT_CHARGED)
            assert row.late_usage_text, "the late metering is evidence"
            assert row.billed_nano is None
    house.verify()


def test_a_worker_that_lost_its_lease_saves_only_under_its_original_fence(house: House) -> None:
    fence = lives.dispatched("op-own")
    stranger = lives.dispatched("op-stranger")
    _lose_lease(fence)
    forged = lives.answer_of(
        Fence(fence.request_id, fence.owner, stranger.token, fence.lease_expires_at, fence.service)
    )
    assert lives.save(forged) == Saved(False, "", "")
    assert lives.read(fence.request_id).result_state == Result.UNKNOWN
    assert lives.save(lives.answer_of(fence)).applied
    assert lives.read(fence.request_id).result_state == Result.COMPLETE
    house.verify()


def test_a_worker_that_lost_its_lease_changes_nothing_once_an_operator_has_resolved(
    house: House,
) -> None:
    fence = lives.dispatched("op-resolved")
    _resolve(_lose_lease(fence), executed=True, usage=lives.USAGE)
    before = lives.read(fence.request_id)
    assert not lives.save(lives.answer_of(fence)).applied
    after = lives.read(fence.request_id)
    assert (after.result_state, after.billing_state) == (Result.FAILED, Billing.SETTLED)
    assert after.billed_nano == before.billed_nano == lives.CHARGE_NANO
    assert after.result_sha256 == ""
    house.verify()


def test_two_settlers_of_one_page_charge_each_request_once(house: House) -> None:
    ids = lives.complete_many([f"op-{n}" for n in range(50)])
    forward, backward = partial(usage.settle, items=ids), partial(usage.settle, items=ids[::-1])
    (results,) = race(house.url, [(forward, backward)])
    assert all(one.billing_state == Billing.SETTLED for page in results for one in page)
    account = Account.objects.get(id=lives.ACCOUNT)
    assert (account.consumed_nano, account.held_nano) == (50 * lives.CHARGE_NANO, 0)
    house.verify()


def test_admissions_and_settlements_that_meet_on_the_same_accounts_lose_nothing(
    house: House,
) -> None:
    """G25: settlers of the same accounts in opposite order, while those accounts admit."""
    lives.open_account("beta")
    names = [lives.ACCOUNT, "beta"]
    ready = {
        name: lives.complete_many([f"op-{n}" for n in range(2 * ROUNDS)], account=name)
        for name in names
    }
    rounds = [
        (
            partial(usage.settle, items=[ready[names[0]][n], ready[names[1]][n]]),
            partial(usage.settle, items=[ready[names[1]][-n - 1], ready[names[0]][-n - 1]]),
            partial(lives.admitted, f"new-a-{n}", account=names[0]),
            partial(lives.admitted, f"new-b-{n}", account=names[1]),
        )
        for n in range(ROUNDS)
    ]
    for one, other, *admitted in race(house.url, rounds):
        assert {s.billing_state for s in (*one, *other)} == {Billing.SETTLED}
        assert all(isinstance(request, Request) for request in admitted)
    for name in names:
        assert Account.objects.get(id=name).consumed_nano == 2 * ROUNDS * lives.CHARGE_NANO
    house.verify()
