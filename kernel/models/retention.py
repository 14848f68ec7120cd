"""Rows of exports and of retention; purge columns of older tables, mapped apart (M2, A17)."""

from django.db import models

from kernel.ids import IdField


class Export(models.Model):
    """The file an export operation makes: its kind, its size so far, its digest at the end."""

    operation_id = IdField(primary_key=True, max_length=64)
    format = IdField(max_length=8)  # csv | jsonl
    row_count = models.BigIntegerField(default=0)
    byte_count = models.BigIntegerField(default=0)
    chunk_count = models.IntegerField(default=0)
    sha256 = IdField(max_length=64, default="", blank=True)  # '' until the file is whole
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    purged_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "bz_exports"
        indexes = [models.Index(fields=["purged_at", "created_at"], name="bz_export_age")]


class ExportChunk(models.Model):
    """A piece of an export's file, written by the transaction that records its items."""

    id = models.BigAutoField(primary_key=True)
    operation_id = IdField(max_length=64)
    sequence = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        db_table = "bz_export_chunks"
        constraints = [
            models.UniqueConstraint(fields=["operation_id", "sequence"], name="bz_export_chunk"),
        ]


class RetentionStatus(models.Model):
    """What one kind of purge has removed: the last time it removed something, and in all."""

    kind = IdField(primary_key=True, max_length=32)
    last_count = models.BigIntegerField(default=0)
    total_count = models.BigIntegerField(default=0)
    last_at = models.DateTimeField()

    class Meta:
        db_table = "bz_retention_status"


class JobPurge(models.Model):
    """The purge columns of bz_jobs: jobs work without 0071 (H3)."""

    id = IdField(primary_key=True, max_length=64)
    state = IdField(max_length=16)
    finished_at = models.DateTimeField(null=True)
    input_text = models.TextField(default="")
    result_text = models.TextField(default="")
    purged_at = models.DateTimeField(null=True)
    input_sha256 = IdField(max_length=64, null=True)

    class Meta:
        db_table = "bz_jobs"
        managed = False


class NotificationPurge(models.Model):
    """The purge column of bz_notifications."""

    id = IdField(primary_key=True, max_length=64)
    state = IdField(max_length=16)
    finished_at = models.DateTimeField(null=True)
    attempts_purged_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "bz_notifications"
        managed = False


class DeadLetterPurge(models.Model):
    """The purge columns of bz_delivery_dlq."""

    id = IdField(primary_key=True, max_length=64)
    state = IdField(max_length=16)
    resolved_at = models.DateTimeField(null=True)
    content = models.BinaryField()
    purged_at = models.DateTimeField(null=True)
    content_sha256 = IdField(max_length=64, null=True)

    class Meta:
        db_table = "bz_delivery_dlq"
        managed = False
