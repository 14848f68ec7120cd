"""The invariants of requests, bodies, ledger and accounts. kernel/invariants.py asks them all."""

from kernel.checks import Invariant, select
from kernel.usage import sampled

USAGE: tuple[Invariant, ...] = (
    Invariant(
        3,
        "billing_is_open_until_the_result",
        "Billing is open exactly while a request is admitted or dispatched.",
        "A7",
        select(
            "SELECT id, result_state, billing_state FROM bz_usage_requests"
            " WHERE (result_state IN ('admitted', 'dispatched')) <> (billing_state = 'open')"
        ),
    ),
    Invariant(
        4,
        "what_was_dispatched_has_its_fence",
        "Dispatched, unknown, complete and failed requests carry fence, owner, lease and time;"
        " admitted ones carry none.",
        "A4",
        select(
            "SELECT id, result_state, dispatched_at, owner, fence_token FROM bz_usage_requests"
            " WHERE (result_state IN ('dispatched', 'unknown', 'complete', 'failed')"
            " AND dispatched_at IS NULL)"
            " OR (result_state = 'admitted' AND dispatched_at IS NOT NULL)"
            " OR (dispatched_at IS NULL) <> (fence_token = '')"
            " OR (dispatched_at IS NULL) <> (owner = '')"
            " OR (dispatched_at IS NULL) <> (lease_expires_at IS NULL)"
        ),
    ),
    Invariant(
        5,
        "results_are_described",
        "A complete request has size, sha256 and status of its result; no result, no description.",
        "A6",
        select(
            "SELECT id, result_state, result_bytes, result_sha256, http_status"
            " FROM bz_usage_requests"
            " WHERE (result_state = 'complete' AND (result_bytes IS NULL OR http_status IS NULL))"
            " OR (result_bytes IS NULL) <> (result_sha256 = '')"
            " OR (result_bytes IS NOT NULL AND LENGTH(result_sha256) <> 64)"
            " OR (result_bytes IS NOT NULL"
            " AND result_state IN ('admitted', 'dispatched', 'cancelled'))"
        ),
    ),
    Invariant(
        6,
        "bodies_stay_until_the_purge",
        "Until the purge every request has its request body, and each described result its bytes.",
        "A6, A17",
        select(
            "SELECT r.id, r.result_state, b.id AS request_piece, c.id AS result_piece"
            " FROM bz_usage_requests r"
            " LEFT JOIN bz_usage_bodies b"
            " ON b.request_id = r.id AND b.kind = 'request' AND b.sequence = 0"
            " LEFT JOIN bz_usage_bodies c"
            " ON c.request_id = r.id AND c.kind = 'result' AND c.sequence = 0"
            " WHERE r.purged_at IS NULL"
            " AND (b.id IS NULL OR (r.result_bytes IS NULL) <> (c.id IS NULL))"
        ),
    ),
    Invariant(
        7,
        "nothing_stays_after_the_purge",
        "A purged request has ended and keeps no body; every body has its request.",
        "A17",
        select(
            "SELECT DISTINCT b.request_id, b.kind, r.result_state, r.purged_at"
            " FROM bz_usage_bodies b LEFT JOIN bz_usage_requests r ON r.id = b.request_id"
            " WHERE r.id IS NULL OR r.purged_at IS NOT NULL"
            " UNION ALL SELECT id, '', result_state, purged_at FROM bz_usage_requests"
            " WHERE purged_at IS NOT NULL AND result_state NOT IN"
            " ('complete', 'failed', 'cancelled')"
        ),
    ),
    Invariant(
        8,
        "bodies_have_all_their_pieces",
        "The pieces of a body are numbered 0, 1, 2 and so on.",
        "A6",
        select(
            "SELECT request_id, kind, COUNT(*) AS pieces, MAX(sequence) AS last_piece"
            " FROM bz_usage_bodies GROUP BY request_id, kind"
            " HAVING COUNT(*) <> MAX(sequence) + 1 OR MIN(sequence) <> 0"
        ),
    ),
    Invariant(
        9,
        "results_are_the_bytes_that_were_hashed",
        "The newest results have the sha256 and the length that were noted.",
        "A6",
        sampled.wrong_result_bodies,
    ),
    Invariant(
        10,
        "one_charge_per_request",
        "A request has at most one charge in the ledger.",
        "A14",
        select(
            "SELECT request_id, COUNT(*) AS charges FROM bz_usage_ledger WHERE kind = 'charge'"
            " GROUP BY request_id HAVING COUNT(*) > 1"
        ),
    ),
    Invariant(
        11,
        "consumed_is_the_sum_of_the_ledger",
        "consumed = sum(ledger), per account.",
        "A14",
        select(
            "SELECT a.id, a.consumed_nano, COALESCE(l.total, 0) AS ledger_nano"
            " FROM bz_usage_accounts a"
            " LEFT JOIN (SELECT account_id, SUM(amount_nano) AS total FROM bz_usage_ledger"
            " GROUP BY account_id) l ON l.account_id = a.id"
            " WHERE a.consumed_nano <> COALESCE(l.total, 0)"
        ),
    ),
    Invariant(
        12,
        "held_is_the_sum_of_the_holds",
        "held = sum of the holds of requests whose billing is open or pending, per account.",
        "A15",
        select(
            "SELECT a.id, a.held_nano, COALESCE(h.total, 0) AS holds_nano"
            " FROM bz_usage_accounts a"
            " LEFT JOIN (SELECT account_id, SUM(hold_nano) AS total FROM bz_usage_requests"
            " WHERE billing_state IN ('open', 'pending') GROUP BY account_id) h"
            " ON h.account_id = a.id"
            " WHERE a.held_nano <> COALESCE(h.total, 0)"
        ),
    ),
    Invariant(
        13,
        "settled_requests_have_their_charge",
        "A settled request has a charge in its account's ledger, and its amounts are the ledger's.",
        "A14",
        select(
            "SELECT r.id, r.billed_nano, l.amount_nano, l.account_id FROM bz_usage_requests r"
            " LEFT JOIN bz_usage_ledger l ON l.charge_of = r.id"
            " WHERE r.billing_state = 'settled' AND (l.id IS NULL OR r.settled_at IS NULL"
            " OR r.billed_nano IS NULL OR r.billed_nano <> l.amount_nano"
            " OR r.reference_nano IS NULL OR r.reference_nano <> l.reference_nano"
            " OR r.multiplier_millionths <> l.multiplier_millionths"
            " OR r.account_id <> l.account_id)"
        ),
    ),
    Invariant(
        14,
        "charges_have_their_settled_request",
        "A charge belongs to one settled request; a correction names one of its account's settled"
        " requests, is no charge and not zero.",
        "A11b, A14",
        select(
            "SELECT l.id, l.kind, l.request_id, l.charge_of, r.billing_state FROM bz_usage_ledger l"
            " LEFT JOIN bz_usage_requests r ON r.id = l.request_id"
            " WHERE l.kind NOT IN ('charge', 'correction') OR r.id IS NULL"
            " OR (l.kind = 'charge' AND (r.billing_state <> 'settled'"
            " OR l.charge_of IS NULL OR l.charge_of <> l.request_id))"
            " OR (l.kind = 'correction' AND (l.charge_of IS NOT NULL OR l.amount_nano = 0"
            " OR r.billing_state <> 'settled' OR l.account_id <> r.account_id))"
        ),
    ),
    Invariant(
        15,
        "what_is_not_settled_carries_no_amount",
        "A request that is open, pending or not charged has no billed amount, not even zero.",
        "A7, A11",
        select(
            "SELECT id, billing_state, billed_nano, settled_at FROM bz_usage_requests"
            " WHERE billing_state <> 'settled' AND (billed_nano IS NOT NULL"
            " OR reference_nano IS NOT NULL OR settled_at IS NOT NULL)"
        ),
    ),
    Invariant(
        16,
        "charges_rest_on_metering_and_price",
        "A settled request keeps the metering and the frozen price it was charged from.",
        "A11",
        select(
            "SELECT id, LENGTH(usage_text) AS metering, LENGTH(price_text) AS price"
            " FROM bz_usage_requests"
            " WHERE billing_state = 'settled' AND (usage_text = '' OR price_text = '')"
        ),
    ),
    Invariant(
        17,
        "charges_follow_from_their_lines",
        "The newest charges are what their lines and multiplier come to.",
        "A13",
        sampled.unexplained_charges,
    ),
    Invariant(
        18,
        "reasons_fit",
        "Not charged always says why; open and settled have no reason.",
        "A7",
        select(
            "SELECT id, billing_state, pending_reason FROM bz_usage_requests"
            " WHERE (billing_state = 'not_charged' AND pending_reason = '')"
            " OR (billing_state IN ('open', 'settled') AND pending_reason <> '')"
        ),
    ),
    Invariant(
        19,
        "amounts_are_not_negative",
        "Holds and charges are zero or more.",
        "A15",
        select(
            "SELECT id, hold_nano AS nano FROM bz_usage_requests WHERE hold_nano < 0"
            " UNION ALL SELECT id, held_nano FROM bz_usage_accounts WHERE held_nano < 0"
            " UNION ALL SELECT id, amount_nano FROM bz_usage_ledger"
            " WHERE kind = 'charge' AND (amount_nano < 0 OR reference_nano < 0)"
        ),
    ),
    Invariant(
        20,
        "overruns_are_flagged",
        "An account that consumed more than its cap carries the flag that stops admissions.",
        "A15",
        select(
            "SELECT id, cap_nano, consumed_nano FROM bz_usage_accounts"
            " WHERE cap_nano IS NOT NULL AND consumed_nano > cap_nano AND overrun_at IS NULL"
        ),
    ),
    Invariant(
        21,
        "rows_have_their_account",
        "Every request and ledger row belongs to an account that exists.",
        "A14",
        select(
            "SELECT r.id, r.account_id FROM bz_usage_requests r"
            " LEFT JOIN bz_usage_accounts a ON a.id = r.account_id WHERE a.id IS NULL"
            " UNION ALL SELECT l.id, l.account_id FROM bz_usage_ledger l"
            " LEFT JOIN bz_usage_accounts a ON a.id = l.account_id WHERE a.id IS NULL"
        ),
    ),
    Invariant(
        22,
        "times_are_ordered",
        "Admitted, dispatched, result, settled: in this order; nothing is newer than `updated_at`.",
        "A4, A6",
        select(
            "SELECT id, admitted_at, dispatched_at, result_at, settled_at, updated_at"
            " FROM bz_usage_requests"
            " WHERE dispatched_at < admitted_at OR result_at < COALESCE(dispatched_at, admitted_at)"
            " OR settled_at < COALESCE(result_at, dispatched_at) OR updated_at < admitted_at"
            " OR updated_at < dispatched_at OR updated_at < result_at OR updated_at < settled_at"
        ),
    ),
    Invariant(
        23,
        "acts_are_audited",
        "The newest cancelled and resolved requests have the audit row of that act.",
        "L2, M2",
        sampled.unaudited_acts,
    ),
    Invariant(
        24,
        "corrected_charges_are_not_negative",
        "A charge and its corrections together are zero or more.",
        "A11b",
        select(
            "SELECT request_id, SUM(amount_nano) AS total_nano FROM bz_usage_ledger"
            " WHERE request_id IN (SELECT request_id FROM bz_usage_ledger"
            " WHERE kind = 'correction') GROUP BY request_id HAVING SUM(amount_nano) < 0"
        ),
    ),
    Invariant(
        25,
        "corrections_are_audited",
        "The newest corrections have the audit row of that act.",
        "A11b, M2",
        sampled.unaudited_corrections,
    ),
)
