"""Rows of notifications and dead letters (F).

The replay columns of 0067 live in DeadLetterReplay.
"""

from django.db import models

from kernel.ids import IdField


class Notification(models.Model):
    """One intent to notify, written by the transaction that causes it (F1)."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    kind = IdField(max_length=24)
    channel = IdField(max_length=24)
    sender = models.CharField(max_length=200, default="", blank=True)
    recipient = models.CharField(max_length=500)
    request_id = IdField(default="", blank=True)
    job_id = IdField(max_length=64, default="", blank=True)
    content = models.BinaryField()
    content_type = models.CharField(max_length=120, default="application/json")
    state = IdField(max_length=16, default="queued")
    attempts = models.IntegerField(default=0)
    owner = IdField(max_length=64, default="", blank=True)
    fence_token = IdField(max_length=64, default="", blank=True)
    lease_expires_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField()
    error_text = models.TextField(default="", blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_notifications"
        indexes = [
            models.Index(fields=["state", "due_at", "id"], name="bz_notification_due"),
            models.Index(fields=["state", "lease_expires_at", "id"], name="bz_notification_lease"),
            models.Index(fields=["account_id", "updated_at", "id"], name="bz_notification_acct"),
        ]


class DeadLetter(models.Model):
    """A final failure with everything needed to send it again (F3)."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    notification_id = IdField(max_length=64)
    channel = IdField(max_length=24)
    sender = models.CharField(max_length=200, default="", blank=True)
    recipient = models.CharField(max_length=500)
    request_id = IdField(default="", blank=True)
    job_id = IdField(max_length=64, default="", blank=True)
    content = models.BinaryField()
    error_text = models.TextField(default="")
    error_fingerprint = IdField(max_length=64)
    parent_id = IdField(max_length=64, default="", blank=True)
    state = IdField(max_length=16, default="open")
    created_at = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_delivery_dlq"
        indexes = [
            models.Index(fields=["state", "created_at", "id"], name="bz_dlq_state"),
            models.Index(fields=["error_fingerprint", "created_at", "id"], name="bz_dlq_group"),
            models.Index(fields=["account_id", "created_at", "id"], name="bz_dlq_account"),
        ]


class DeadLetterReplay(models.Model):
    """The replay columns of bz_delivery_dlq, mapped apart so that 0067 may be absent (H3)."""

    id = IdField(primary_key=True, max_length=64)
    kind = IdField(max_length=16, null=True)
    original_child_id = IdField(max_length=64, null=True)
    replay_identity = IdField(null=True, unique=True)

    class Meta:
        db_table = "bz_delivery_dlq"
        managed = False
