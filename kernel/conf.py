"""Every limit and setting: name, default, bounds, unit. The one table.

Each row is read from the environment as `BAILING_<NAME>` (upper case); a value out of bounds stops
the start with a message that names it. Code reads `conf.<name>`; tests use `override(name=value)`.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.core.exceptions import ImproperlyConfigured

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: default value, inclusive bounds (numbers) and what it limits."""

    default: Any
    low: float
    high: float
    about: str


SETTINGS: dict[str, Setting] = {
    # settlement and maintenance (B)
    "settlement_interval_seconds": Setting(60, 1, 3600, "between two settlement passes"),
    "settlement_page_rows": Setting(50, 1, 50, "rows of one settlement page"),
    "settlement_budget_seconds": Setting(20, 1, 300, "one pass stops walking pages after this"),
    "settlement_linger_milliseconds": Setting(50, 0, 5000, "a saved result waits for company"),
    "backoff_first_seconds": Setting(60, 1, 300, "first wait after a database failure"),
    "backoff_max_seconds": Setting(300, 1, 3600, "longest wait after database failures"),
    "continuation_interval_seconds": Setting(5, 1, 300, "between two continuation passes"),
    "recovery_interval_seconds": Setting(5, 1, 300, "between two looks for expired leases"),
    "recovery_page_rows": Setting(200, 1, 1000, "rows of one recovery page"),
    "purge_interval_seconds": Setting(3600, 60, 86400, "between two purges of old result bodies"),
    "result_retention_days": Setting(30, 1, 3650, "result bodies are kept this long"),
    # model requests (A)
    "dispatch_lease_seconds": Setting(60, 5, 600, "a dispatch is owned this long"),
    "dispatch_renewal_seconds": Setting(15, 1, 200, "lease renewal while the call runs"),
    "provider_deadline_seconds": Setting(600, 1, 3600, "whole provider call"),
    "provider_read_seconds": Setting(120, 1, 3600, "longest silence of a provider"),
    "provider_connect_seconds": Setting(10, 1, 60, "connecting to a provider"),
    "provider_body_bytes_max": Setting(64 * MIB, KIB, 1024 * MIB, "a provider's answer, decoded"),
    "request_body_bytes_max": Setting(10 * MIB, KIB, 100 * MIB, "a request body into the product"),
    "request_head_bytes_max": Setting(64 * KIB, KIB, MIB, "request line and headers"),
    "request_head_seconds": Setting(15, 1, 300, "a request's head, from its first byte to its end"),
    "request_body_seconds": Setting(120, 1, 3600, "a request's body, from the end of its head"),
    "request_values_count_max": Setting(100_000, 1_000, 10**7, "JSON values of a request body"),
    "metering_bytes_max": Setting(64 * KIB, KIB, MIB, "raw usage kept with a request"),
    "stream_event_bytes_max": Setting(8 * MIB, KIB, 64 * MIB, "one event of a provider's stream"),
    "metered_count_max": Setting(1_000_000_000, 1_000, 10**12, "of one unit; more is implausible"),
    "rate_usd_per_million_max": Setting(1_000, 1, 10**9, "a higher rate must be confirmed"),
    "rate_microusd_per_million_min": Setting(500, 0, 10**9, "a lower rate must be confirmed"),
    "body_chunk_bytes": Setting(MIB, KIB, 8 * MIB, "one stored piece of a body"),
    "result_save_seconds_max": Setting(600, 1, 86400, "retrying to save a result"),
    "readiness_cache_seconds": Setting(1, 0, 60, "one look at the schema answers all probes"),
    "token_cache_seconds": Setting(2, 0, 60, "a revoked token may still work this long"),
    # outgoing HTTP (E)
    "tool_body_bytes_max": Setting(5 * MIB, KIB, 1024 * MIB, "a tool's answer, decoded"),
    "model_view_bytes_max": Setting(64 * KIB, 256, 16 * MIB, "of a body, shown to the model"),
    "audit_view_bytes_max": Setting(8 * KIB, 256, MIB, "of a body, shown in audit and console"),
    "remote_file_bytes_max": Setting(20 * MIB, KIB, 1024 * MIB, "a downloaded remote file"),
    "attachment_bytes_max": Setting(20 * MIB, KIB, 1024 * MIB, "a channel attachment"),
    # jobs and notifications (D, F)
    "job_lease_seconds": Setting(60, 5, 3600, "a job is owned this long"),
    "job_heartbeat_seconds": Setting(15, 1, 600, "between heartbeats"),
    "worker_lost_max": Setting(3, 1, 100, "a job that kills this many workers is parked"),
    "job_count_max": Setting(8, 1, 1000, "jobs that one worker process runs at once"),
    "job_poll_seconds": Setting(1.0, 0.05, 60, "a worker looks for jobs at least this often"),
    "job_recovery_interval_seconds": Setting(5, 1, 300, "between two looks for lost workers"),
    "job_recovery_page_rows": Setting(200, 1, 1000, "rows of one page of job recovery"),
    "job_input_bytes_max": Setting(MIB, KIB, 10 * MIB, "the input of one job"),
    "job_result_bytes_max": Setting(MIB, KIB, 10 * MIB, "the result of one job"),
    "job_retry_seconds": Setting(5, 1, 3600, "a paused or rate-limited job is tried again then"),
    "job_retry_max_seconds": Setting(3600, 1, 86400, "longest wait of a job that cannot go on"),
    "job_file_outdated_count_max": Setting(10_000, 1, 10**8, "records; then a file is rewritten"),
    "step_calls_count_max": Setting(32, 1, 1000, "tool calls of one model step"),
    "tool_tries_max": Setting(5, 1, 100, "dispatches of one call that provably sent nothing"),
    # approvals (C)
    "arguments_bytes_max": Setting(256 * KIB, KIB, 4 * MIB, "canonical arguments of one call"),
    "arguments_depth_count_max": Setting(64, 1, 500, "nesting of arguments"),
    "approval_asks_count_max": Setting(3, 1, 20, "questions about one tool call"),
    "job_approvals_count_max": Setting(64, 1, 1000, "questions that one job may ask"),
    "approval_expiry_interval_seconds": Setting(5, 1, 300, "between two looks for late ones"),
    "invocation_approval_seconds": Setting(86_400, 60, 2_592_000, "a direct call's question"),
    "continuation_page_rows": Setting(50, 1, 500, "rows of one page of continuations"),
    "continuation_retry_first_seconds": Setting(1, 1, 300, "first wait after a failed attempt"),
    "continuation_retry_max_seconds": Setting(300, 1, 86400, "longest wait between attempts"),
    "signature_tolerance_seconds": Setting(300, 10, 3600, "a signed message's age, both ways"),
    "signature_receipt_days": Setting(7, 1, 365, "webhook ids are remembered this long"),
    "notification_attempts_max": Setting(8, 1, 50, "attempts of one notification"),
    "notification_deadline_seconds": Setting(30, 1, 300, "one attempt, in total"),
    "retry_after_seconds_max": Setting(3600, 1, 86400, "Retry-After is clamped to this"),
    "chat_memory_bytes_max": Setting(512 * MIB, 128 * MIB, 8192 * MIB, "of a sending process"),
    "notification_bytes_max": Setting(256 * KIB, 64 * KIB, 4 * MIB, "one notification's content"),
    "notification_lease_seconds": Setting(90, 10, 3600, "a sender owns a notification this long"),
    "notification_poll_seconds": Setting(1.0, 0.05, 60, "the sender looks at least this often"),
    "notification_page_rows": Setting(100, 1, 1000, "notifications claimed at once"),
    "notification_slow_seconds": Setting(0.5, 0.1, 30, "an attempt that takes longer is slow"),
    "notification_slow_count_max": Setting(400, 0, 10_000, "slow attempts, besides a page's"),
    "notification_retry_first_seconds": Setting(5, 1, 3600, "first wait of the schedule"),
    "notification_retry_max_seconds": Setting(3600, 1, 86400, "longest wait of the schedule"),
    "destination_slots_count_max": Setting(4, 1, 100, "attempts at one destination at once"),
    "destination_failures_count_max": Setting(10, 1, 1000, "in a row close a destination"),
    "destination_closed_seconds": Setting(60, 1, 86400, "then one probe is sent"),
    "answer_bytes_max": Setting(64 * KIB, KIB, MIB, "read of a receiver's answer"),
    "evidence_bytes_max": Setting(4 * KIB, 256, 64 * KIB, "of an error or answer, kept"),
    # long acts (F9)
    "operation_items_count_max": Setting(1_000_000, 1, 10**8, "objects of one frozen set"),
    "operation_page_rows": Setting(200, 1, 1000, "items worked off in one go"),
    "operation_items_per_second_count": Setting(500, 1, 100_000, "items per second, unless told"),
    "operation_interval_seconds": Setting(1, 1, 60, "between two looks for running operations"),
    "operation_lease_seconds": Setting(30, 5, 600, "a process owns an operation this long"),
    # audit and retention (M2, A17); what stays for good: docs/retention.md
    "audit_copy_interval_seconds": Setting(10, 1, 3600, "between two looks for rows to copy"),
    "audit_copy_lag_seconds": Setting(60, 0, 3600, "a younger row waits: others may commit late"),
    "audit_copy_page_rows": Setting(500, 1, 5000, "rows appended and fsynced at once"),
    "audit_copy_file_bytes_max": Setting(256 * MIB, KIB, 64 * 1024 * MIB, "then a new file begins"),
    "job_retention_days": Setting(90, 1, 3650, "input and result of an ended job are kept"),
    "attempt_retention_days": Setting(90, 1, 3650, "attempts at an ended notification are kept"),
    "dead_letter_retention_days": Setting(90, 1, 3650, "a resolved dead letter's content is kept"),
    "export_retention_days": Setting(7, 1, 3650, "the file of an export is kept"),
    # lifecycle and process (G)
    "close_budget_seconds": Setting(30, 1, 600, "the one shared deadline of close()"),
    "database_threads": Setting(4, 1, 16, "threads that touch the database (SQLite: always 1)"),
    "writer_batch_max": Setting(50, 1, 200, "requests that share one commit"),
    "lock_wait_seconds": Setting(5, 1, 50, "longest wait for a row lock"),
    "ddl_lock_wait_seconds": Setting(30, 1, 3600, "db_init gives up on a busy table after this"),
    "idle_connection_seconds": Setting(30, 10, 3600, "the server ends a silent connection then"),
    "idle_transaction_seconds": Setting(20, 5, 600, "or one inside a transaction (MariaDB)"),
    "transaction_tries_max": Setting(8, 1, 50, "runs of one transaction under contention"),
    "log_value_bytes_max": Setting(16 * KIB, 256, MIB, "one value of a log line"),
    # several processes (B1): Celery's beat and the messages that wake its workers
    "beat_tick_seconds": Setting(1.0, 0.2, 60, "Celery's beat asks for a tick this often"),
    "tick_silence_seconds": Setting(30, 1, 3600, "a Celery worker without ticks looks by itself"),
    "wake_timeout_seconds": Setting(1.0, 0.1, 10, "one try to hand a wake-up to the broker"),
    "wake_linger_milliseconds": Setting(50, 0, 5000, "wake-ups within this are one message"),
    "wake_expires_seconds": Setting(60, 1, 3600, "an older wake-up is thrown away unread"),
    # database invariants (K)
    "check_offenders_max": Setting(20, 1, 1000, "offenders named per invariant"),
    "check_sample_rows": Setting(200, 1, 100_000, "newest rows that are looked into"),
    "check_sample_bytes_max": Setting(64 * MIB, KIB, 4096 * MIB, "bodies hashed again, in total"),
    # the doctor
    "clock_skew_seconds_warn": Setting(2, 1, 60, "host against database, then a warning"),
    "clock_skew_seconds_max": Setting(30, 2, 300, "then a failure: one-time codes stop working"),
    "disk_free_mib_warn": Setting(2048, 1, 10**7, "less room for var/ is a warning"),
    "disk_free_mib_min": Setting(256, 1, 10**7, "less room for var/ is a failure"),
    # console (L)
    "list_page_rows": Setting(50, 1, 200, "rows of one list page"),
    "saved_views_count_max": Setting(30, 1, 200, "named views of lists that one person keeps"),
    "count_cap": Setting(10_000, 100, 1_000_000, "exact counts stop here"),
    "sign_in_tries_max": Setting(10, 3, 100, "failed sign-ins per window, per name and address"),
    "sign_in_window_seconds": Setting(300, 10, 86400, "the window of sign_in_tries_max"),
    "session_idle_seconds": Setting(3600, 60, 604800, "a console session ends when idle this long"),
    "session_age_seconds_max": Setting(43_200, 300, 2_592_000, "and at this age, however busy"),
    "step_up_seconds": Setting(900, 30, 86400, "'it is you' holds this long for grave acts"),
    "factors_count_max": Setting(10, 2, 50, "second factors of one person"),
}


