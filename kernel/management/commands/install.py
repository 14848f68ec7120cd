"""`manage.py install`: makes `.env` with six fresh credentials, once (I1, I2)."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel.install import InstallFailed, install


class Command(BaseCommand):
    help = "Create .env with six fresh credentials. A .env that is already there is not touched."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--path",
            type=Path,
            default=settings.BASE_DIR / ".env",
            help="the file to create (default: .env beside manage.py)",
        )

    def handle(self, *args: Any, path: Path, **options: Any) -> None:
        try:
            written = install(path=path)
        except InstallFailed as error:
            raise CommandError(str(error)) from error
        if written:
            self.stdout.write(f"Wrote {path} with six fresh credentials; only you can read it.")
        else:
            self.stdout.write(f"{path} is already there; it was left exactly as it is.")
        self.stdout.write(
            f"The console's user is admin; BAILING_ADMIN_PASSWORD in {path} is its password."
        )
