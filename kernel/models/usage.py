"""Rows of the usage ledger: accounts, services, prices, requests, bodies, ledger (A, B)."""

from django.db import models

from kernel.ids import IdField
from kernel.money import MULTIPLIER_ONE
from kernel.states import Billing, Result


class Account(models.Model):
    """Who pays.

    `held_nano` and `consumed_nano` move only together with their requests and ledger.
    """

    id = IdField(primary_key=True)
    name = models.CharField(max_length=120)
    multiplier_millionths = models.BigIntegerField(default=MULTIPLIER_ONE)
    cap_nano = models.BigIntegerField(null=True)
    held_nano = models.BigIntegerField(default=0)
    consumed_nano = models.BigIntegerField(default=0)
    allow_unpriced = models.BooleanField(default=False)
    active = models.BooleanField(default=True)
    overrun_at = models.DateTimeField(null=True)
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_usage_accounts"


class Service(models.Model):
    """One provider route that callers name as `model`. The key stays in the environment."""

    id = IdField(primary_key=True)
    account_id = IdField(default="", blank=True)  # '' = every account
    base_url = models.CharField(max_length=500)
    model = models.CharField(max_length=200)
    api_key_env = models.CharField(max_length=120, default="", blank=True)
    price_provider = models.CharField(max_length=120, default="", blank=True)
    price_model = models.CharField(max_length=200, default="", blank=True)
    max_output_tokens = models.IntegerField(null=True)
    allow_private = models.BooleanField(default=False)
    active = models.BooleanField(default=True)
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_usage_services"


class Price(models.Model):
    """An operator's price: never edited, replaced by a newer version (A11b, A12)."""

    id = IdField(primary_key=True, max_length=64)
    provider = models.CharField(max_length=120)
    model = models.CharField(max_length=200)
    version = models.IntegerField()
    rates_text = models.TextField()
    valid_from_at = models.DateTimeField()
    valid_until_at = models.DateTimeField(null=True)
    created_by = models.CharField(max_length=160)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "bz_usage_prices"
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "model", "version"], name="bz_usage_price_version"
            ),
        ]
        indexes = [models.Index(fields=["valid_from_at", "id"], name="bz_usage_price_from")]


class Request(models.Model):
    """One model request, known by (account, operation id); the truth about its one generation."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    operation_id = IdField()
    service_id = IdField()
    service_version = models.IntegerField()
    upstream_model = models.CharField(max_length=200)
    path = models.CharField(max_length=120)
    content_sha256 = IdField(max_length=64)
    streamed = models.BooleanField(default=False)
    hide_usage = models.BooleanField(default=False)
    result_state = IdField(max_length=16, default=Result.ADMITTED)
    billing_state = IdField(max_length=16, default=Billing.OPEN)
    pending_reason = IdField(max_length=40, default="", blank=True)
    # the fence (A4)
    owner = IdField(max_length=64, default="", blank=True)
    fence_token = IdField(max_length=64, default="", blank=True)
    lease_expires_at = models.DateTimeField(null=True)
    # frozen at admission (A11)
    multiplier_millionths = models.BigIntegerField()
    price_text = models.TextField(default="", blank=True)
    hold_nano = models.BigIntegerField(default=0)
    # the result (A6)
    http_status = models.IntegerField(null=True)
    content_type = models.CharField(max_length=200, default="", blank=True)
    result_sha256 = models.CharField(max_length=64, default="", blank=True)
    result_bytes = models.BigIntegerField(null=True)
    provider_request_id = models.CharField(max_length=200, default="", blank=True)
    error_code = IdField(max_length=64, default="", blank=True)
    error_text = models.TextField(default="", blank=True)
    # metering (A11)
    usage_text = models.TextField(default="", blank=True)
    late_usage_text = models.TextField(default="", blank=True)
    reference_nano = models.BigIntegerField(null=True)
    billed_nano = models.BigIntegerField(null=True)
    # times
    admitted_at = models.DateTimeField()
    dispatched_at = models.DateTimeField(null=True)
    result_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    purged_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_usage_requests"
        constraints = [
            models.UniqueConstraint(
                fields=["account_id", "operation_id"], name="bz_usage_request_operation"
            ),
        ]
        indexes = [
            models.Index(fields=["updated_at", "id"], name="bz_usage_req_at"),
            models.Index(fields=["result_state", "updated_at", "id"], name="bz_usage_req_state"),
            models.Index(fields=["account_id", "updated_at", "id"], name="bz_usage_req_account"),
            models.Index(
                fields=["account_id", "result_state", "updated_at", "id"],
                name="bz_usage_req_account_state",
            ),
            models.Index(
                fields=["result_state", "lease_expires_at", "id"], name="bz_usage_req_lease"
            ),
            models.Index(
                fields=["billing_state", "updated_at", "id"], name="bz_usage_req_settlement"
            ),
        ]


class Body(models.Model):
    """A piece of a request or result body; pieces keep rows below max_allowed_packet."""

    id = models.BigAutoField(primary_key=True)
    request_id = IdField(max_length=64)
    kind = IdField(max_length=8)  # request | result
    sequence = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        db_table = "bz_usage_bodies"
        constraints = [
            models.UniqueConstraint(
                fields=["request_id", "kind", "sequence"], name="bz_usage_body"
            ),
        ]


class LedgerRow(models.Model):
    """One charge or correction.

    Never changes; `charge_of` is unique: one charge per request (A14).
    """

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    request_id = IdField(max_length=64)
    charge_of = IdField(max_length=64, null=True, unique=True)
    kind = IdField(max_length=16)  # charge | correction
    amount_nano = models.BigIntegerField()
    reference_nano = models.BigIntegerField()
    multiplier_millionths = models.BigIntegerField()
    lines_text = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "bz_usage_ledger"
        indexes = [
            models.Index(fields=["account_id", "created_at", "id"], name="bz_usage_ledger_account"),
            models.Index(fields=["request_id"], name="bz_usage_ledger_request"),
        ]
