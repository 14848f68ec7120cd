"""A database as db_init leaves it, and an environment where all is well."""

from pathlib import Path
from typing import Any

import pytest

from kernel import doctor, schema
from kernel.access import ensure_roles
from kernel.doctor.host import SECRETS

WELL = {name: f"{number}-a-secret-of-the-tests" for number, name in enumerate(SECRETS)}


@pytest.fixture
def house(kernel_db: None, settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = settings.BASE_DIR = tmp_path
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    ensure_roles()
    schema._record_missing()  # the rest of db_init is there: the run's database is migrated


def levels(**values: Any) -> dict[str, str]:
    """The level of each check of a visit."""
    values.setdefault("environ", WELL)
    return {each.check: each.level for each in doctor.examine(**values)}
