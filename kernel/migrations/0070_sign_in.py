"""Tries at signing in, and sessions that know whose they are."""

from django.db import migrations, models

import kernel.ddl
import kernel.ids


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0069_delivery"),
    ]

    operations = [
        kernel.ddl.CreateTable(
            name="ConsoleSession",
            fields=[
                (
                    "session_key",
                    models.CharField(
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                        verbose_name="session key",
                    ),
                ),
                ("session_data", models.TextField(verbose_name="session data")),
                ("person_id", models.BigIntegerField(null=True)),
                ("expire_date", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_sessions",
            },
        ),
        kernel.ddl.CreateTable(
            name="SignInTry",
            fields=[
                (
                    "key_sha256",
                    kernel.ids.IdField(max_length=64, primary_key=True, serialize=False),
                ),
                ("count", models.IntegerField()),
                ("ends_at", models.DateTimeField()),
            ],
            options={
                "db_table": "bz_sign_in_tries",
            },
        ),
        kernel.ddl.CreateIndex(
            model_name="consolesession",
            index=models.Index(fields=["person_id", "expire_date"], name="bz_session_person"),
        ),
        kernel.ddl.CreateIndex(
            model_name="consolesession",
            index=models.Index(fields=["expire_date"], name="bz_session_expiry"),
        ),
        kernel.ddl.CreateIndex(
            model_name="signintry",
            index=models.Index(fields=["ends_at"], name="bz_sign_in_try_end"),
        ),
        kernel.ddl.Irreversible(
            why="A code rollback keeps second factors and counted tries (H4).",
        ),
    ]
