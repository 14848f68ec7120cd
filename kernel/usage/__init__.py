"""Model requests and the usage ledger (A, B): the public verbs."""

from kernel.usage.accounts import (
    AccountSummary,
    account_summary,
    change_account,
    create_account,
    list_accounts,
)
from kernel.usage.admission import admit
from kernel.usage.bodies import read_body, read_body_head
from kernel.usage.catalog import (
    add_price,
    add_service,
    change_service,
    get_service,
    list_prices,
    list_services,
    price_in_force,
    prices_in_force,
)
from kernel.usage.corrections import (
    CORRECTION_REASON_CHARS_MIN,
    Correction,
    corrections_of,
    post_correction,
)
from kernel.usage.dispatch import cancel, dispatch
from kernel.usage.lookup import (
    Explanation,
    explain_charge,
    find_requests,
    get_request,
    get_request_by_id,
    result_body,
)
from kernel.usage.recovery import expiry_page, purge_bodies
from kernel.usage.resolution import (
    Evidence,
    resolve_pending,
    resolve_unknown,
    saved_metering_counts,
    write_off,
)
from kernel.usage.results import save_results
from kernel.usage.settlement import settle, settlement_page

__all__ = [
    "CORRECTION_REASON_CHARS_MIN",
    "Evidence",
    "AccountSummary",
    "Correction",
    "Explanation",
    "account_summary",
    "add_price",
    "add_service",
    "admit",
    "cancel",
    "change_account",
    "change_service",
    "corrections_of",
    "create_account",
    "dispatch",
    "expiry_page",
    "explain_charge",
    "find_requests",
    "get_request",
    "get_request_by_id",
    "get_service",
    "list_accounts",
    "list_prices",
    "list_services",
    "post_correction",
    "price_in_force",
    "prices_in_force",
    "purge_bodies",
    "read_body",
    "read_body_head",
    "resolve_pending",
    "resolve_unknown",
    "result_body",
    "save_results",
    "saved_metering_counts",
    "settle",
    "settlement_page",
    "write_off",
]
