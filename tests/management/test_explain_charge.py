"""manage.py explain_charge: each charge from stored facts, each wait with its way out (A13)."""

import json
from typing import Any

import pytest
from django.db.models import F

from kernel import usage
from kernel.clock import db_now
from kernel.models import Body, LedgerRow, Request
from kernel.states import Billing
from kernel.usage import metering, pricing
from kernel.usage.metering import Metering
from kernel.usage.reasons import REASONS
from tests.management.running import done, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture(autouse=True)
def house(kernel_db: None) -> None:
    lives.open_account()
    lives.add_service()


def answered(operation_id: str, report: Any, **fields: Any) -> Request:
    """Answered with this usage object and settled as far as it goes."""
    fence = lives.dispatched(operation_id, **fields)
    lives.save(lives.answer_of(fence, metering=report))
    lives.settle(fence.request_id)
    return lives.read(fence.request_id)


def test_a_settled_charge_is_derived_step_by_step() -> None:
    usage.change_account(
        account_id="acme", version=1, actor=lives.ACTOR, multiplier_millionths=1_500_000
    )
    row = lives.settled("op-1")
    ledger = LedgerRow.objects.get(charge_of=row.id)
    out = done("explain_charge", "op-1").out
    for part in (
        f"Operation op-1 of account acme (request {row.id})",
        "service gpt at version 1",
        "result complete, billing settled",
        '{"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}',
        "  input: 9\n  output: 4\n",
        f"Price: openai/gpt-4o, genai-prices version {pricing.VERSION}",
        "input: 9 x $2.5 / 1,000,000 = $0.0000225",
        "output: 4 x $10 / 1,000,000 = $0.00004",
        "reference cost: $0.0000625",
        "multiplier: $0.0000625 x 1.5 = $0.00009375",
        "rounded once, half-even, to 9 decimals: $0.00009375",
        f"Ledger row {ledger.id}: charge of $0.00009375",
        "the same amount, line by line",
    ):
        assert part in out


def test_the_document_holds_the_same_for_a_script() -> None:
    row = lives.settled("op-1")
    document = done("explain_charge", "op-1", "--json").document
    assert document["request_id"] == row.id
    assert document["usage"]["meters"] == {"input": 9, "output": 4}
    assert document["ledger"]["amount_usd"] == document["worked_out_usd"] == "0.0000625"
    assert document["lines"][0] == {
        "unit": "input",
        "count": 9,
        "usd_per_million": "2.5",
        "amount_usd": "0.0000225",
    }
    assert document["agrees"] is True
    assert document["trouble"] is None


def test_later_changes_and_a_purged_body_do_not_change_the_explanation() -> None:
    lives.settled("op-1")
    before = done("explain_charge", "op-1").out
    usage.change_account(
        account_id="acme", version=1, actor=lives.ACTOR, multiplier_millionths=9_000_000
    )
    usage.change_service(service_id="gpt", version=1, actor=lives.ACTOR, price_model="gpt-4")
    done("price", "add", "openai/gpt-4o", "input=99", "output=99", "--from", "2020-01-01")
    Body.objects.all().delete()
    assert done("explain_charge", "op-1").out == before


def test_an_id_that_several_accounts_used_asks_for_the_account() -> None:
    lives.open_account("zeta")
    lives.settled("op-1")
    lives.settled("op-1", account="zeta")
    answer = run("explain_charge", "op-1")
    assert answer.code == 1
    assert "exists in 2 accounts: acme, zeta. Say which with --account." in answer.error
    assert "account zeta" in done("explain_charge", "op-1", "--account", "zeta").out
    assert "of account acme" in done("explain_charge", "op-1", "--account", "acme").out


def test_a_request_id_is_understood_too() -> None:
    row = lives.settled("op-1")
    assert "Operation op-1 of account acme" in done("explain_charge", row.id).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["op-9"], "No operation and no request op-9 in any account."),
        (["OP-1"], "Ids are case-sensitive."),
        (["op 1"], "must be 1-128 characters"),
        (["op-1", "--account", "ghost"], "No operation op-1 in this account."),
    ],
)
def test_what_is_not_there_is_said(words: list[str], says: str) -> None:
    lives.settled("op-1")
    answer = run("explain_charge", *words)
    assert answer.code == 1
    assert says in answer.error


# --- what waits, and the way out --------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "reason", "shows"),
    [
        (None, "no_usage", "The provider reported no usage."),
        ({"prompt_tokens": "9", "completion_tokens": 4}, "invalid_usage", '"prompt_tokens": "9"'),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"audio_tokens": 5},
            },
            "unpriced_unit",
            "no rate for input_audio",
        ),
    ],
)
def test_a_pending_charge_says_why_and_what_a_person_can_do(
    report: Any, reason: str, shows: str
) -> None:
    row = answered("op-1", report)
    assert (row.billing_state, row.pending_reason) == (Billing.PENDING, reason)
    out = done("explain_charge", "op-1").out
    assert f"billing pending({reason})" in out
    assert REASONS[reason].means in out
    assert "Way out:" in out
    assert "write it off" in out
    assert shows in out
    assert "Charge: no ledger row." in out
    assert f"Its hold of ${usage_of(row)} stays until then." in out
    document = done("explain_charge", "op-1", "--json").document
    assert (document["pending_reason"], document["ledger"]) == (reason, None)
    assert document["way_out"]


