"""Dead-letter kind, original child, replay identity, and the queue marker on jobs (H1)."""

from django.db import migrations, models

import kernel.ddl
import kernel.ids


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0066_approval_continuations"),
    ]

    operations = [
        kernel.ddl.AddColumn(
            table="bz_delivery_dlq",
            column="kind",
            field=kernel.ids.IdField(max_length=16, null=True),
        ),
        kernel.ddl.AddColumn(
            table="bz_delivery_dlq",
            column="original_child_id",
            field=kernel.ids.IdField(max_length=64, null=True),
        ),
        kernel.ddl.AddColumn(
            table="bz_delivery_dlq",
            column="replay_identity",
            field=kernel.ids.IdField(max_length=128, null=True),
        ),
        kernel.ddl.AddUniqueIndex(
            table="bz_delivery_dlq",
            name="bz_dlq_replay_identity",
            column="replay_identity",
        ),
        kernel.ddl.AddColumn(
            table="bz_jobs",
            column="delivery_replay_keys",
            field=models.TextField(null=True),
        ),
        migrations.CreateModel(
            name="DeadLetterReplay",
            fields=[
                ("id", kernel.ids.IdField(max_length=64, primary_key=True, serialize=False)),
                ("kind", kernel.ids.IdField(max_length=16, null=True)),
                ("original_child_id", kernel.ids.IdField(max_length=64, null=True)),
                ("replay_identity", kernel.ids.IdField(max_length=128, null=True, unique=True)),
            ],
            options={
                "db_table": "bz_delivery_dlq",
                "managed": False,
            },
        ),
        kernel.ddl.Irreversible(
            why="Replay identities and markers stay; a code rollback keeps them (H4).",
        ),
    ]
