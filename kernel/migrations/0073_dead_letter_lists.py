"""Indexes of dead letters by state within a group, an account, a destination (L1, F9)."""

from django.db import migrations, models

import kernel.ddl


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0072_preferences"),
    ]

    operations = [
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(
                fields=["error_fingerprint", "state", "created_at", "id", "unknown_attempts"],
                name="bz_dlq_group_state",
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(
                fields=["account_id", "state", "created_at", "id"], name="bz_dlq_account_state"
            ),
        ),
        kernel.ddl.CreateIndex(
            model_name="deadletter",
            index=models.Index(
                fields=["destination_id", "state", "created_at", "id"],
                name="bz_dlq_destination_state",
            ),
        ),
        kernel.ddl.Irreversible(
            why="A code rollback keeps what lists are served from (H4).",
        ),
    ]
