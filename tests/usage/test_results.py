"""Results: exact bytes, hash and metering in one transaction under the fence (A6, A7, A16)."""

import hashlib
from datetime import timedelta
from unittest import mock

import pytest
from django.db import OperationalError

from kernel import clock, usage
from kernel.errors import CommitOutcomeUnknown
from kernel.models import Account, Body, Request
from kernel.states import RESULT
from kernel.usage import results
from kernel.usage.bodies import read_body, read_body_head
from kernel.usage.dispatch import Fence, cancel
from kernel.usage.outcomes import Answered, classify, lost, not_sent
from kernel.usage.results import save_results
from kernel.usage.streams import StreamReader
from tests.support.commits import LANDED, at_commit
from tests.support.product import OPERATOR, assert_invariants, make_account, make_service
from tests.usage.flow import (
    CHARGE_NANO,
    USAGE,
    body_with,
    dispatched,
    outcome_of,
    row_of,
    saved,
    states,
)
from tests.usage.wire import DONE, delta, event

ERROR_BODY = b'{"error":{"message":"provider says no"}}'


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)


def expired(fence: Fence) -> None:
    """Let the lease of this dispatch end, as maintenance sees it."""
    Request.objects.filter(id=fence.request_id).update(
        lease_expires_at=clock.now() - timedelta(hours=1)
    )
    usage.expiry_page(limit=10)
    assert row_of(fence.request_id).result_state == "unknown"


# --- what is saved ----------------------------------------------------------------------------


def test_the_bytes_are_saved_exactly_with_their_hash_and_description(acme: None) -> None:
    fence = dispatched()
    body = body_with(USAGE, note="日本 \U0001f600")
    assert saved(outcome_of(fence, body=body, provider_request_id="req-9")).applied
    row = row_of(fence.request_id)
    assert read_body(request_id=row.id, kind="result") == body
    assert row.result_sha256 == hashlib.sha256(body).hexdigest()
    assert (row.result_bytes, row.http_status, row.content_type) == (
        len(body),
        200,
        "application/json",
    )
    assert row.provider_request_id == "chatcmpl-213"
    assert '"prompt_tokens\\": 9' in row.usage_text
    assert states(row) == ("complete", "pending", "")
    assert_invariants()


@pytest.mark.parametrize(
    "body",
    [b"", b"a\x00b", bytes(range(256)), b"\xff\xfe broken utf-8 \xc3", b"x" * (2 * 1024**2 + 1)],
    ids=["empty", "nul", "every byte", "broken", "three pieces"],
)
def test_any_bytes_survive(acme: None, body: bytes) -> None:
    fence = dispatched()
    saved(outcome_of(fence, body=body))
    assert read_body(request_id=fence.request_id, kind="result") == body
    assert read_body_head(request_id=fence.request_id, kind="result") == body[: 1024**2]
    assert_invariants()


def test_body_and_state_are_one_transaction(acme: None) -> None:
    fence = dispatched()
    with (
        mock.patch.object(results, "insert_bodies_in_tx", side_effect=OperationalError(1114, "")),
        pytest.raises(OperationalError),
    ):
        saved(outcome_of(fence))
    assert states(fence.request_id) == ("dispatched", "open", "")
    assert saved(outcome_of(fence)).applied


def test_an_error_text_of_any_length_never_fails_the_state_change(acme: None) -> None:
    fence = dispatched()
    names = {"request_id": fence.request_id, "fence_token": fence.token}
    assert saved(lost(**names, code="peer_error", message="日本 \U0001f600" * 10_000)).applied
    assert len(row_of(fence.request_id).error_text) == 2000


def test_a_batch_saves_each_outcome_under_its_own_fence(acme: None) -> None:
    fences = [dispatched(f"op-{number}") for number in range(4)]
    foreign = fences[0].token
    outcomes = [
        outcome_of(fences[0]),
        outcome_of(fences[1], status=400, body=ERROR_BODY),
        outcome_of(fences[2], status=500, body=ERROR_BODY),
        classify(
            request_id=fences[3].request_id,
            fence_token=foreign,
            answer=Answered(200, "application/json", body_with(USAGE)),
        ),
    ]
    found = save_results(items=outcomes)
    assert [one.applied for one in found] == [True, True, True, False]
    assert [states(fence.request_id)[0] for fence in fences] == [
        "complete",
        "failed",
        "unknown",
        "dispatched",
    ]
    assert_invariants()


# --- the fence --------------------------------------------------------------------------------


def test_a_foreign_fence_saves_nothing(acme: None) -> None:
    fence = dispatched()
    stranger = Fence(
        fence.request_id, "krn-other", "fnc_other", fence.lease_expires_at, fence.service
    )
    found = saved(outcome_of(stranger))
    assert (found.applied, found.result_state) == (False, "")
    assert states(fence.request_id) == ("dispatched", "open", "")
    assert not Body.objects.filter(kind="result").exists()


