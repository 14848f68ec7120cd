"""What a person likes to see: time zone and saved views of lists (L)."""

from django.db import migrations, models

import kernel.ddl


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0071_retention"),
    ]

    operations = [
        kernel.ddl.CreateTable(
            name="Preference",
            fields=[
                ("person_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("zone", models.CharField(blank=True, default="", max_length=64)),
                ("views_text", models.TextField(default="[]")),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_preferences",
            },
        ),
        kernel.ddl.Irreversible(
            why="Zones and views that people saved stay; a code rollback keeps them (H4).",
        ),
    ]
