"""The index that settlement pages walk; no history is recalculated (H1)."""

from django.db import migrations, models

import kernel.ddl


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0064_baseline"),
    ]

    operations = [
        kernel.ddl.CreateIndex(
            model_name="request",
            index=models.Index(
                fields=["billing_state", "updated_at", "id"], name="bz_usage_req_settlement"
            ),
        ),
    ]