def test_the_same_outcome_twice_is_saved_once(acme: None) -> None:
    fence = dispatched()
    outcome = outcome_of(fence)
    assert saved(outcome).applied
    assert saved(outcome).applied
    assert Body.objects.filter(kind="result").count() == 1


def test_after_a_lost_acknowledgement_saving_again_finds_it_saved(acme: None) -> None:
    fence = dispatched()
    outcome = outcome_of(fence)
    with at_commit("save_results", LANDED), pytest.raises(CommitOutcomeUnknown):
        saved(outcome)
    again = saved(outcome)
    assert again.applied
    assert again.result_state == "complete"
    assert_invariants()


def test_after_a_lost_acknowledgement_and_settlement_saving_again_changes_nothing(
    acme: None,
) -> None:
    fence = dispatched()
    outcome = outcome_of(fence)
    with at_commit("save_results", LANDED), pytest.raises(CommitOutcomeUnknown):
        saved(outcome)
    usage.settle(items=[fence.request_id])
    found = saved(outcome)
    assert (found.applied, found.billing_state) == (True, "settled")
    assert states(fence.request_id) == ("complete", "settled", "")
    assert_invariants()


# --- late results -----------------------------------------------------------------------------


def test_the_original_fence_still_completes_an_unknown_request(acme: None) -> None:
    fence = dispatched()
    expired(fence)
    assert saved(outcome_of(fence)).applied
    usage.settle(items=[fence.request_id])
    assert states(fence.request_id) == ("complete", "settled", "")
    assert_invariants()


@pytest.mark.parametrize("status", [400, 500])
def test_a_late_outcome_that_completes_nothing_changes_no_result(acme: None, status: int) -> None:
    fence = dispatched()
    expired(fence)
    found = saved(outcome_of(fence, status=status, body=ERROR_BODY))
    assert not found.applied
    assert states(fence.request_id) == ("unknown", "pending", "no_usage")
    assert not Body.objects.filter(kind="result").exists()
    assert_invariants()


def test_late_usage_is_recorded_and_charged_once(acme: None) -> None:
    fence = dispatched()
    expired(fence)
    assert not saved(outcome_of(fence, status=500, body=body_with(USAGE))).applied
    assert states(fence.request_id) == ("unknown", "pending", "")
    usage.settle(items=[fence.request_id])
    assert states(fence.request_id) == ("unknown", "settled", "")
    assert Account.objects.get().consumed_nano == 62_500
    assert_invariants()


def test_after_an_operator_resolved_it_a_late_result_changes_nothing(acme: None) -> None:
    fence = dispatched()
    expired(fence)
    row = row_of(fence.request_id)
    usage.resolve_unknown(
        request_id=row.id,
        evidence=usage.Evidence(executed=False),
        note="the provider has no trace of it",
        actor=OPERATOR,
        seen_updated_at=row.updated_at,
    )
    found = saved(outcome_of(fence))
    assert not found.applied
    row = row_of(fence.request_id)
    assert states(row) == ("failed", "not_charged", "not_executed")
    assert (row.result_sha256, row.error_code) == ("", "resolved_not_executed")
    assert '"prompt_tokens\\": 9' in row.late_usage_text, "but what it used is kept as evidence"
    assert Account.objects.get().consumed_nano == 0
    assert_invariants()


def test_late_usage_never_replaces_what_a_charge_was_derived_from(acme: None) -> None:
    fence = dispatched()
    expired(fence)
    saved(outcome_of(fence, status=500, body=body_with(USAGE)))
    usage.settle(items=[fence.request_id])
    before = row_of(fence.request_id).usage_text
    other = {"prompt_tokens": 1000, "completion_tokens": 1000}
    assert not saved(outcome_of(fence, body=body_with(other))).applied
    row = row_of(fence.request_id)
    assert row.usage_text == before
    assert "1000" in row.late_usage_text
    assert states(row) == ("unknown", "settled", "")
    assert_invariants()


def test_a_cancelled_request_keeps_its_state_and_gets_its_usage(acme: None) -> None:
    fence = dispatched()
    cancel(request_id=fence.request_id, actor=OPERATOR)
    assert not saved(outcome_of(fence)).applied
    assert states(fence.request_id) == ("cancelled", "pending", "")


def test_the_verb_moves_only_what_the_state_machine_lets_it_move() -> None:
    assert RESULT.moves_to("complete", by="save_results") == {"dispatched", "unknown"}
    assert RESULT.moves_to("failed", by="save_results") == {"dispatched"}
    assert RESULT.moves_to("unknown", by="save_results") == {"dispatched"}
    assert RESULT.moves_to("cancelled", by="save_results") == set()


# --- outcome x billing (A7) -------------------------------------------------------------------

