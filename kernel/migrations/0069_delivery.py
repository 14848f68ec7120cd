"""Destinations, attempts, alert rules, groups of dead letters, and long acts (F)."""

from django.db import migrations, models

import kernel.ddl
import kernel.ids


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0068_agent_jobs"),
    ]

    operations = [
        kernel.ddl.CreateTable(
            name="AlertRule",
            fields=[
                ("id", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("event_prefix", kernel.ids.IdField(max_length=64)),
                ("destination_id", kernel.ids.IdField(max_length=128)),
                ("cooldown_seconds", models.IntegerField(default=300)),
                ("active", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_alert_rules",
            },
        ),
        kernel.ddl.CreateTable(
            name="AlertWindow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("rule_id", kernel.ids.IdField(max_length=128)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("fired_at", models.DateTimeField()),
                ("suppressed", models.IntegerField(default=0)),
            ],
            options={
                "db_table": "bz_alert_windows",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("rule_id", "account_id"), name="bz_alert_window"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="DeadLetterGroup",
            fields=[
                (
                    "fingerprint",
                    kernel.ids.IdField(max_length=64, primary_key=True, serialize=False),
                ),
                ("sample_text", models.TextField(default="")),
                ("channel", kernel.ids.IdField(blank=True, default="", max_length=24)),
                ("total_count", models.BigIntegerField(default=0)),
                ("open_count", models.BigIntegerField(default=0)),
                ("first_seen_at", models.DateTimeField()),
                ("last_seen_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_dlq_groups",
            },
        ),
        kernel.ddl.CreateTable(
            name="DeliveryAttempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("notification_id", kernel.ids.IdField(max_length=64)),
                ("number", models.IntegerField()),
                ("outcome", kernel.ids.IdField(max_length=16)),
                ("http_status", models.IntegerField(null=True)),
                ("evidence_text", models.TextField(default="")),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
                ("next_due_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "bz_delivery_attempts",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("notification_id", "number"), name="bz_delivery_attempt_number"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="Destination",
            fields=[
                ("id", kernel.ids.IdField(max_length=128, primary_key=True, serialize=False)),
                ("account_id", kernel.ids.IdField(max_length=128)),
                ("channel", kernel.ids.IdField(max_length=24)),
                ("address", models.CharField(max_length=500)),
                ("sender", models.CharField(blank=True, default="", max_length=200)),
                ("secret_env", models.CharField(blank=True, default="", max_length=120)),
                ("events_text", models.TextField(default="[]")),
                ("allow_private", models.BooleanField(default=False)),
                ("active", models.BooleanField(default=True)),
                ("version", models.IntegerField(default=1)),
                ("failures", models.IntegerField(default=0)),
                ("closed_until_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_destinations",
            },
        ),
        kernel.ddl.CreateTable(
            name="Operation",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("kind", kernel.ids.IdField(max_length=32)),
                ("filter_text", models.TextField()),
                ("ceiling_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("item_count", models.BigIntegerField(default=0)),
                ("digest", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("split_text", models.TextField(default="{}")),
                ("state", kernel.ids.IdField(default="planned", max_length=16)),
                ("rate_per_second", models.IntegerField(default=50)),
                ("next_sequence", models.BigIntegerField(default=1)),
                ("done_count", models.BigIntegerField(default=0)),
                ("skipped_count", models.BigIntegerField(default=0)),
                ("failed_count", models.BigIntegerField(default=0)),
                ("owner", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("fence_token", models.BigIntegerField(default=0)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("interruptions", models.IntegerField(default=0)),
                ("reason", models.TextField(blank=True, default="")),
                ("error_text", models.TextField(blank=True, default="")),
                ("created_by", models.CharField(max_length=160)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_operations",
            },
        ),
        kernel.ddl.CreateTable(
            name="OperationItem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("operation_id", kernel.ids.IdField(max_length=64)),
                ("sequence", models.BigIntegerField()),
                ("object_id", kernel.ids.IdField(max_length=64)),
                ("state", kernel.ids.IdField(default="planned", max_length=16)),
                ("outcome_text", models.CharField(blank=True, default="", max_length=300)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_operation_items",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("operation_id", "sequence"), name="bz_operation_item_sequence"
                    ),
                    models.UniqueConstraint(
                        fields=("operation_id", "object_id"), name="bz_operation_item_object"
                    ),
                ],
            },
        ),
        kernel.ddl.AddField(
            model_name="deadletter",
            name="content_type",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        kernel.ddl.AddField(
            model_name="deadletter",
            name="destination_id",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=128),
        ),
        kernel.ddl.AddField(
            model_name="deadletter",
            name="event",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=64),
        ),
        kernel.ddl.AddField(
            model_name="deadletter",
            name="unknown_attempts",
            field=models.IntegerField(db_default=0, default=0),
        ),
        kernel.ddl.AddField(
            model_name="notification",
            name="child_job_id",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=64),
        ),
        kernel.ddl.AddField(
            model_name="notification",
            name="destination_id",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=128),
        ),
        kernel.ddl.AddField(
            model_name="notification",
            name="event",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=64),
        ),
        kernel.ddl.AddField(
            model_name="notification",
            name="replay_of_id",
            field=kernel.ids.IdField(blank=True, db_default="", default="", max_length=64),
        ),
        kernel.ddl.AddField(
            model_name="notification",
            name="unknown_attempts",
            field=models.IntegerField(db_default=0, default=0),
        ),
        kernel.ddl.CreateIndex(
            model_name="notification",
            index=models.Index(
                fields=["destination_id", "state", "due_at", "id"], name="bz_notification_dest"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="notification",
            index=models.Index(fields=["state", "updated_at", "id"], name="bz_notification_list"),
        ),
        kernel.ddl.CreateIndex(
            model_name="notification",
            index=models.Index(fields=["child_job_id"], name="bz_notification_child"),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadlettergroup",
            index=models.Index(fields=["last_seen_at", "fingerprint"], name="bz_dlq_group_seen"),
        ),
        kernel.ddl.CreateIndex(
            model_name="destination",
            index=models.Index(fields=["account_id", "id"], name="bz_destination_account"),
        ),
        kernel.ddl.CreateIndex(
            model_name="operation",
            index=models.Index(fields=["state", "updated_at", "id"], name="bz_operation_state"),
        ),
        kernel.ddl.CreateIndex(
            model_name="operation",
            index=models.Index(fields=["created_at", "id"], name="bz_operation_age"),
        ),
        kernel.ddl.CreateIndex(
            model_name="operationitem",
            index=models.Index(
                fields=["operation_id", "state", "sequence"], name="bz_operation_item_st"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="notification",
            index=models.Index(fields=["kind", "updated_at", "id"], name="bz_notification_kind"),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(
                fields=["destination_id", "created_at", "id"], name="bz_dlq_destination"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(fields=["notification_id"], name="bz_dlq_notification"),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(fields=["parent_id"], name="bz_dlq_parent"),
        ),
        kernel.ddl.Irreversible(
            why="Attempts, dead letters and plans are evidence; a code rollback keeps them (H4).",
        ),
    ]
