"""db_init under SIGKILL: killed after each DDL statement of ours, the next run finishes (H1).

Every day only after each seventh.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.test_flag import ROOT
from tests.kernel.test_schema import shape
from tests.support.environment import child_environment
from tests.support.mariadb_server import Server
from tests.support.schemas import django_on
from tests.support.sizes import sized

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")
STRIDE = sized(7, 1)
# What one undisturbed run leaves behind, and its migrations' own transactions on SQLite.
BOUNDARIES_MIN = sized({"mysql": 15, "sqlite": 3}, {"mysql": 100, "sqlite": 8})


def manage(url: str, *words: str) -> str:
    command = [sys.executable, *words]
    environment = child_environment(database_url=url)
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def shape_of(url: str) -> object:
    with django_on(url):
        return shape()


@pytest.mark.timeout(1200)  # in full some 150 processes, one after another
@pytest.mark.parametrize("engine", ["mysql", "sqlite"])
def test_killed_after_any_ddl_statement_the_next_db_init_finishes(
    engine: str, mysql_server: Server, tmp_path: Path, django_db_blocker: pytest.FixtureRequest
) -> None:
    """Real processes, a real SIGKILL each; MariaDB commits each statement, each a boundary."""
    urls = [f"sqlite:///{tmp_path / name}.sqlite3" for name in ("killed", "calm")]
    if engine == "mysql":
        urls = [mysql_server.create_schema() for _ in urls]
    killed, calm = urls
    found = json.loads(manage(killed, "-m", "tests.support.migrator_kills", str(STRIDE)))
    assert found["boundaries"] >= BOUNDARIES_MIN[engine], found
    assert "nothing to do" in manage(killed, "manage.py", "db_init")
    assert "invariants hold" in manage(killed, "manage.py", "db_verify")
    manage(calm, "manage.py", "db_init")
    with django_db_blocker.unblock():
        assert shape_of(killed) == shape_of(calm)
    if engine == "mysql":
        for url in urls:
            mysql_server.drop_schema(url)
