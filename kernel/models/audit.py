"""Audit rows: append-only, chained by hash per subject (M2)."""

from django.db import models

from kernel.ids import IdField


class AuditRow(models.Model):
    """Who did what to which object, before and after, and why. Written in the act's transaction."""

    id = IdField(primary_key=True, max_length=64)
    subject = IdField(max_length=160)  # <object kind>:<object id>
    sequence = models.IntegerField()
    actor_kind = IdField(max_length=24)
    actor_id = models.CharField(max_length=160)
    action = IdField(max_length=64)
    before_text = models.TextField(default="")
    after_text = models.TextField(default="")
    reason = models.TextField(default="")
    request_id = models.CharField(max_length=128, default="")
    act_key = IdField(max_length=64, null=True, unique=True)
    previous_sha256 = models.CharField(max_length=64)
    sha256 = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        db_table = "bz_audit"
        constraints = [
            models.UniqueConstraint(fields=["subject", "sequence"], name="bz_audit_chain"),
        ]
        indexes = [
            models.Index(fields=["at", "id"], name="bz_audit_at"),
            models.Index(fields=["actor_id", "at", "id"], name="bz_audit_actor"),
            models.Index(fields=["action", "at", "id"], name="bz_audit_action"),
        ]
