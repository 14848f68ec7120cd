"""Rows of jobs, tool calls, tools, routes, pauses and direct invocations (C9, D).

The marker columns of 0066 and 0067 live in JobMarkers.
"""

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
            models.Index(fields=["state", "target", "due_at", "id"], name="bz_job_claim"),
            models.Index(
                fields=["route_id", "state", "target", "due_at", "id"], name="bz_job_claim_route"
            ),
            models.Index(
                fields=["account_id", "target", "state", "due_at", "id"], name="bz_job_claim_acct"
            ),
            models.Index(fields=["state", "lease_expires_at", "id"], name="bz_job_lease"),
            models.Index(fields=["account_id", "updated_at", "id"], name="bz_job_account"),
            models.Index(
                fields=["account_id", "state", "updated_at", "id"], name="bz_job_account_state"
            ),
            models.Index(
                fields=["account_id", "route_id", "updated_at", "id"], name="bz_job_account_route"
            ),
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
    error_code = IdField(max_length=64, default="", db_default="", blank=True)
    tries = models.IntegerField(default=0, db_default=0)  # dispatches that provably sent nothing
    asks = models.IntegerField(default=0, db_default=0)  # approvals opened for this very call
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
            models.Index(fields=["tool", "state", "updated_at"], name="bz_tool_call_rate"),
        ]


class Tool(models.Model):
    """One HTTP tool: what it takes, where it goes, when a person is asked (D4).

    `version` moves with every change; an approval is bound to it (C1).
    """

    id = IdField(primary_key=True)
    version = models.IntegerField(default=1)
    description = models.TextField(default="", blank=True)
    method = models.CharField(max_length=8, default="POST")
    url = models.CharField(max_length=1000)  # {name} takes an argument
    parameters_text = models.TextField()  # JSON Schema of the arguments
    policy_text = models.TextField()  # see kernel/approvals/policy.py
    effect_text = models.TextField(default="", blank=True)  # one sentence, {name} takes an argument
    side_effect = models.BooleanField(default=True)
    idempotency_header = models.CharField(max_length=80, default="Idempotency-Key")
    secret_env = models.CharField(max_length=120, default="", blank=True)
    secret_header = models.CharField(max_length=80, default="Authorization")
    body_bytes_max = models.BigIntegerField(null=True)  # null: tool_body_bytes_max
    deadline_seconds = models.IntegerField(default=30)
    calls_per_minute_max = models.IntegerField(null=True)
    allow_private = models.BooleanField(default=False)
    active = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_tools"


class Route(models.Model):
    """One kind of job: who runs it, with which service and tools, within which limits."""

    id = IdField(primary_key=True)
    target = IdField(max_length=24, default="agent")  # agent | executor
    service_id = IdField(default="", blank=True)
    instructions = models.TextField(default="", blank=True)  # the system message
    tools_text = models.TextField(default="[]")  # JSON list of tool ids
    steps_max = models.IntegerField(default=20)
    tokens_max = models.BigIntegerField(null=True)
    cost_nano_max = models.BigIntegerField(null=True)
    run_seconds_max = models.IntegerField(default=900)
    approval_seconds = models.IntegerField(default=86_400)  # a question stays open this long
    active = models.BooleanField(default=True)
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "bz_routes"


class Pause(models.Model):
    """New work is paused while this row exists: `global` or `route:<id>` (D4)."""

    scope = IdField(primary_key=True, max_length=140)
    reason = models.TextField()
    paused_by = models.CharField(max_length=160)
    paused_at = models.DateTimeField()

    class Meta:
        db_table = "bz_pauses"


class Invocation(models.Model):
    """A tool call that an agent outside drives itself; approval starts nothing (C9)."""

    id = IdField(primary_key=True, max_length=64)
    account_id = IdField()
    invocation_id = IdField()
    tool = IdField()
    tool_version = models.IntegerField()
    given_sha256 = IdField(max_length=64)  # of the arguments as they were sent
    requested_by = models.CharField(max_length=160)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "bz_invocations"
        constraints = [
            models.UniqueConstraint(
                fields=["account_id", "invocation_id"], name="bz_invocation_identity"
            ),
        ]