PLAIN = [
    *((status, "failed", "not_charged", "rejected") for status in (400, 401, 403, 404, 422, 429)),
    *((status, "unknown", "pending", "no_usage") for status in (408, 409, 500, 502, 503, 504, 529)),
    *((status, "unknown", "pending", "no_usage") for status in (301, 302, 307, 308)),
    *((status, "complete", "pending", "no_usage") for status in (200, 201)),
]


@pytest.mark.parametrize(("status", "result", "billing", "reason"), PLAIN)
def test_each_status_without_metering(
    acme: None, status: int, result: str, billing: str, reason: str
) -> None:
    fence = dispatched()
    assert saved(outcome_of(fence, status=status, body=ERROR_BODY)).applied
    assert states(fence.request_id) == (result, billing, reason)
    assert (Account.objects.get().held_nano == 0) == (billing == "not_charged")
    assert read_body(request_id=fence.request_id, kind="result") == ERROR_BODY
    assert_invariants()


@pytest.mark.parametrize("status", [200, 400, 429, 408, 409, 500, 503, 302])
def test_metering_in_a_body_of_any_status_is_charged(acme: None, status: int) -> None:
    fence = dispatched()
    saved(outcome_of(fence, status=status, body=body_with(USAGE)))
    usage.settle(items=[fence.request_id])
    assert states(fence.request_id)[1] == "settled"
    assert Account.objects.get().consumed_nano == 62_500
    assert_invariants()


@pytest.mark.parametrize(
    ("body", "reason"), [(b"", "no_usage"), (b'{"choices": [', "truncated"), (b"\x00", "truncated")]
)
def test_a_body_that_is_not_whole_is_unknown_and_what_came_is_kept(
    acme: None, body: bytes, reason: str
) -> None:
    fence = dispatched()
    saved(outcome_of(fence, body=body, broken="the connection ended"))
    assert states(fence.request_id) == ("unknown", "pending", reason)
    assert read_body(request_id=fence.request_id, kind="result") == body


def test_a_broken_body_whose_bytes_hold_the_final_usage_is_charged(acme: None) -> None:
    fence = dispatched()
    saved(outcome_of(fence, body=body_with(USAGE), broken="bad chunk end"))
    usage.settle(items=[fence.request_id])
    assert states(fence.request_id) == ("unknown", "settled", "")


STREAMS = {
    "whole": ((delta(), delta(finish="stop"), DONE), "", ("complete", "no_usage")),
    "bad chunk end after the end": (
        (delta(), delta(finish="stop"), DONE),
        "bad chunk end",
        ("complete", "no_usage"),
    ),
    "cut": ((delta(), delta()), "the connection ended", ("unknown", "truncated")),
    "ended without its end": ((delta(), delta()), "", ("unknown", "no_usage")),
    "error event": ((delta(), event({"error": {"message": "no"}})), "", ("failed", "no_usage")),
}


@pytest.mark.parametrize("case", STREAMS, ids=str)
def test_each_end_of_a_stream(acme: None, case: str) -> None:
    chunks, broken, (result, reason) = STREAMS[case]
    fence, reader = dispatched(), StreamReader()
    for chunk in chunks:
        reader.feed(chunk)
    answer = Answered(
        status=200,
        content_type="text/event-stream",
        body=b"".join(chunks),
        broken=broken,
        stream=reader.finish(),
    )
    saved(classify(request_id=fence.request_id, fence_token=fence.token, answer=answer))
    assert states(fence.request_id) == (result, "pending", reason)
    assert_invariants()


def test_a_stream_that_failed_is_charged_what_it_reported_and_says_why_it_failed(
    acme: None,
) -> None:
    fence, reader = dispatched(), StreamReader()
    chunks = (delta(usage=USAGE), event({"error": {"message": "overloaded"}}))
    for chunk in chunks:
        reader.feed(chunk)
    answer = Answered(200, "text/event-stream", b"".join(chunks), stream=reader.finish())
    saved(classify(request_id=fence.request_id, fence_token=fence.token, answer=answer))
    usage.settle(items=[fence.request_id])
    row = row_of(fence.request_id)
    assert states(fence.request_id) == ("failed", "settled", "")
    assert (row.billed_nano, row.error_text) == (CHARGE_NANO, "overloaded")


def test_what_was_proven_not_sent_owes_nothing_and_gives_the_hold_back(acme: None) -> None:
    fence = dispatched()
    names = {"request_id": fence.request_id, "fence_token": fence.token}
    saved(not_sent(**names, code="not_sent", message="refused"))
    assert states(fence.request_id) == ("failed", "not_charged", "not_sent")
    assert Account.objects.get().held_nano == 0
    assert_invariants()


def test_a_lost_connection_is_unknown_and_keeps_its_hold(acme: None) -> None:
    fence = dispatched()
    names = {"request_id": fence.request_id, "fence_token": fence.token}
    saved(lost(**names, code="outcome_unknown", message="lost"))
    assert states(fence.request_id) == ("unknown", "pending", "no_usage")
    assert Account.objects.get().held_nano > 0
    assert_invariants()
