"""A database that db_init has seen, and an environment where all is well."""

from pathlib import Path
from typing import Any

import pytest

from kernel import doctor
from kernel.doctor.host import SECRETS
from tests.management.running import done

WELL = {name: f"{number}-a-secret-of-the-tests" for number, name in enumerate(SECRETS)}


@pytest.fixture
def house(kernel_db: None, settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = settings.BASE_DIR = tmp_path
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    done("db_init")


def levels(**values: Any) -> dict[str, str]:
    """The level of each check of a visit."""
    values.setdefault("environ", WELL)
    return {each.check: each.level for each in doctor.examine(**values)}