class Conf:
    """Attribute access gives the number. The environment is read once, at the first access.

    Not earlier: `.env` is loaded by Django's settings, which import this module first.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ):
        self._environ = environ

    @cached_property
    def _values(self) -> dict[str, Any]:
        return {
            name: _parse(name, row, self._environ.get(f"BAILING_{name.upper()}"))
            for name, row in SETTINGS.items()
        }

    def __getattr__(self, name: str) -> Any:
        if name not in SETTINGS:
            raise AttributeError(f"no setting named {name}")
        return self._values[name]


def _parse(name: str, row: Setting, text: str | None) -> Any:
    if text is None or text == "":
        return row.default
    try:
        value = type(row.default)(text)
    except ValueError:
        value = math.nan
    if not row.low <= value <= row.high:  # NaN is out of every bound
        kind = "a whole number" if isinstance(row.default, int) else "a number"
        raise ImproperlyConfigured(
            f"BAILING_{name.upper()} is {text[:20]!r}; it must be {kind} from {row.low} to"
            f" {row.high} ({row.about}). Change it in .env or in the environment, or remove it:"
            f" the default is {row.default}."
        )
    return value


conf = Conf()


@contextmanager
def override(**values: Any) -> Iterator[Conf]:
    """Replace settings for the length of a block. For tests; unknown names raise."""
    unknown = set(values) - set(SETTINGS)
    if unknown:
        raise ValueError(f"no such setting: {sorted(unknown)}")
    before = conf._values
    conf._values = {**before, **values}
    try:
        yield conf
    finally:
        conf._values = before
