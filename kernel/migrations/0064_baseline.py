"""All tables in the shape they had before 0065; one DDL statement per step (H1)."""

from django.db import migrations, models

import kernel.ddl
import kernel.ids


class Migration(migrations.Migration):
    dependencies = []

    operations = [
        kernel.ddl.CreateTable(
            name="Account",
            fields=[
                ("id", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=120)),
                ("multiplier_millionths", models.BigIntegerField(default=1000000)),
                ("cap_nano", models.BigIntegerField(null=True)),
                ("held_nano", models.BigIntegerField(default=0)),
                ("consumed_nano", models.BigIntegerField(default=0)),
                ("allow_unpriced", models.BooleanField(default=False)),
                ("active", models.BooleanField(default=True)),
                ("overrun_at", models.DateTimeField(null=True)),
                ("version", models.IntegerField(default=1)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_usage_accounts",
            },
        ),
        kernel.ddl.CreateTable(
            name="AppliedSecret",
            fields=[
                ("name", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64)),
                ("applied_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_applied_secrets",
            },
        ),
        kernel.ddl.CreateTable(
            name="CheckReport",
            fields=[
                ("name", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("offenders", models.IntegerField()),
                ("sample_text", models.TextField(default="")),
                ("checked_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_check_reports",
            },
        ),
        kernel.ddl.CreateTable(
            name="PassStatus",
            fields=[
                ("name", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("owner", kernel.ids.IdField(max_length=64)),
                ("running", models.BooleanField(default=False)),
                ("scanned", models.IntegerField(default=0)),
                ("settled", models.IntegerField(default=0)),
                ("deferred", models.IntegerField(default=0)),
                ("failed", models.IntegerField(default=0)),
                ("has_more", models.BooleanField(default=False)),
                ("pages", models.IntegerField(default=0)),
                ("pass_scanned", models.BigIntegerField(default=0)),
                ("pass_settled", models.BigIntegerField(default=0)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("backoff_until_at", models.DateTimeField(null=True)),
                ("error_code", models.CharField(blank=True, default="", max_length=64)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_pass_status",
            },
        ),
        kernel.ddl.CreateTable(
            name="SchemaStep",
            fields=[
                ("name", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("checksum", models.CharField(max_length=64)),
                ("applied_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_schema_steps",
            },
        ),
        kernel.ddl.CreateTable(
            name="Service",
            fields=[
                ("id", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(blank=True, default="", max_length=128)),
                ("base_url", models.CharField(max_length=500)),
                ("model", models.CharField(max_length=200)),
                ("api_key_env", models.CharField(blank=True, default="", max_length=120)),
                ("price_provider", models.CharField(blank=True, default="", max_length=120)),
                ("price_model", models.CharField(blank=True, default="", max_length=200)),
                ("max_output_tokens", models.IntegerField(null=True)),
                ("allow_private", models.BooleanField(default=False)),
                ("active", models.BooleanField(default=True)),
                ("version", models.IntegerField(default=1)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_usage_services",
            },
        ),
        kernel.ddl.CreateTable(
            name="Token",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("name", models.CharField(max_length=120)),
                ("scopes", models.CharField(max_length=255)),
                ("prefix", models.CharField(max_length=16)),
                ("secret_sha256", kernel.ids.IdField(max_length=64, unique=True)),
                ("origin", kernel.ids.IdField(default="issued", max_length=24)),
                ("created_by", models.CharField(max_length=160)),
                ("created_at", models.DateTimeField()),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "bz_tokens",
            },
        ),
        kernel.ddl.CreateTable(
            name="Approval",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("job_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("invocation_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("request_id", kernel.ids.IdField(max_length=128)),
                ("tool", kernel.ids.IdField(max_length=128)),
                ("tool_version", models.IntegerField(default=1)),
                ("arguments_text", models.TextField()),
                ("canonical_version", models.IntegerField(default=1)),
                ("arguments_sha256", kernel.ids.IdField(max_length=64)),
                ("risk", kernel.ids.IdField(max_length=16)),
                ("effect", models.TextField(default="")),
                ("requested_by", models.CharField(max_length=160)),
                ("state", kernel.ids.IdField(default="open", max_length=16)),
                ("decision", kernel.ids.IdField(blank=True, default="", max_length=16)),
                ("decision_id", kernel.ids.IdField(max_length=128, null=True, unique=True)),
                ("decided_by_kind", kernel.ids.IdField(blank=True, default="", max_length=24)),
                ("decided_by_id", models.CharField(blank=True, default="", max_length=160)),
                ("reason", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                ("consumed_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_approvals",
            },
        ),
        kernel.ddl.CreateTable(
            name="AuditRow",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("subject", kernel.ids.IdField(max_length=160)),
                ("sequence", models.IntegerField()),
                ("actor_kind", kernel.ids.IdField(max_length=24)),
                ("actor_id", models.CharField(max_length=160)),
                ("action", kernel.ids.IdField(max_length=64)),
                ("before_text", models.TextField(default="")),
                ("after_text", models.TextField(default="")),
                ("reason", models.TextField(default="")),
                ("request_id", models.CharField(default="", max_length=128)),
                ("act_key", kernel.ids.IdField(max_length=64, null=True, unique=True)),
                ("previous_sha256", models.CharField(max_length=64)),
                ("sha256", models.CharField(max_length=64)),
                ("at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_audit",
                "constraints": [
                    models.UniqueConstraint(fields=("subject", "sequence"), name="bz_audit_chain")
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="Body",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("request_id", kernel.ids.IdField(max_length=64)),
                ("kind", kernel.ids.IdField(max_length=8)),
                ("sequence", models.IntegerField()),
                ("data", models.BinaryField()),
            ],
            options={
                "db_table": "bz_usage_bodies",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("request_id", "kind", "sequence"), name="bz_usage_body"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="DeadLetter",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("notification_id", kernel.ids.IdField(max_length=64)),
                ("channel", kernel.ids.IdField(max_length=24)),
                ("sender", models.CharField(blank=True, default="", max_length=200)),
                ("recipient", models.CharField(max_length=500)),
                ("request_id", kernel.ids.IdField(blank=True, default="", max_length=128)),
                ("job_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("content", models.BinaryField()),
                ("error_text", models.TextField(default="")),
                ("error_fingerprint", kernel.ids.IdField(max_length=64)),
                ("parent_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("state", kernel.ids.IdField(default="open", max_length=16)),
                ("created_at", models.DateTimeField()),
                ("resolved_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_delivery_dlq",
            },
        ),
        kernel.ddl.CreateTable(
            name="Job",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("request_id", kernel.ids.IdField(max_length=128)),
                ("route_id", kernel.ids.IdField(blank=True, default="", max_length=128)),
                ("target", kernel.ids.IdField(default="agent", max_length=24)),
                ("parent_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("state", kernel.ids.IdField(default="queued", max_length=16)),
                ("waiting_reason", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("input_text", models.TextField(default="")),
                ("result_text", models.TextField(blank=True, default="")),
                ("error_code", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("error_text", models.TextField(blank=True, default="")),
                ("attempts", models.IntegerField(default=0)),
                ("owner", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("fence_token", models.BigIntegerField(default=0)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField()),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_jobs",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account_id", "request_id"), name="bz_job_request"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="LedgerRow",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("request_id", kernel.ids.IdField(max_length=64)),
                ("charge_of", kernel.ids.IdField(max_length=64, null=True, unique=True)),
                ("kind", kernel.ids.IdField(max_length=16)),
                ("amount_nano", models.BigIntegerField()),
                ("reference_nano", models.BigIntegerField()),
                ("multiplier_millionths", models.BigIntegerField()),
                ("lines_text", models.TextField()),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_usage_ledger",
            },
        ),
        kernel.ddl.CreateTable(
            name="Notification",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("kind", kernel.ids.IdField(max_length=24)),
                ("channel", kernel.ids.IdField(max_length=24)),
                ("sender", models.CharField(blank=True, default="", max_length=200)),
                ("recipient", models.CharField(max_length=500)),
                ("request_id", kernel.ids.IdField(blank=True, default="", max_length=128)),
                ("job_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("content", models.BinaryField()),
                ("content_type", models.CharField(default="application/json", max_length=120)),
                ("state", kernel.ids.IdField(default="queued", max_length=16)),
                ("attempts", models.IntegerField(default=0)),
                ("owner", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("fence_token", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField()),
                ("error_text", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_notifications",
            },
        ),
        kernel.ddl.CreateTable(
            name="Price",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("provider", models.CharField(max_length=120)),
                ("model", models.CharField(max_length=200)),
                ("version", models.IntegerField()),
                ("rates_text", models.TextField()),
                ("valid_from_at", models.DateTimeField()),
                ("valid_until_at", models.DateTimeField(null=True)),
                ("created_by", models.CharField(max_length=160)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_usage_prices",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("provider", "model", "version"), name="bz_usage_price_version"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="Request",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("operation_id", kernel.ids.IdField(max_length=128)),
                ("service_id", kernel.ids.IdField(max_length=128)),
                ("service_version", models.IntegerField()),
                ("upstream_model", models.CharField(max_length=200)),
                ("path", models.CharField(max_length=120)),
                ("content_sha256", kernel.ids.IdField(max_length=64)),
                ("streamed", models.BooleanField(default=False)),
                ("hide_usage", models.BooleanField(default=False)),
                ("result_state", kernel.ids.IdField(default="admitted", max_length=16)),
                ("billing_state", kernel.ids.IdField(default="open", max_length=16)),
                ("pending_reason", kernel.ids.IdField(blank=True, default="", max_length=40)),
                ("owner", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("fence_token", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("multiplier_millionths", models.BigIntegerField()),
                ("price_text", models.TextField(blank=True, default="")),
                ("hold_nano", models.BigIntegerField(default=0)),
                ("http_status", models.IntegerField(null=True)),
                ("content_type", models.CharField(blank=True, default="", max_length=200)),
                ("result_sha256", models.CharField(blank=True, default="", max_length=64)),
                ("result_bytes", models.BigIntegerField(null=True)),
                ("provider_request_id", models.CharField(blank=True, default="", max_length=200)),
                ("error_code", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("error_text", models.TextField(blank=True, default="")),
                ("usage_text", models.TextField(blank=True, default="")),
                ("late_usage_text", models.TextField(blank=True, default="")),
                ("reference_nano", models.BigIntegerField(null=True)),
                ("billed_nano", models.BigIntegerField(null=True)),
                ("admitted_at", models.DateTimeField()),
                ("dispatched_at", models.DateTimeField(null=True)),
                ("result_at", models.DateTimeField(null=True)),
                ("settled_at", models.DateTimeField(null=True)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("purged_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_usage_requests",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("account_id", "operation_id"), name="bz_usage_request_operation"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="ToolCall",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("job_id", kernel.ids.IdField(max_length=64)),
                ("approval_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("step", models.IntegerField()),
                ("call_id", models.CharField(max_length=200)),
                ("tool", kernel.ids.IdField(max_length=128)),
                ("tool_version", models.IntegerField(default=1)),
                ("arguments_text", models.TextField()),
                ("arguments_sha256", kernel.ids.IdField(max_length=64)),
                ("idempotency_key", kernel.ids.IdField(max_length=128, unique=True)),
                ("state", kernel.ids.IdField(max_length=16)),
                ("http_status", models.IntegerField(null=True)),
                ("response_text", models.TextField(blank=True, default="")),
                ("response_bytes", models.BigIntegerField(null=True)),
                ("note", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_tool_calls",
            },
        ),
        kernel.ddl.CreateIndex(
            model_name="approval",
            index=models.Index(fields=["state", "created_at", "id"], name="bz_approval_state"),
        ),
        kernel.ddl.CreateIndex(
            model_name="approval",
            index=models.Index(
                fields=["account_id", "state", "created_at", "id"], name="bz_approval_acct"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="approval",
            index=models.Index(fields=["job_id", "id"], name="bz_approval_job"),
        ),
        kernel.ddl.CreateIndex(
            model_name="approval",
            index=models.Index(fields=["state", "expires_at", "id"], name="bz_approval_expiry"),
        ),
        kernel.ddl.CreateIndex(
            model_name="auditrow",
            index=models.Index(fields=["at", "id"], name="bz_audit_at"),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(fields=["state", "created_at", "id"], name="bz_dlq_state"),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(
                fields=["error_fingerprint", "created_at", "id"], name="bz_dlq_group"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(fields=["account_id", "created_at", "id"], name="bz_dlq_account"),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(fields=["state", "due_at", "id"], name="bz_job_due"),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(fields=["state", "lease_expires_at", "id"], name="bz_job_lease"),
        ),
        kernel.ddl.CreateIndex(
            model_name="job",
            index=models.Index(fields=["account_id", "updated_at", "id"], name="bz_job_account"),
        ),
        kernel.ddl.CreateIndex(
            model_name="ledgerrow",
            index=models.Index(
                fields=["account_id", "created_at", "id"], name="bz_usage_ledger_account"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="ledgerrow",
            index=models.Index(fields=["request_id"], name="bz_usage_ledger_request"),
        ),
        kernel.ddl.CreateIndex(
            model_name="notification",
            index=models.Index(fields=["state", "due_at", "id"], name="bz_notification_due"),
        ),
        kernel.ddl.CreateIndex(
            model_name="notification",
            index=models.Index(
                fields=["state", "lease_expires_at", "id"], name="bz_notification_lease"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="notification",
            index=models.Index(
                fields=["account_id", "updated_at", "id"], name="bz_notification_acct"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="price",
            index=models.Index(fields=["valid_from_at", "id"], name="bz_usage_price_from"),
        ),
        kernel.ddl.CreateIndex(
            model_name="request",
            index=models.Index(fields=["updated_at", "id"], name="bz_usage_req_at"),
        ),
        kernel.ddl.CreateIndex(
            model_name="request",
            index=models.Index(
                fields=["result_state", "updated_at", "id"], name="bz_usage_req_state"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="request",
            index=models.Index(
                fields=["account_id", "updated_at", "id"], name="bz_usage_req_account"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="request",
            index=models.Index(
                fields=["account_id", "result_state", "updated_at", "id"],
                name="bz_usage_req_account_state",
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="request",
            index=models.Index(
                fields=["result_state", "lease_expires_at", "id"], name="bz_usage_req_lease"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="toolcall",
            index=models.Index(fields=["job_id", "step", "id"], name="bz_tool_call_job"),
        ),
        kernel.ddl.CreateIndex(
            model_name="toolcall",
            index=models.Index(fields=["state", "updated_at", "id"], name="bz_tool_call_state"),
        ),
    ]
