"""manage.py migrate: refuses; db_init is the explicit migrator (H2)."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as DjangoMigrate

from kernel import schema


class Command(DjangoMigrate):
    help = "Refused outside db_init and tests. Use manage.py db_init."

    def handle(self, *args: Any, **options: Any) -> None:
        if not (schema.is_migrating() or settings.ALLOW_PLAIN_MIGRATE):
            raise CommandError("Use manage.py db_init: it takes the lock and keeps the ledger.")
        super().handle(*args, **options)
