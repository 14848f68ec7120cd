"""Operators end what the machine cannot know: with evidence, audited, at most once (A9, A11b)."""

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kernel import audit, clock, usage
from kernel.errors import InvalidInput, LostRace, NotFound
from kernel.models import Account, AuditRow, LedgerRow, Notification, Request
from kernel.usage import Evidence
from kernel.usage.settlement import settlement_page
from tests.delivery import post
from tests.support.product import (
    OPERATOR,
    admitted,
    ask,
    assert_invariants,
    make_account,
    make_service,
)
from tests.usage.flow import (
    CHARGE_NANO,
    USAGE,
    answered,
    at_once,
    body_with,
    dispatched,
    outcome_of,
    row_of,
    saved,
    states,
)

NOTE = "looked it up in the provider's dashboard"
GIVEN = {"prompt_tokens": 100, "completion_tokens": 10}
GIVEN_NANO = 100 * 2500 + 10 * 10_000


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)


def unknown(*, usage_object: object = None) -> str:
    """A request that became unknown; with `usage_object`, one whose bytes told some metering."""
    fence = dispatched()
    body = b"" if usage_object is None else body_with(usage_object)
    saved(outcome_of(fence, status=500, body=body))
    assert row_of(fence.request_id).result_state == "unknown"
    return fence.request_id


def pending(usage_object: object = None) -> str:
    request_id = answered(body=body_with(usage_object))
    usage.settle(items=[request_id])
    assert row_of(request_id).billing_state == "pending"
    return request_id


def act(verb: Any, request_id: str, *, note: str = NOTE, **values: Any) -> Request:
    seen = values.pop("seen_updated_at", row_of(request_id).updated_at)
    return verb(request_id=request_id, note=note, actor=OPERATOR, seen_updated_at=seen, **values)


def resolve(request_id: str, *, executed: bool, usage_object: Any = None, **more: Any) -> Request:
    evidence = Evidence(
        executed=executed, provider_request_id="prov-7" if executed else "", usage=usage_object
    )
    return act(usage.resolve_unknown, request_id, evidence=evidence, **more)


def give(request_id: str, usage_object: Any, *, executed: bool = True, **more: Any) -> Request:
    evidence = Evidence(executed=executed, usage=usage_object)
    return act(usage.resolve_pending, request_id, evidence=evidence, **more)


def last_audit(request_id: str) -> AuditRow:
    return AuditRow.objects.filter(subject=f"request:{request_id}").order_by("-sequence")[0]


def told_unpriced() -> list[tuple[str, str]]:
    """Request id and reason of every `request.unpriced`, oldest first."""
    rows = Notification.objects.filter(event="request.unpriced").order_by("id")
    data = [json.loads(bytes(row.content))["data"] for row in rows]
    return [(each["request_id"], each["reason"]) for each in data]


# --- unknown outcomes -------------------------------------------------------------------------


def test_not_executed_owes_nothing_and_gives_the_hold_back(acme: None) -> None:
    request_id = unknown()
    row = resolve(request_id, executed=False)
    assert states(row) == ("failed", "not_charged", "not_executed")
    assert row.error_code == "resolved_not_executed"
    assert Account.objects.get().held_nano == 0
    assert_invariants()


def test_executed_with_metering_is_charged_once(acme: None) -> None:
    request_id = unknown()
    row = resolve(request_id, executed=True, usage_object=GIVEN)
    assert states(row) == ("failed", "settled", "")
    assert (row.billed_nano, row.provider_request_id) == (GIVEN_NANO, "prov-7")
    account = Account.objects.get()
    assert (account.consumed_nano, account.held_nano) == (GIVEN_NANO, 0)
    usage.settle(items=[request_id])
    assert LedgerRow.objects.count() == 1
    assert_invariants()


def test_executed_without_metering_stays_pending_with_its_hold(acme: None) -> None:
    request_id = unknown()
    row = resolve(request_id, executed=True)
    assert states(row) == ("failed", "pending", "no_usage")
    assert Account.objects.get().held_nano > 0
    give(request_id, GIVEN)
    assert states(request_id) == ("failed", "settled", "")
    assert_invariants()


def test_metering_that_was_saved_counts_when_the_evidence_has_none(acme: None) -> None:
    request_id = unknown(usage_object=USAGE)
    row = resolve(request_id, executed=True)
    assert states(row) == ("failed", "settled", "")
    assert row.billed_nano == CHARGE_NANO
    assert_invariants()


def test_unusable_metering_that_was_saved_is_kept(acme: None) -> None:
    request_id = unknown(usage_object={"prompt_tokens": "10", "completion_tokens": 1})
    before = row_of(request_id).usage_text
    assert before
    row = resolve(request_id, executed=True)
    assert states(row) == ("failed", "pending", "invalid_usage")
    assert row.usage_text == before, "raw usage is evidence"


