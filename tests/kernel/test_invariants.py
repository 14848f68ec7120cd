"""The database invariants: clean on what the verbs write, and each bites when a row is broken."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from kernel import invariants, usage
from kernel.approvals.invariants import APPROVALS
from kernel.conf import override
from kernel.delivery.invariants import DELIVERIES
from kernel.invariants import INVARIANTS, check_all, store_reports
from kernel.jobs.invariants import JOBS
from kernel.models import CheckReport, Request
from tests.support import lives

REQUESTS, LEDGER, BODIES = "bz_usage_requests", "bz_usage_ledger", "bz_usage_bodies"
LATER = "'2030-01-01 00:00:00'"
EARLIER = "'2001-01-01 00:00:00'"


@pytest.fixture
def rows(db: None) -> dict[str, str]:
    """One request of each kind, by name, as the verbs leave them; rolled back afterwards."""
    return _one_of_each()


def _one_of_each() -> dict[str, str]:
    lives.open_account()
    lives.open_account("other", cap_nano=None)
    lives.add_service()
    made = {
        "admitted": lives.admitted("op-admitted"),
        "dispatched": lives.read(lives.dispatched("op-dispatched").request_id),
        "complete": lives.complete("op-complete"),
        "settled": lives.settled("op-settled"),
        "rejected": lives.rejected("op-rejected"),
        "unknown": lives.unknown("op-unknown"),
        "cancelled": lives.cancelled("op-cancelled"),
        "resolved": lives.resolved("op-resolved"),
        "purged": _purged(),
        "corrected": _corrected(),
    }
    return {name: request.id for name, request in made.items()}


def _purged() -> Request:
    """A settled request whose retention is over; only this one is old enough."""
    request = lives.settled("op-purged")
    long_ago = "admitted_at = {0}, dispatched_at = {0}, result_at = {0}, settled_at = {0}"
    run(
        f"UPDATE {REQUESTS} SET updated_at = {EARLIER}, {long_ago.format(EARLIER)}"
        f" WHERE id = '{request.id}'"
    )
    usage.purge_bodies(limit=200)
    assert lives.read(request.id).purged_at is not None
    return lives.read(request.id)


def _corrected() -> Request:
    request = lives.settled("op-corrected")
    usage.post_correction(
        request_id=request.id, amount_nano=-100, actor=lives.ACTOR, reason="billed too much"
    )
    return request


def run(statement: str) -> None:
    """Raw SQL, behind the back of every verb."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def broken() -> dict[str, list[str]]:
    """The invariants that do not hold now, by name, with the ids of their offenders."""
    return {
        report.invariant.name: [offender.id for offender in report.offenders]
        for report in check_all()
        if not report.holds
    }


def test_everything_the_verbs_write_satisfies_every_invariant(rows: dict[str, str]) -> None:
    assert broken() == {}
    assert len(rows) == Request.objects.count()


def test_numbers_and_names_are_unique_and_count_up() -> None:
    assert [each.number for each in INVARIANTS] == list(range(1, len(INVARIANTS) + 1))
    assert len({each.name for each in INVARIANTS}) == len(INVARIANTS)


def on(table: str, change: str) -> Callable[[str], list[str]]:
    return lambda row_id: [f"UPDATE {table} SET {change} WHERE id = '{row_id}'"]


def on_ledger(change: str) -> Callable[[str], list[str]]:
    return lambda row_id: [f"UPDATE {LEDGER} SET {change} WHERE request_id = '{row_id}'"]


def on_bodies(kind: str, change: str) -> Callable[[str], list[str]]:
    where = f"WHERE request_id = '{{}}' AND kind = '{kind}'"
    verb = f"UPDATE {BODIES} SET {change} {where}" if change else f"DELETE FROM {BODIES} {where}"
    return lambda row_id: [verb.format(row_id)]


def on_correction(change: str) -> Callable[[str], list[str]]:
    where = "WHERE kind = 'correction' AND request_id = '{}'"
    return lambda row_id: [f"UPDATE {LEDGER} SET {change} {where.format(row_id)}"]


def second_charge(row_id: str) -> list[str]:
    """A second charge of one request, which the unique key cannot see."""
    columns = "account_id, request_id, kind, amount_nano, reference_nano, multiplier_millionths"
    return [
        f"INSERT INTO {LEDGER} (id, charge_of, {columns}, lines_text, created_at)"
        f" SELECT 'led_second', 'req_other', {columns}, lines_text, created_at"
        f" FROM {LEDGER} WHERE request_id = '{row_id}'"
    ]


def without_audit(row_id: str) -> list[str]:
    return [f"DELETE FROM bz_audit WHERE subject = 'request:{row_id}'"]


