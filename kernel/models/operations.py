"""Rows of long acts: a frozen plan and its items (F9)."""

from django.db import models

from kernel.ids import IdField


class Operation(models.Model):
    """One long act over a frozen set; it survives restarts and says how far it came."""

    id = IdField(primary_key=True, max_length=64)
    kind = IdField(max_length=32)
    filter_text = models.TextField()
    ceiling_id = IdField(max_length=64, default="", blank=True)  # newcomers are not in the set
    item_count = models.BigIntegerField(default=0)
    digest = IdField(max_length=64, default="", blank=True)  # sha256 over the ids of the set
    split_text = models.TextField(default="{}")  # JSON: destination -> count
    state = IdField(max_length=16, default="planned")
    rate_per_second = models.IntegerField(default=50)
    next_sequence = models.BigIntegerField(default=1)
    done_count = models.BigIntegerField(default=0)
    skipped_count = models.BigIntegerField(default=0)
    failed_count = models.BigIntegerField(default=0)
    owner = IdField(max_length=64, default="", blank=True)
    fence_token = models.BigIntegerField(default=0)
    lease_expires_at = models.DateTimeField(null=True)
    interruptions = models.IntegerField(default=0)  # owners that were lost on the way
    reason = models.TextField(default="", blank=True)
    error_text = models.TextField(default="", blank=True)
    created_by = models.CharField(max_length=160)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_operations"
        indexes = [
            models.Index(fields=["state", "updated_at", "id"], name="bz_operation_state"),
            models.Index(fields=["created_at", "id"], name="bz_operation_age"),
        ]


class OperationItem(models.Model):
    """One object of the frozen set and what became of it."""

    id = models.BigAutoField(primary_key=True)
    operation_id = IdField(max_length=64)
    sequence = models.BigIntegerField()
    object_id = IdField(max_length=64)
    state = IdField(max_length=16, default="planned")  # planned | done | skipped | failed
    outcome_text = models.CharField(max_length=300, default="", blank=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_operation_items"
        constraints = [
            models.UniqueConstraint(
                fields=["operation_id", "sequence"], name="bz_operation_item_sequence"
            ),
            models.UniqueConstraint(
                fields=["operation_id", "object_id"], name="bz_operation_item_object"
            ),
        ]
        indexes = [
            models.Index(fields=["operation_id", "state", "sequence"], name="bz_operation_item_st"),
        ]
