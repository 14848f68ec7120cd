"""Exports, purge columns of jobs, notifications and dead letters, indexes of the audit (M2)."""

from django.db import migrations, models

import kernel.ddl
import kernel.ids


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0070_sign_in"),
    ]

    operations = [
        kernel.ddl.CreateTable(
            name="Export",
            fields=[
                (
                    "operation_id",
                    kernel.ids.IdField(max_length=64, primary_key=True, serialize=False),
                ),
                ("format", kernel.ids.IdField(max_length=8)),
                ("row_count", models.BigIntegerField(default=0)),
                ("byte_count", models.BigIntegerField(default=0)),
                ("chunk_count", models.IntegerField(default=0)),
                ("sha256", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("purged_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "bz_exports",
            },
        ),
        kernel.ddl.CreateTable(
            name="ExportChunk",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("operation_id", kernel.ids.IdField(max_length=64)),
                ("sequence", models.IntegerField()),
                ("data", models.BinaryField()),
            ],
            options={
                "db_table": "bz_export_chunks",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("operation_id", "sequence"), name="bz_export_chunk"
                    )
                ],
            },
        ),
        kernel.ddl.CreateTable(
            name="RetentionStatus",
            fields=[
                ("kind", kernel.ids.IdField(max_length=32, primary_key=True, serialize=False)),
                ("last_count", models.BigIntegerField(default=0)),
                ("total_count", models.BigIntegerField(default=0)),
                ("last_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_retention_status",
            },
        ),
        kernel.ddl.CreateIndex(
            model_name="export",
            index=models.Index(fields=["purged_at", "created_at"], name="bz_export_age"),
        ),
        kernel.ddl.AddColumn(
            table="bz_jobs",
            column="purged_at",
            field=models.DateTimeField(null=True),
        ),
        kernel.ddl.AddColumn(
            table="bz_jobs",
            column="input_sha256",
            field=kernel.ids.IdField(max_length=64, null=True),
        ),
        kernel.ddl.AddPlainIndex(
            table="bz_jobs",
            name="bz_job_purge",
            columns=["purged_at", "finished_at", "id"],
        ),
        kernel.ddl.AddColumn(
            table="bz_notifications",
            column="attempts_purged_at",
            field=models.DateTimeField(null=True),
        ),
        kernel.ddl.AddPlainIndex(
            table="bz_notifications",
            name="bz_notification_purge",
            columns=["attempts_purged_at", "finished_at", "id"],
        ),
        kernel.ddl.AddColumn(
            table="bz_delivery_dlq",
            column="purged_at",
            field=models.DateTimeField(null=True),
        ),
        kernel.ddl.AddColumn(
            table="bz_delivery_dlq",
            column="content_sha256",
            field=kernel.ids.IdField(max_length=64, null=True),
        ),
        kernel.ddl.AddPlainIndex(
            table="bz_delivery_dlq",
            name="bz_dlq_purge",
            columns=["purged_at", "resolved_at", "id"],
        ),
        kernel.ddl.CreateIndex(
            model_name="auditrow",
            index=models.Index(fields=["actor_id", "at", "id"], name="bz_audit_actor"),
        ),
        kernel.ddl.CreateIndex(
            model_name="auditrow",
            index=models.Index(fields=["action", "at", "id"], name="bz_audit_action"),
        ),
        migrations.CreateModel(
            name="JobPurge",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("state", kernel.ids.IdField(max_length=16)),
                ("finished_at", models.DateTimeField(null=True)),
                ("input_text", models.TextField(default="")),
                ("result_text", models.TextField(default="")),
                ("purged_at", models.DateTimeField(null=True)),
                ("input_sha256", kernel.ids.IdField(max_length=64, null=True)),
            ],
            options={"db_table": "bz_jobs", "managed": False},
        ),
        migrations.CreateModel(
            name="NotificationPurge",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("state", kernel.ids.IdField(max_length=16)),
                ("finished_at", models.DateTimeField(null=True)),
                ("attempts_purged_at", models.DateTimeField(null=True)),
            ],
            options={"db_table": "bz_notifications", "managed": False},
        ),
        migrations.CreateModel(
            name="DeadLetterPurge",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("state", kernel.ids.IdField(max_length=16)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("content", models.BinaryField()),
                ("purged_at", models.DateTimeField(null=True)),
                ("content_sha256", kernel.ids.IdField(max_length=64, null=True)),
            ],
            options={"db_table": "bz_delivery_dlq", "managed": False},
        ),
        kernel.ddl.Irreversible(
            why="Digests of what was purged stay; a code rollback keeps them (H4).",
        ),
    ]
