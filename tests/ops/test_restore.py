"""The restore drill of docs/operations/back-up-and-restore.md, done with the commands it names."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernel.models import Account, AuditRow, LedgerRow, Request
from tests.management.running import run
from tests.support import lives
from tests.support.mariadb_server import Server
from tests.support.schemas import Schemas, django_on
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.mysql("BAILING_USAGE_TEST_MYSQL")
DOCUMENT = ROOT / "docs" / "operations" / "back-up-and-restore.md"
LONG_NAME = "Müller & Söhne 日本 🙂"


def documented(program: str) -> list[str]:
    """The options that the document gives this program."""
    line = re.search(rf"^\s*{program} (.+?)(?: [<>|].*)?$", DOCUMENT.read_text(), re.MULTILINE)
    assert line, f"the document shows no {program}"
    return [word for word in line.group(1).split() if word.startswith("--")]


def client(program: str, server: Server) -> list[str]:
    options = [f"--host={server.host}", f"--port={server.port}", f"--user={server.user}"]
    return [program, "--no-defaults", *options, *documented(program)]


def facts() -> list[object]:
    """What must come back: every request, charge and audit row, and the account's sum."""
    return [
        list(Request.objects.order_by("id").values_list("id", "result_state", "result_sha256")),
        list(LedgerRow.objects.order_by("id").values_list("id", "amount_nano")),
        list(AuditRow.objects.order_by("id").values_list("id", "sha256")),
        list(Account.objects.values_list("name", "consumed_nano", "held_nano")),
    ]


def test_a_dump_taken_beside_traffic_comes_back_whole_and_verifies(
    mysql_server: Server, schemas: Schemas, tmp_path: Path, django_db_blocker: Any
) -> None:
    source, copy = schemas.clone(), mysql_server.create_schema()
    dump = tmp_path / "bailing.sql"
    with django_db_blocker.unblock(), django_on(source):
        assert run("db_init").code == 0
        lives.open_account()
        Account.objects.filter(id=lives.ACCOUNT).update(name=LONG_NAME)
        lives.add_service()
        for number in range(3):
            lives.settled(f"op-{number}")
        before = facts()
        with dump.open("wb") as file:
            command = [*client("mariadb-dump", mysql_server), source.rpartition("/")[2]]
            subprocess.run(command, stdout=file, check=True)
        lives.settled("op-after-the-dump")
    with dump.open("rb") as file:
        command = [*client("mariadb", mysql_server), copy.rpartition("/")[2]]
        subprocess.run(command, stdin=file, check=True)
    with django_db_blocker.unblock(), django_on(copy):
        for words in (["db_init", "--check"], ["db_verify", "--no-store"], ["audit_verify"]):
            answer = run(*words)
            assert answer.code == 0, (words, answer)
        assert facts() == before, "as it was when the dump began, and not a row more"
        lives.settled("op-after-the-restore")
        assert run("db_verify").code == 0
    mysql_server.drop_schema(copy)
    schemas.drop(source)