def test_of_an_unknown_outcome_nobody_says_what_the_provider_reported() -> None:
    row = lives.unknown("op-1")
    assert (row.result_state, row.pending_reason) == ("unknown", "no_usage")
    out = done("explain_charge", "op-1").out
    assert "No usage was received." in out and "The provider reported no usage." not in out
    usage.resolve_unknown(
        request_id=row.id,
        evidence=usage.Evidence(executed=True),
        note="its log names it",
        actor=lives.ACTOR,
        seen_updated_at=row.updated_at,
    )
    assert lives.read(row.id).pending_reason == "no_usage"
    out = done("explain_charge", "op-1").out
    assert "No usage was received." in out and "The provider reported no usage." not in out


def usage_of(row: Request) -> str:
    return done("explain_charge", row.operation_id, "--json").document["hold_usd"]


def test_an_unpriced_charge_is_settled_by_an_operators_price_valid_at_its_admission() -> None:
    usage.create_account(account_id="free", name="free", actor=lives.ACTOR, allow_unpriced=True)
    lives.add_service("new", price_provider="cx", price_model="m-1")
    row = answered("op-1", lives.USAGE, account="free", service="new")
    out = done("explain_charge", "op-1").out
    assert "pending(unpriced)" in out
    assert "Price: none was valid when it was admitted." in out
    assert "price add ... --from" in out
    since = row.admitted_at.isoformat()
    done("price", "add", "cx/m-1", "input=1", "output=2", "--from", since)
    assert lives.settle(row.id).billing_state == Billing.SETTLED
    out = done("explain_charge", "op-1").out
    assert "Price: cx/m-1, operator version 1" in out
    assert "charge of $0.000017" in out


def test_saved_usage_that_waits_for_its_pass_shows_what_is_due() -> None:
    lives.complete("op-1")
    out = done("explain_charge", "op-1").out
    assert "it waits for settlement" in out
    assert "maintain --once" in out
    assert "times the multiplier 1: $0.0000625 is due" in out


@pytest.mark.parametrize(
    ("life", "state", "says", "way_out"),
    [
        (lives.admitted, "admitted", "was not sent, so nothing is owed", "Dispatch or cancel it"),
        (lives.dispatched, "dispatched", "its answer is awaited", "when its lease ends"),
        (lives.unknown, "unknown", "its outcome is not known", "never sent again"),
        (lives.rejected, "failed", "refused it before it generated anything", None),
        (lives.cancelled, "cancelled", "cancelled before it was sent", None),
        (lives.resolved, "failed", "the provider did not execute it", None),
    ],
)
def test_every_state_is_said_in_words(
    life: Any, state: str, says: str, way_out: str | None
) -> None:
    life("op-1")
    document = done("explain_charge", "op-1", "--json").document
    assert document["result_state"] == state
    assert says in document["why"]
    assert (way_out in document["way_out"]) if way_out else document["way_out"] is None
    assert says in done("explain_charge", "op-1").out


def test_every_reason_has_its_words() -> None:
    known = {*metering.REASONS, *pricing.REASONS}
    known |= {"truncated", "corrupt", "rejected", "not_sent", "cancelled"}
    known |= {"not_executed", "written_off"}
    assert set(REASONS) == known


def test_the_providers_own_figure_is_shown_as_evidence() -> None:
    answered("op-1", {**lives.USAGE, "cost": 0.00006})
    out = done("explain_charge", "op-1").out
    assert "own figure is $0.00006, $0.0000025 less than the reference cost" in out


def test_control_characters_of_a_provider_do_not_reach_the_terminal() -> None:
    answered("op-1", {**lives.USAGE, "note": "\x1b[2J\u202e"})
    out = done("explain_charge", "op-1").out
    assert "\x1b" not in out
    assert "\u202e" not in out


# --- rows that somebody changed ---------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda row: LedgerRow.objects.update(amount_nano=F("amount_nano") + 1),
        lambda row: LedgerRow.objects.update(multiplier_millionths=2_000_000),
        lambda row: Request.objects.update(billed_nano=1),
        lambda row: Request.objects.update(
            usage_text=Metering({"input": 90, "output": 4}).to_text()
        ),
        lambda row: Request.objects.update(
            price_text=row.price_text.replace('"input":"2.5"', '"input":"9"')
        ),
    ],
    ids=["amount", "multiplier", "billed", "metering", "price"],
)
def test_a_charge_that_its_facts_do_not_give_is_reported(change: Any) -> None:
    change(lives.settled("op-1"))
    answer = run("explain_charge", "op-1")
    assert answer.code == 1
    assert "is not what the stored metering, price and multiplier give" in answer.error
    assert "the same amount" not in answer.out
    assert run("explain_charge", "op-1", "--json").document["agrees"] is False


@pytest.mark.parametrize("text", ["{", "[]", '{"meters": {"input": -1}}', '{"meters": 3}', "7"])
def test_a_row_that_cannot_be_read_is_explained_without_a_traceback(text: str) -> None:
    row = lives.complete("op-1")
    Request.objects.update(usage_text=text)
    assert lives.settle(row.id).pending_reason == "corrupt"
    answer = run("explain_charge", "op-1")
    assert answer.code == 1
    assert "cannot be" in answer.error
    assert "pending(corrupt)" in answer.out
    assert "Way out: Run db_verify" in answer.out


def test_a_ledger_row_that_cannot_be_read_is_reported() -> None:
    lives.settled("op-1")
    LedgerRow.objects.update(lines_text=json.dumps({"lines": [1], "price": 3}))
    answer = run("explain_charge", "op-1")
    assert answer.code == 1
    assert answer.error
    LedgerRow.objects.update(lines_text="no json", created_at=db_now())
    assert "The stored ledger row cannot be read." in run("explain_charge", "op-1").error