def test_metering_that_is_replaced_stays_in_the_audit_trail(acme: None) -> None:
    request_id = unknown(usage_object={"prompt_tokens": "10", "completion_tokens": 1})
    before = row_of(request_id).usage_text
    resolve(request_id, executed=True, usage_object=GIVEN)
    assert json.loads(last_audit(request_id).before_text)["metering"] == before


def test_what_was_charged_already_is_not_touched_by_a_resolution(acme: None) -> None:
    request_id = unknown(usage_object=USAGE)
    usage.settle(items=[request_id])
    before = row_of(request_id)
    assert states(before) == ("unknown", "settled", "")
    for_operator = resolve(request_id, executed=True, usage_object=GIVEN)
    assert states(for_operator) == ("failed", "settled", "")
    assert for_operator.usage_text == before.usage_text
    assert for_operator.billed_nano == CHARGE_NANO
    assert Account.objects.get().consumed_nano == CHARGE_NANO
    assert_invariants()


@pytest.mark.parametrize("executed", [True, False])
def test_a_resolution_is_audited_with_evidence_and_note(acme: None, executed: bool) -> None:
    request_id = unknown()
    resolve(request_id, executed=executed, usage_object=GIVEN if executed else None)
    row = last_audit(request_id)
    assert (row.action, row.reason, row.actor_id) == ("request.resolve_unknown", NOTE, "olga")
    before, after = json.loads(row.before_text), json.loads(row.after_text)
    assert before["result_state"] == "unknown"
    assert after["executed"] is executed
    assert after["usage"] == (GIVEN if executed else None)
    assert list(audit.verify()) == []


def test_only_an_unknown_request_can_be_resolved(acme: None) -> None:
    request_id = pending()
    with pytest.raises(LostRace) as refusal:
        resolve(request_id, executed=False)
    assert refusal.value.details["result_state"] == "complete"


def test_a_resolution_of_what_changed_meanwhile_is_refused(acme: None) -> None:
    request_id = unknown()
    stale = row_of(request_id).updated_at - timedelta(microseconds=1)
    with pytest.raises(LostRace):
        resolve(request_id, executed=False, seen_updated_at=stale)
    assert states(request_id)[0] == "unknown"


def test_of_two_operators_at_once_one_decides(acme: None) -> None:
    request_id = unknown()
    seen = row_of(request_id).updated_at
    found = at_once(
        lambda: resolve(request_id, executed=False, seen_updated_at=seen),
        lambda: resolve(request_id, executed=True, usage_object=GIVEN, seen_updated_at=seen),
    )
    assert sorted(type(one).__name__ for one in found) == ["LostRace", "Request"]
    assert_invariants()


@pytest.mark.parametrize("usage_object", [{"prompt_tokens": -1}, {"a": 1}, {}])
def test_metering_that_cannot_be_read_is_refused_by_name(acme: None, usage_object: Any) -> None:
    request_id = unknown()
    with pytest.raises(InvalidInput) as refusal:
        resolve(request_id, executed=True, usage_object=usage_object)
    assert refusal.value.field == "usage"
    assert states(request_id)[0] == "unknown"


@pytest.mark.parametrize("note", ["", "  ", "ok", "x" * 4001])
def test_each_act_needs_a_note(acme: None, note: str) -> None:
    request_id = unknown()
    with pytest.raises(InvalidInput) as refusal:
        resolve(request_id, executed=False, note=note)
    assert refusal.value.field == "note"


def test_there_is_nothing_to_resolve_without_a_request(kernel_db: None) -> None:
    with pytest.raises(NotFound):
        usage.resolve_unknown(
            request_id="req_none",
            evidence=Evidence(executed=False),
            note=NOTE,
            actor=OPERATOR,
            seen_updated_at=clock.now(),
        )


# --- pending charges --------------------------------------------------------------------------


def test_metering_given_by_evidence_settles_once(acme: None) -> None:
    request_id = pending()
    row = give(request_id, GIVEN)
    assert states(row) == ("complete", "settled", "")
    assert row.billed_nano == GIVEN_NANO
    assert last_audit(request_id).action == "request.resolve_pending"
    with pytest.raises(LostRace):
        give(request_id, GIVEN)
    assert_invariants()


def test_without_metering_there_is_nothing_to_settle(acme: None) -> None:
    request_id = pending()
    with pytest.raises(InvalidInput) as refusal:
        give(request_id, None)
    assert refusal.value.field == "usage"


