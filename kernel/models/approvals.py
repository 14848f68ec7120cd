"""Rows of approvals, their continuations, and who may sign decisions (C)."""

from django.db import models

from kernel.ids import IdField


class Approval(models.Model):
    """One question to a person, bound to job, request, tool, version and argument hash (C1)."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    job_id = IdField(max_length=64, default="", blank=True)
    invocation_id = IdField(max_length=64, default="", blank=True)
    request_id = IdField()
    tool = IdField()
    tool_version = models.IntegerField(default=1)
    arguments_text = models.TextField()
    canonical_version = models.IntegerField(default=1)
    arguments_sha256 = IdField(max_length=64)
    risk = IdField(max_length=16)
    effect = models.TextField(default="")
    requested_by = models.CharField(max_length=160)
    state = IdField(max_length=16, default="open")
    decision = IdField(max_length=16, default="", blank=True)
    decision_id = IdField(null=True, unique=True)
    decided_by_kind = IdField(max_length=24, default="", blank=True)
    decided_by_id = models.CharField(max_length=160, default="", blank=True)
    reason = models.TextField(default="", blank=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    consumed_at = models.DateTimeField(null=True)
    tool_call_id = IdField(max_length=64, default="", db_default="", blank=True)
    supersedes_id = IdField(max_length=64, default="", db_default="", blank=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_approvals"
        indexes = [
            models.Index(fields=["state", "created_at", "id"], name="bz_approval_state"),
            models.Index(
                fields=["account_id", "state", "created_at", "id"], name="bz_approval_acct"
            ),
            models.Index(fields=["job_id", "id"], name="bz_approval_job"),
            models.Index(fields=["state", "expires_at", "id"], name="bz_approval_expiry"),
            models.Index(fields=["tool", "decision", "decided_at", "id"], name="bz_approval_last"),
        ]


class Continuation(models.Model):
    """The durable promise that a recorded decision will be carried through (C2, migration 0066)."""

    approval_id = IdField(primary_key=True, max_length=64)
    job_id = IdField(max_length=64, default="", blank=True)
    request_id = IdField()
    arguments_sha256 = IdField(max_length=64)
    decision_id = IdField(unique=True)
    decision = IdField(max_length=16)
    state = IdField(max_length=16, default="owed")  # owed | done
    attempts = models.IntegerField(default=0)
    next_attempt_at = models.DateTimeField()
    error_text = models.TextField(default="", blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_approval_continuations"
        indexes = [
            models.Index(fields=["state", "approval_id"], name="bz_continuation_owed"),
        ]


class SigningKey(models.Model):
    """A secret an account's callbacks are signed with; the secret stays in the environment."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    secret_env = models.CharField(max_length=120)
    created_by = models.CharField(max_length=160)
    created_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "bz_signing_keys"
        indexes = [models.Index(fields=["account_id", "id"], name="bz_signing_key_account")]


class WebhookReceipt(models.Model):
    """A signed message that was accepted once: its id, and which body came under it."""

    id = models.BigAutoField(primary_key=True)
    account_id = IdField()
    webhook_id = IdField()
    body_sha256 = IdField(max_length=64)
    received_at = models.DateTimeField()

    class Meta:
        db_table = "bz_webhook_receipts"
        constraints = [
            models.UniqueConstraint(
                fields=["account_id", "webhook_id"], name="bz_webhook_receipt_identity"
            ),
        ]
        indexes = [models.Index(fields=["received_at", "id"], name="bz_webhook_receipt_age")]
