"""Rows of jobs and their tool calls (D). The marker columns of 0066 and 0067 live in JobMarkers."""

from django.db import models

from kernel.ids import IdField


class Job(models.Model):
    """One job of an agent or an executor; the state store's truth (D1)."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    request_id = IdField()
    route_id = IdField(default="", blank=True)
    target = IdField(max_length=24, default="agent")
    parent_id = IdField(max_length=64, default="", blank=True)
    state = IdField(max_length=16, default="queued")
    waiting_reason = IdField(max_length=64, default="", blank=True)
    input_text = models.TextField(default="")
    result_text = models.TextField(default="", blank=True)
    error_code = IdField(max_length=64, default="", blank=True)
    error_text = models.TextField(default="", blank=True)
    attempts = models.IntegerField(default=0)
    owner = IdField(max_length=64, default="", blank=True)
    fence_token = models.BigIntegerField(default=0)
    lease_expires_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField()
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_jobs"
        constraints = [
            models.UniqueConstraint(fields=["account_id", "request_id"], name="bz_job_request"),
        ]
        indexes = [
            models.Index(fields=["state", "due_at", "id"], name="bz_job_due"),
            models.Index(fields=["state", "lease_expires_at", "id"], name="bz_job_lease"),
            models.Index(fields=["account_id", "updated_at", "id"], name="bz_job_account"),
        ]


class JobMarkers(models.Model):
    """The marker columns of bz_jobs, mapped apart: jobs work without 0066 and 0067 (H3)."""

    id = IdField(primary_key=True, max_length=64)
    approval_continuation_keys = models.TextField(null=True)
    delivery_replay_keys = models.TextField(null=True)

    class Meta:
        db_table = "bz_jobs"
        managed = False


class ToolCall(models.Model):
    """One journaled tool call: `dispatching` is committed before bytes leave (D3)."""

    id = IdField(primary_key=True, max_length=64)
    job_id = IdField(max_length=64)
    approval_id = IdField(max_length=64, default="", blank=True)
    step = models.IntegerField()
    call_id = models.CharField(max_length=200)
    tool = IdField()
    tool_version = models.IntegerField(default=1)
    arguments_text = models.TextField()
    arguments_sha256 = IdField(max_length=64)
    idempotency_key = IdField(unique=True)
    state = IdField(max_length=16)
    http_status = models.IntegerField(null=True)
    response_text = models.TextField(default="", blank=True)
    response_bytes = models.BigIntegerField(null=True)
    note = models.TextField(default="", blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_tool_calls"
        indexes = [
            models.Index(fields=["job_id", "step", "id"], name="bz_tool_call_job"),
            models.Index(fields=["state", "updated_at", "id"], name="bz_tool_call_state"),
        ]
