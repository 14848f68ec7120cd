"""Rows about the product itself: applied migrations, passes of maintenance."""

from django.db import models

from kernel.ids import IdField


class SchemaStep(models.Model):
    """One applied migration and the checksum of its file (H2)."""

    name = IdField(primary_key=True)
    checksum = models.CharField(max_length=64)
    applied_at = models.DateTimeField()

    class Meta:
        db_table = "bz_schema_steps"


class PassStatus(models.Model):
    """The latest page of one maintenance pass: counters only, no ids or bodies (B6)."""

    name = IdField(primary_key=True)
    owner = IdField(max_length=64)
    running = models.BooleanField(default=False)
    scanned = models.IntegerField(default=0)
    settled = models.IntegerField(default=0)
    deferred = models.IntegerField(default=0)
    failed = models.IntegerField(default=0)
    has_more = models.BooleanField(default=False)
    pages = models.IntegerField(default=0)
    pass_scanned = models.BigIntegerField(default=0)
    pass_settled = models.BigIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    backoff_until_at = models.DateTimeField(null=True)
    error_code = models.CharField(max_length=64, default="", blank=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_pass_status"


class CheckReport(models.Model):
    """The last result of an invariant or of a doctor's check; Health shows it, never computes it.

    `offenders`: how many rows break the invariant; of a doctor's check its level, 0 to 2.
    """

    name = IdField(primary_key=True)
    offenders = models.IntegerField()  # of a `doctor.` row: the index of its level in LEVELS
    sample_text = models.TextField(default="")
    checked_at = models.DateTimeField()

    class Meta:
        db_table = "bz_check_reports"