def test_a_charge_for_what_was_not_executed_is_written_off_not_resolved(acme: None) -> None:
    request_id = pending(USAGE | {"completion_tokens": "4"})
    with pytest.raises(InvalidInput) as refusal:
        give(request_id, GIVEN, executed=False)
    assert refusal.value.field == "executed"
    assert states(request_id)[1] == "pending"


def test_an_unpriced_request_with_metering_waits_for_its_price(kernel_db: None) -> None:
    make_account(allow_unpriced=True)
    make_service(price_provider="", price_model="")
    request_id = pending()
    row = give(request_id, GIVEN)
    assert states(row) == ("complete", "pending", "unpriced")
    assert row.usage_text
    assert_invariants()


@pytest.mark.parametrize("outcome", ["pending", "unknown", "unknown with metering"])
@pytest.mark.parametrize("first", ["act", "pass"])
def test_a_charge_that_waits_for_a_price_is_told_once_by_act_or_pass(
    kernel_db: None, outcome: str, first: str
) -> None:
    make_account(allow_unpriced=True)
    make_service(price_provider="", price_model="")
    post.destination(events=["request.unpriced"])
    if outcome == "pending":
        request_id = pending() if first == "act" else pending(USAGE)
    else:
        request_id = unknown(usage_object=USAGE if outcome.endswith("metering") else None)
    if first == "pass":
        settlement_page(cursor=None, limit=50)
    act_again = give if outcome == "pending" else partial(resolve, executed=True)
    assert states(act_again(request_id, usage_object=GIVEN))[1:] == ("pending", "unpriced")
    for _ in range(2):
        settlement_page(cursor=None, limit=50)
    give(request_id, GIVEN)
    assert told_unpriced() == [(request_id, "unpriced")]
    assert_invariants()


def test_an_act_that_changes_why_a_charge_waits_tells_it_as_a_pass_would(acme: None) -> None:
    post.destination(events=["request.unpriced"])
    request_id = pending()
    row = give(request_id, GIVEN | {"prompt_tokens_details": {"audio_tokens": 5}})
    assert states(row)[1:] == ("pending", "unpriced_unit")
    settlement_page(cursor=None, limit=50)
    assert told_unpriced() == [(request_id, "unpriced_unit")]
    give(request_id, GIVEN)
    assert states(request_id)[1] == "settled"
    assert len(told_unpriced()) == 1
    assert_invariants()


@pytest.mark.parametrize("usage_object", [GIVEN, None], ids=["settled", "no usage"])
def test_an_act_that_waits_for_no_price_tells_nothing(acme: None, usage_object: Any) -> None:
    post.destination(events=["request.unpriced"])
    resolve(unknown(), executed=True, usage_object=usage_object)
    assert told_unpriced() == []


def test_an_act_beside_a_pass_tells_it_once(kernel_db: None) -> None:
    make_account(allow_unpriced=True)
    make_service(price_provider="", price_model="")
    post.destination(events=["request.unpriced"])
    post.rule("request.unpriced")
    request_id = unknown(usage_object=USAGE)
    acted, passed = at_once(
        lambda: resolve(request_id, executed=True, usage_object=GIVEN),
        lambda: usage.settle(items=[request_id]),
    )
    assert (type(acted), type(passed)) == (Request, list)
    assert told_unpriced() == [(request_id, "unpriced")]
    assert Notification.objects.filter(event="alert.request.unpriced").count() == 1


def test_a_write_off_is_final_audited_and_gives_the_hold_back(acme: None) -> None:
    request_id = pending()
    row = act(usage.write_off, request_id)
    assert states(row) == ("complete", "not_charged", "written_off")
    assert Account.objects.get().held_nano == 0
    assert last_audit(request_id).action == "request.write_off"
    usage.settle(items=[request_id])
    assert not LedgerRow.objects.exists()
    with pytest.raises(LostRace):
        act(usage.write_off, request_id)
    assert_invariants()


def test_a_row_with_corrupt_facts_can_be_ended_by_an_operator(acme: None) -> None:
    request_id = pending()
    Request.objects.filter(id=request_id).update(price_text="[]")
    assert states(give(request_id, GIVEN))[1:] == ("pending", "corrupt")
    assert states(act(usage.write_off, request_id))[1:] == ("not_charged", "written_off")


@pytest.mark.parametrize("verb", ["give", "write_off"])
def test_an_unknown_outcome_is_resolved_before_its_charge(acme: None, verb: str) -> None:
    request_id = unknown()
    with pytest.raises(InvalidInput, match="resolve the outcome first"):
        give(request_id, GIVEN) if verb == "give" else act(usage.write_off, request_id)


def test_nothing_is_owed_before_a_result(acme: None) -> None:
    row = admitted(ask("waiting"))
    with pytest.raises(LostRace):
        act(usage.write_off, row.id)
    with pytest.raises(LostRace):
        give(row.id, GIVEN)
