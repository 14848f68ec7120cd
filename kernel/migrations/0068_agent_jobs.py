"""Tools, routes, pauses, direct invocations, and who may sign decisions (C, D)."""

from django.db import migrations, models

import kernel.ddl
import kernel.ids


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0067_delivery_dlq_replay"),
    ]

    operations = [
        kernel.ddl.CreateTable(
            name="Invocation",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("invocation_id", kernel.ids.IdField(max_length=128)),
                ("tool", kernel.ids.IdField(max_length=128)),
                ("tool_version", models.IntegerField()),
                ("given_sha256", kernel.ids.IdField(max_length=64)),
                ("requested_by", models.CharField(max_length=160)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_invocations",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account_id", "invocation_id"), name="bz_invocation_identity"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="Pause",
            fields=[
                ("scope", kernel.ids.IdField(max_length=140, primary_key=True, serialize=False)),
                ("reason", models.TextField()),
                ("paused_by", models.CharField(max_length=160)),
                ("paused_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_pauses",
            },
        ),
        kernel.ddl.CreateTable(
            name="Route",
            fields=[
                ("id", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("target", kernel.ids.IdField(default="agent", max_length=24)),
                ("service_id", kernel.ids.IdField(blank=True, default="", max_length=128)),
                ("instructions", models.TextField(blank=True, default="")),
                ("tools_text", models.TextField(default="[]")),
                ("steps_max", models.IntegerField(default=20)),
                ("tokens_max", models.BigIntegerField(null=True)),
                ("cost_nano_max", models.BigIntegerField(null=True)),
                ("run_seconds_max", models.IntegerField(default=900)),
                ("approval_seconds", models.IntegerField(default=86400)),
                ("active", models.BooleanField(default=True)),
                ("version", models.IntegerField(default=1)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_routes",
            },
        ),
        kernel.ddl.CreateTable(
            name="SigningKey",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("secret_env", models.CharField(max_length=120)),
                ("created_by", models.CharField(max_length=160)),
                ("created_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "bz_signing_keys",
            },
        ),
        kernel.ddl.CreateTable(
            name="Tool",
            fields=[
                ("id", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("version", models.IntegerField(default=1)),
                ("description", models.TextField(blank=True, default="")),
                ("method", models.CharField(default="POST", max_length=8)),
                ("url", models.CharField(max_length=1000)),
                ("parameters_text", models.TextField()),
                ("policy_text", models.TextField()),
                ("effect_text", models.TextField(blank=True, default="")),
                ("side_effect", models.BooleanField(default=True)),
                ("idempotency_header", models.CharField(default="Idempotency-Key", max_length=80)),
                ("secret_env", models.CharField(blank=True, default="", max_length=120)),
                ("secret_header", models.CharField(default="Authorization", max_length=80)),
                ("body_bytes_max", models.BigIntegerField(null=True)),
                ("deadline_seconds", models.IntegerField(default=30)),
                ("calls_per_minute_max", models.IntegerField(null=True)),
                ("allow_private", models.BooleanField(default=False)),
                ("active", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_tools",
            },
        ),
        kernel.ddl.CreateTable(
            name="WebhookReceipt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("webhook_id", kernel.ids.IdField(max_length=128)),
                ("body_sha256", kernel.ids.IdField(max_length=64)),
                ("received_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_webhook_receipts",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account_id", "webhook_id"), name="bz_webhook_receipt_identity"
                    )
                ],
            },
        ),
        kernel.ddl.AddField(
            model_name="approval",
            name="supersedes_id",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=64),
        ),
        kernel.ddl.AddField(
            model_name="approval",
            name="tool_call_id",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=64),
        ),
        kernel.ddl.AddField(
            model_name="toolcall",
            name="asks",
            field=models.IntegerField(db_default=0, default=0),
        ),
        kernel.ddl.AddField(
            model_name="toolcall",
            name="error_code",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=64),
        ),
        kernel.ddl.AddField(
            model_name="toolcall",
            name="tries",
            field=models.IntegerField(db_default=0, default=0),
        ),
        kernel.ddl.CreateIndex(
            model_name="approval",
            index=models.Index(
                fields=["tool", "decision", "decided_at", "id"], name="bz_approval_last"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="signingkey",
            index=models.Index(fields=["account_id", "id"], name="bz_signing_key_account"),
        ),
        kernel.ddl.CreateIndex(
            model_name="webhookreceipt",
            index=models.Index(fields=["received_at", "id"], name="bz_webhook_receipt_age"),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(fields=["state", "target", "due_at", "id"], name="bz_job_claim"),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(
                fields=["account_id", "state", "updated_at", "id"], name="bz_job_account_state"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(
                fields=["route_id", "state", "target", "due_at", "id"], name="bz_job_claim_route"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(
                fields=["account_id", "target", "state", "due_at", "id"], name="bz_job_claim_acct"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(
                fields=["account_id", "route_id", "updated_at", "id"], name="bz_job_account_route"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="toolcall",
            index=models.Index(fields=["tool", "state", "updated_at"], name="bz_tool_call_rate"),
        ),
        kernel.ddl.Irreversible(
            why="Evidence of calls and decisions stays; a code rollback keeps it (H4).",
        ),
    ]