SABOTAGE: list[tuple[str, str, Callable[[str], list[str]]]] = [
    ("states_are_known", "admitted", on(REQUESTS, "result_state = 'sent'")),
    ("states_are_known", "unknown", on(REQUESTS, "billing_state = 'free'")),
    ("billing_is_open_until_the_result", "complete", on(REQUESTS, "billing_state = 'open'")),
    ("billing_is_open_until_the_result", "dispatched", on(REQUESTS, "billing_state = 'pending'")),
    ("what_was_dispatched_has_its_fence", "unknown", on(REQUESTS, "fence_token = ''")),
    ("what_was_dispatched_has_its_fence", "complete", on(REQUESTS, "owner = ''")),
    ("what_was_dispatched_has_its_fence", "dispatched", on(REQUESTS, "lease_expires_at = NULL")),
    ("what_was_dispatched_has_its_fence", "admitted", on(REQUESTS, "result_state = 'dispatched'")),
    ("results_are_described", "complete", on(REQUESTS, "result_sha256 = ''")),
    ("results_are_described", "settled", on(REQUESTS, "http_status = NULL")),
    ("results_are_described", "admitted", on(REQUESTS, "result_bytes = 3")),
    ("bodies_stay_until_the_purge", "admitted", on_bodies("request", "")),
    ("bodies_stay_until_the_purge", "complete", on_bodies("result", "")),
    ("nothing_stays_after_the_purge", "complete", on(REQUESTS, f"purged_at = {LATER}")),
    ("nothing_stays_after_the_purge", "purged", on(REQUESTS, "result_state = 'unknown'")),
    (
        "nothing_stays_after_the_purge",
        "admitted",
        lambda row_id: [f"DELETE FROM {REQUESTS} WHERE id = '{row_id}'"],
    ),
    ("bodies_have_all_their_pieces", "settled", on_bodies("result", "sequence = 1")),
    (
        "results_are_the_bytes_that_were_hashed",
        "complete",
        on_bodies("result", "data = x'6f74686572'"),
    ),
    (
        "results_are_the_bytes_that_were_hashed",
        "settled",
        on(REQUESTS, "result_bytes = result_bytes + 1"),
    ),
    ("one_charge_per_request", "settled", second_charge),
    (
        "consumed_is_the_sum_of_the_ledger",
        "acme",
        on("bz_usage_accounts", "consumed_nano = consumed_nano + 1"),
    ),
    ("held_is_the_sum_of_the_holds", "acme", on("bz_usage_accounts", "held_nano = held_nano - 1")),
    ("held_is_the_sum_of_the_holds", "other", on("bz_usage_accounts", "held_nano = 1")),
    (
        "settled_requests_have_their_charge",
        "settled",
        lambda row_id: [f"DELETE FROM {LEDGER} WHERE request_id = '{row_id}'"],
    ),
    ("settled_requests_have_their_charge", "settled", on(REQUESTS, "billed_nano = 0")),
    (
        "settled_requests_have_their_charge",
        "settled",
        on(REQUESTS, "multiplier_millionths = 2000000"),
    ),
    ("settled_requests_have_their_charge", "settled", on_ledger("account_id = 'other'")),
    ("charges_have_their_settled_request", "settled", on(REQUESTS, "billing_state = 'pending'")),
    ("charges_have_their_settled_request", "settled", on_ledger("charge_of = NULL")),
    ("charges_have_their_settled_request", "corrected", on_correction("amount_nano = 0")),
    ("charges_have_their_settled_request", "corrected", on_correction("account_id = 'other'")),
    ("charges_have_their_settled_request", "corrected", on_correction("charge_of = 'req_x'")),
    ("charges_have_their_settled_request", "corrected", on(REQUESTS, "billing_state = 'pending'")),
    ("what_is_not_settled_carries_no_amount", "unknown", on(REQUESTS, "billed_nano = 0")),
    ("charges_rest_on_metering_and_price", "settled", on(REQUESTS, "usage_text = ''")),
    ("charges_rest_on_metering_and_price", "settled", on(REQUESTS, "price_text = ''")),
    ("charges_follow_from_their_lines", "settled", on_ledger("amount_nano = amount_nano + 1")),
    ("charges_follow_from_their_lines", "settled", on_ledger("lines_text = '{}'")),
    ("reasons_fit", "rejected", on(REQUESTS, "pending_reason = ''")),
    ("reasons_fit", "settled", on(REQUESTS, "pending_reason = 'no_usage'")),
    ("amounts_are_not_negative", "admitted", on(REQUESTS, "hold_nano = -1")),
    ("overruns_are_flagged", "acme", on("bz_usage_accounts", "cap_nano = 1")),
    ("rows_have_their_account", "admitted", on(REQUESTS, "account_id = 'nobody'")),
    ("times_are_ordered", "settled", on(REQUESTS, f"admitted_at = {LATER}")),
    ("times_are_ordered", "complete", on(REQUESTS, f"result_at = {EARLIER}")),
    ("times_are_ordered", "settled", on(REQUESTS, f"settled_at = {EARLIER}")),
    ("times_are_ordered", "unknown", on(REQUESTS, f"updated_at = {EARLIER}")),
    ("acts_are_audited", "cancelled", without_audit),
    ("acts_are_audited", "resolved", without_audit),
    (
        "corrected_charges_are_not_negative",
        "corrected",
        on_correction(f"amount_nano = {-lives.CHARGE_NANO - 1}"),
    ),
    ("corrections_are_audited", "corrected", without_audit),
]
LEDGER_NAMED = {
    "charges_have_their_settled_request",
    "charges_follow_from_their_lines",
    "corrections_are_audited",
}


