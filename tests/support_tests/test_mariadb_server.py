"""The private database server: ours, on loopback, durable, thrown away (K5)."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import MySQLdb
import pytest

from tests.support import mariadb_server
from tests.support.mariadb_server import (
    DIRECTORY_PREFIX,
    Server,
    ServerUnavailable,
    given_server,
    private_server,
    the_server,
)
from tests.support.owned import identity_of, read_proof
from tests.support.wait import wait_until

needs_server = pytest.mark.mysql


def _ask(server: Server, question: str) -> tuple[object, ...]:
    with contextlib.closing(server.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(question)
        return tuple(cursor.fetchone())


@needs_server
def test_the_server_is_durable_strict_and_on_loopback_only(mysql_server: Server) -> None:
    assert mysql_server.host == "127.0.0.1"
    flush, mode, address = _ask(
        mysql_server,
        "SELECT @@innodb_flush_log_at_trx_commit, @@GLOBAL.sql_mode, @@bind_address",
    )
    assert flush == 1
    assert "STRICT_TRANS_TABLES" in str(mode)
    assert address == "127.0.0.1"


@needs_server
def test_a_schema_has_a_random_name_and_is_gone_afterwards(mysql_server: Server) -> None:
    with mysql_server.schema() as first, mysql_server.schema() as second:
        assert first != second
        name = first.rpartition("/")[2]
        assert name.startswith("bz_test_")
        mysql_server.connect(name).close()
    with pytest.raises(MySQLdb.OperationalError, match="Unknown database"):
        mysql_server.connect(name)


@needs_server
def test_only_schemas_of_the_tests_are_dropped(mysql_server: Server) -> None:
    with pytest.raises(ValueError, match="not a schema of the tests"):
        mysql_server.drop_schema(mysql_server.url("mysql"))


@needs_server
def test_a_taken_port_gets_another_server_another_port_and_neither_outlives_its_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(mariadb_server, "PREFERRED_PORT", taken.getsockname()[1])
        with private_server() as server:
            assert server.port != taken.getsockname()[1]
            assert server.private
            (directory,) = tmp_path.glob(f"{DIRECTORY_PREFIX}*")
            proof = read_proof(directory)
            assert proof is not None
            identity = proof["server"]
            assert identity_of(int(identity.partition("@")[0])) == identity
    assert list(tmp_path.iterdir()) == []
    assert identity_of(int(identity.partition("@")[0])) is None


@needs_server
def test_a_killed_run_leaves_no_server(tmp_path: Path) -> None:
    script = (
        "import os, sys, tempfile\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from tests.support.mariadb_server import private_server\n"
        "with private_server() as server:\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -9
    (directory,) = tmp_path.iterdir()
    proof = read_proof(directory)
    assert proof is not None
    pid = int(proof["server"].partition("@")[0])
    wait_until(lambda: identity_of(pid) is None, about="the orphaned server to end")


@needs_server
def test_a_command_gets_the_address_and_its_exit_code_is_kept(
    mysql_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAILING_TEST_MYSQL_URL", mysql_server.url())
    seen = tmp_path / "seen"
    write = f'printf %s "$BAILING_TEST_MYSQL_URL" > {seen}; exit 7'
    assert mariadb_server.main(["run", "--", "sh", "-c", write]) == 7
    assert seen.read_text() == mysql_server.url()


@pytest.mark.parametrize("url", ["mysql://root@db.example.org", "mysql://10.0.0.1", "postgres://x"])
def test_a_server_that_is_not_on_loopback_is_refused(url: str) -> None:
    with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1"):
        given_server(url)


def test_a_given_server_that_does_not_answer_is_a_failure() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(ServerUnavailable, match="no database server answers"):
        given_server(f"mysql://root@127.0.0.1:{port}")


def test_the_port_of_the_notification_suite_names_a_given_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def given(url: str) -> Server:
        asked.append(url)
        return Server("127.0.0.1", 1, "a server")

    monkeypatch.setattr(mariadb_server, "given_server", given)
    monkeypatch.delenv("BAILING_TEST_MYSQL_URL", raising=False)
    monkeypatch.setenv("BAILING_NOTIFICATION_TEST_MYSQL_PORT", "16399")
    with the_server() as server:
        assert server.version == "a server"
    assert asked == ["mysql://root@127.0.0.1:16399"]


def test_no_installed_server_is_a_failure_that_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mariadb_server.shutil, "which", lambda *_args, **_kwargs: None)
    with pytest.raises(ServerUnavailable, match="make test"), private_server():
        raise AssertionError("there is no server")


def test_a_password_is_part_of_the_url_only_when_there_is_one() -> None:
    assert Server("127.0.0.1", 1, "").url("x") == "mysql://root@127.0.0.1:1/x"
    assert Server("127.0.0.1", 1, "", password="p").url() == "mysql://root:p@127.0.0.1:1"
    assert os.environ.get("MYSQL_PASSWORD") is None
