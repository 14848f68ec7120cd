"""Rows of notifications, attempts, destinations, alert rules and dead letters (F).

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
    event = IdField(max_length=64, default="", db_default="", blank=True)
    destination_id = IdField(default="", db_default="", blank=True)
    child_job_id = IdField(max_length=64, default="", db_default="", blank=True)
    replay_of_id = IdField(max_length=64, default="", db_default="", blank=True)  # a dead letter
    unknown_attempts = models.IntegerField(default=0, db_default=0)  # each may have arrived

    class Meta:
        db_table = "bz_notifications"
        indexes = [
            models.Index(fields=["state", "due_at", "id"], name="bz_notification_due"),
            models.Index(fields=["state", "lease_expires_at", "id"], name="bz_notification_lease"),
            models.Index(fields=["account_id", "updated_at", "id"], name="bz_notification_acct"),
            models.Index(
                fields=["destination_id", "state", "due_at", "id"], name="bz_notification_dest"
            ),
            models.Index(fields=["state", "updated_at", "id"], name="bz_notification_list"),
            models.Index(fields=["child_job_id"], name="bz_notification_child"),
            models.Index(fields=["kind", "updated_at", "id"], name="bz_notification_kind"),
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
    destination_id = IdField(default="", db_default="", blank=True)
    content_type = models.CharField(max_length=120, default="", db_default="", blank=True)
    event = IdField(max_length=64, default="", db_default="", blank=True)
    unknown_attempts = models.IntegerField(default=0, db_default=0)  # each may have arrived

    class Meta:
        db_table = "bz_delivery_dlq"
        indexes = [
            models.Index(fields=["state", "created_at", "id"], name="bz_dlq_state"),
            models.Index(fields=["error_fingerprint", "created_at", "id"], name="bz_dlq_group"),
            models.Index(fields=["account_id", "created_at", "id"], name="bz_dlq_account"),
            models.Index(fields=["destination_id", "created_at", "id"], name="bz_dlq_destination"),
            models.Index(fields=["notification_id"], name="bz_dlq_notification"),
            models.Index(fields=["parent_id"], name="bz_dlq_parent"),
            models.Index(
                fields=["error_fingerprint", "state", "created_at", "id", "unknown_attempts"],
                name="bz_dlq_group_state",
            ),
            models.Index(
                fields=["account_id", "state", "created_at", "id"], name="bz_dlq_account_state"
            ),
            models.Index(
                fields=["destination_id", "state", "created_at", "id"],
                name="bz_dlq_destination_state",
            ),
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


class DeadLetterGroup(models.Model):
    """Dead letters with one error fingerprint, counted as they come and go (F9)."""

    fingerprint = IdField(primary_key=True, max_length=64)
    sample_text = models.TextField(default="")
    channel = IdField(max_length=24, default="", blank=True)
    total_count = models.BigIntegerField(default=0)
    open_count = models.BigIntegerField(default=0)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        db_table = "bz_dlq_groups"
        indexes = [models.Index(fields=["last_seen_at", "fingerprint"], name="bz_dlq_group_seen")]


class Destination(models.Model):
    """Where notifications of an account go, over which channel, for which events (F1, F7)."""

    id = IdField(primary_key=True)
    account_id = IdField()
    channel = IdField(max_length=24)  # webhook | email | apprise | executor
    address = models.CharField(max_length=500)
    sender = models.CharField(max_length=200, default="", blank=True)
    secret_env = models.CharField(max_length=120, default="", blank=True)
    events_text = models.TextField(default="[]")  # JSON list of event prefixes
    allow_private = models.BooleanField(default=False)
    active = models.BooleanField(default=True)
    version = models.IntegerField(default=1)
    failures = models.IntegerField(default=0)  # in a row; a delivery sets it to 0
    closed_until_at = models.DateTimeField(null=True)  # too many failures: one probe then
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_destinations"
        indexes = [models.Index(fields=["account_id", "id"], name="bz_destination_account")]


class DeliveryAttempt(models.Model):
    """One attempt to send a notification and what came of it (F2). Never changes."""

    id = models.BigAutoField(primary_key=True)
    notification_id = IdField(max_length=64)
    number = models.IntegerField()
    outcome = IdField(max_length=16)  # delivered | refused | not_sent | unknown
    http_status = models.IntegerField(null=True)
    evidence_text = models.TextField(default="")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    next_due_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "bz_delivery_attempts"
        constraints = [
            models.UniqueConstraint(
                fields=["notification_id", "number"], name="bz_delivery_attempt_number"
            ),
        ]


class AlertRule(models.Model):
    """Tells a destination about events of a kind, at most once per cooldown and account (F1)."""

    id = IdField(primary_key=True)
    event_prefix = IdField(max_length=64)
    destination_id = IdField()
    cooldown_seconds = models.IntegerField(default=300)
    active = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_alert_rules"


class AlertWindow(models.Model):
    """When a rule last spoke about one account, and how much it kept to itself since."""

    id = models.BigAutoField(primary_key=True)
    rule_id = IdField()
    account_id = IdField()
    fired_at = models.DateTimeField()
    suppressed = models.IntegerField(default=0)

    class Meta:
        db_table = "bz_alert_windows"
        constraints = [
            models.UniqueConstraint(fields=["rule_id", "account_id"], name="bz_alert_window"),
        ]