@pytest.mark.parametrize(
    ("name", "victim", "sabotage"), SABOTAGE, ids=[f"{n}-{v}" for n, v, _ in SABOTAGE]
)
def test_an_invariant_bites(
    rows: dict[str, str], name: str, victim: str, sabotage: Callable[[str], list[str]]
) -> None:
    offender = rows.get(victim, victim)
    if name in LEDGER_NAMED:
        with connection.cursor() as cursor:
            # Of a corrected request, the correction.
            cursor.execute(
                f"SELECT id FROM {LEDGER} WHERE request_id = '{offender}' ORDER BY kind DESC"
            )
            ledger_id = cursor.fetchall()[0][0]
    (invariant,) = [each for each in INVARIANTS if each.name == name]
    assert invariant.find(10) == []
    for statement in sabotage(offender):
        run(statement)
    found = [each.id for each in invariant.find(10)]
    assert (ledger_id if name in LEDGER_NAMED else offender) in found


def test_every_invariant_is_shown_to_bite() -> None:
    """Those of approvals and jobs: tests/kernel/test_job_invariants.py."""
    shown = {name for name, _, _ in SABOTAGE} | {"unique_keys_exist"}
    elsewhere = {each.name for each in (*APPROVALS, *JOBS, *DELIVERIES)}
    assert shown == {each.name for each in INVARIANTS} - elsewhere


@contextmanager
def keyless(table: str) -> Iterator[None]:
    """The table's rows in a copy without any key, in its place for the length of a block."""
    run(f"ALTER TABLE {table} RENAME TO {table}_kept")
    try:
        run(f"CREATE TABLE {table} AS SELECT * FROM {table}_kept")
        yield
    finally:
        run(f"DROP TABLE {table}")
        run(f"ALTER TABLE {table}_kept RENAME TO {table}")


@pytest.mark.parametrize("table", [table for table, _ in invariants.UNIQUE_KEYS])
def test_a_unique_key_that_is_missing_is_found(kernel_db: None, table: str) -> None:
    _one_of_each()
    with keyless(table):
        assert broken() == {"unique_keys_exist": [table]}
    assert broken() == {}


def test_a_job_in_a_state_without_a_name_is_found(rows: dict[str, str]) -> None:
    run(
        "INSERT INTO bz_delivery_dlq (id, account_id, notification_id, channel, sender, recipient,"
        " request_id, job_id, content, error_text, error_fingerprint, parent_id, state, created_at,"
        f" updated_at) VALUES ('dlq_1', 'acme', 'n', 'mail', '', 'x', '', '', '', '', '', '',"
        f" 'lost', {EARLIER}, {EARLIER})"
    )
    assert broken() == {"states_are_known": ["dlq_1"]}


def test_the_sample_is_cut_at_the_limit_and_says_so(rows: dict[str, str]) -> None:
    run(f"UPDATE {REQUESTS} SET updated_at = {EARLIER}")
    (report,) = [each for each in check_all(limit=2) if not each.holds]
    assert len(report.offenders) == 2
    assert report.more
    assert str(report).endswith(", and more")


def test_the_newest_bodies_are_hashed_only_up_to_the_byte_budget(rows: dict[str, str]) -> None:
    run(f"UPDATE {BODIES} SET data = x'6f74686572' WHERE kind = 'result'")
    assert "results_are_the_bytes_that_were_hashed" in broken()
    with override(check_sample_bytes_max=1024):
        run(f"UPDATE {REQUESTS} SET result_bytes = 4096 WHERE result_bytes IS NOT NULL")
        assert "results_are_the_bytes_that_were_hashed" not in broken()


def test_the_last_result_is_stored_for_health_and_replaced_by_the_next(
    rows: dict[str, str],
) -> None:
    run(f"UPDATE {REQUESTS} SET billing_state = 'free' WHERE id = '{rows['unknown']}'")
    CheckReport.objects.create(
        name="I99.gone", offenders=1, checked_at=lives.db_now(), sample_text="of an earlier version"
    )
    store_reports(reports=check_all())
    stored = {row.name: row for row in CheckReport.objects.all()}
    assert set(stored) == {each.key for each in INVARIANTS}
    assert stored["I02.states_are_known"].offenders == 1
    assert rows["unknown"] in stored["I02.states_are_known"].sample_text
    run(f"UPDATE {REQUESTS} SET billing_state = 'pending' WHERE id = '{rows['unknown']}'")
    store_reports(reports=check_all())
    assert not CheckReport.objects.exclude(offenders=0, sample_text="").exists()
