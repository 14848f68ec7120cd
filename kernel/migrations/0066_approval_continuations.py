"""Continuations and their markers; old decisions stay as they are (H1)."""

from django.db import migrations, models

import kernel.ddl
import kernel.ids


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0065_usage_reconciliation_scan"),
    ]

    operations = [
        kernel.ddl.CreateTable(
            name="Continuation",
            fields=[
                (
                    "approval_id",
                    kernel.ids.IdField(max_length=64, primary_key=True, serialize=False),
                ),
                ("job_id", kernel.ids.IdField(blank=True, default="", max_length=64)),
                ("request_id", kernel.ids.IdField(max_length=128)),
                ("arguments_sha256", kernel.ids.IdField(max_length=64)),
                ("decision_id", kernel.ids.IdField(max_length=128, unique=True)),
                ("decision", kernel.ids.IdField(max_length=16)),
                ("state", kernel.ids.IdField(default="owed", max_length=16)),
                ("attempts", models.IntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField()),
                ("error_text", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_approval_continuations",
            },
        ),
        kernel.ddl.CreateIndex(
            model_name="continuation",
            index=models.Index(fields=["state", "approval_id"], name="bz_continuation_owed"),
        ),
        kernel.ddl.AddColumn(
            table="bz_jobs",
            column="approval_continuation_keys",
            field=models.TextField(null=True),
        ),
        migrations.CreateModel(
            name="JobMarkers",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("approval_continuation_keys", models.TextField(null=True)),
                ("delivery_replay_keys", models.TextField(null=True)),
            ],
            options={
                "db_table": "bz_jobs",
                "managed": False,
            },
        ),
        kernel.ddl.Irreversible(
            why="Continuation rows and markers stay; a code rollback keeps them (H4).",
        ),
    ]
