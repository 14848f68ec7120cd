"""A private MariaDB (or MySQL) server per run: loopback, empty root password, thrown away (K5).

    with private_server() as server:            # or the_server(): BAILING_TEST_MYSQL_URL if set
        with server.schema() as url: ...        # mysql://root@127.0.0.1:16307/bz_test_3f9c...

On the command line, several runs share one server:
    python -m tests.support.mariadb_server run -- pytest tests/crash
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import MySQLdb

from tests.support.owned import OwnedDirectory, remove_stale

PREFERRED_PORT = 16307
START_SECONDS_MAX = 60.0
SCHEMA_PREFIX = "bz_test_"
DIRECTORY_PREFIX = "bz-mariadb-"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORT_TRIES_MAX = 5


class ServerUnavailable(RuntimeError):
    """A suite asked for a database server and there is none; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that tests may create and drop schemas on."""

    host: str
    port: int
    version: str
    user: str = "root"
    password: str = ""
    private: bool = False

    def __str__(self) -> str:
        kind = "private" if self.private else "given"
        return f"{self.version} at {self.host}:{self.port} ({kind})"

    def url(self, schema: str = "") -> str:
        """The address as BAILING_DATABASE_URL takes it."""
        secret = f":{self.password}" if self.password else ""
        return f"mysql://{self.user}{secret}@{self.host}:{self.port}/{schema}".rstrip("/")

    def connect(self, schema: str = "", **options: object) -> MySQLdb.Connection:
        """A plain driver connection, autocommit on."""
        return MySQLdb.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=schema,
            connect_timeout=5,
            **{"autocommit": True, "charset": "utf8mb4", **options},
        )

    def execute(self, *statements: str) -> None:
        """Run statements on a connection of their own."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)

    def create_schema(self) -> str:
        """Create an empty schema with a random name; returns its URL."""
        name = SCHEMA_PREFIX + secrets.token_hex(8)
        self.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        return self.url(name)

    def drop_schema(self, url: str) -> None:
        """Drop a schema made by create_schema; refuses any other name."""
        name = urlsplit(url).path.removeprefix("/")
        if not name.startswith(SCHEMA_PREFIX):
            raise ValueError(f"{name} is not a schema of the tests")
        self.execute(f"DROP DATABASE IF EXISTS `{name}`")

    @contextlib.contextmanager
    def schema(self) -> Iterator[str]:
        """A random schema for the length of a block; its URL."""
        url = self.create_schema()
        try:
            yield url
        finally:
            self.drop_schema(url)


@contextlib.contextmanager
def the_server() -> Iterator[Server]:
    """The given server (BAILING_TEST_MYSQL_URL or the port of K4), else a private one."""
    port = os.environ.get("BAILING_NOTIFICATION_TEST_MYSQL_PORT", "")
    url = os.environ.get("BAILING_TEST_MYSQL_URL", "")
    if url or port:
        yield given_server(url or f"mysql://root@127.0.0.1:{port}")
    else:
        with private_server() as server:
            yield server


def given_server(url: str) -> Server:
    """A dedicated server that somebody else runs. Only on loopback; never a production one."""
    parts = urlsplit(url)
    if parts.scheme != "mysql" or parts.hostname not in LOOPBACK:
        raise ServerUnavailable("BAILING_TEST_MYSQL_URL must be mysql://... on 127.0.0.1")
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    server = Server(
        host=host,
        port=parts.port or 3306,
        version="",
        user=parts.username or "root",
        password=parts.password or "",
    )
    try:
        return _with_version(server)
    except MySQLdb.OperationalError as error:
        raise ServerUnavailable(f"no database server answers at {host}:{server.port}") from error


@contextlib.contextmanager
def private_server(*, buffer_pool_mib: int = 128) -> Iterator[Server]:
    """Start a server of our own on 127.0.0.1 and throw it away afterwards, data and all.

    Port 16307, or a free one when that is taken. Raises ServerUnavailable when no server program is
    installed or it does not start.
    """
    with mortal_server(buffer_pool_mib=buffer_pool_mib) as mortal:
        yield mortal.server


class MortalServer:
    """A private server that its test kills and starts again on the same port and data."""

    def __init__(self, server: Server, directory: OwnedDirectory):
        self.server, self._directory = server, directory
        self.kills = 0

    def kill(self) -> None:
        """SIGKILL, and proof that this is what it died of."""
        process = self._process()
        process.kill()
        assert process.wait() == -signal.SIGKILL, process.returncode
        self.kills += 1

    def start(self) -> None:
        """Start it again; it recovers what it had committed. ServerUnavailable."""
        with (self._directory.path / "server.log").open("ab") as output:
            process = subprocess.Popen(
                self._process().args, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._directory.adopt(process)
        if not _wait_until_ready(self.server, process, self._directory.path):
            raise ServerUnavailable("the private database server did not start again")

    def _process(self) -> "subprocess.Popen[bytes]":
        assert self._directory.process is not None, "its server was never started"
        return self._directory.process


@contextlib.contextmanager
def mortal_server(
    *, buffer_pool_mib: int = 128, options: Sequence[str] = ()
) -> Iterator[MortalServer]:
    """The same as private_server(), for a test that kills it, or that starts it its own way."""
    program = _program()
    remove_stale(DIRECTORY_PREFIX)
    directory = OwnedDirectory.create(DIRECTORY_PREFIX)
    try:
        mariadb = _initialize(program, directory.path)
        more = [f"--innodb-buffer-pool-size={buffer_pool_mib}M", *options]
        server = _start(program, directory, mariadb=mariadb, more=more)
        yield MortalServer(server, directory)
    finally:
        directory.remove()


def _program() -> str:
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/libexec"])
    program = shutil.which("mariadbd", path=search) or shutil.which("mysqld", path=search)
    if program is None:
        raise ServerUnavailable(
            "no MariaDB or MySQL server is installed; `make test` installs mariadb-server-core"
        )
    return program


def _initialize(program: str, directory: Path) -> bool:
    """Make the data directory; root may sign in over TCP without a password. True for MariaDB."""
    words = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    mariadb = "MariaDB" in words.stdout
    common = [f"--datadir={directory / 'data'}", *_as_root()]
    if mariadb:
        command = ["mariadb-install-db", "--no-defaults", *common, "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
    else:
        command = [program, "--no-defaults", *common, "--initialize-insecure"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ServerUnavailable(f"{command[0]} failed:\n{(ended.stdout + ended.stderr)[-2000:]}")
    return mariadb


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _start(
    program: str, directory: OwnedDirectory, *, mariadb: bool, more: Sequence[str]
) -> Server:
    """Start the server on the preferred port, or on a free one when somebody else has it."""
    port = PREFERRED_PORT if _is_free(PREFERRED_PORT) else _free_port()
    for _attempt in range(PORT_TRIES_MAX):
        command = [*_command(program, directory.path, port, mariadb), *more]
        log = directory.path / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        directory.adopt(process)
        server = Server(host="127.0.0.1", port=port, version="", private=True)
        if _wait_until_ready(server, process, directory.path):
            return _with_version(server)
        # Another run may have taken the port between the look and the start.
        process.kill()
        process.wait()
        words = log.read_text(errors="replace")
        port = _free_port()
    raise ServerUnavailable(f"the private database server did not start:\n{words[-2000:]}")


def _command(program: str, directory: Path, port: int, mariadb: bool) -> list[str]:
    command = [
        program,
        "--no-defaults",
        *_as_root(),
        f"--datadir={directory / 'data'}",
        f"--socket={directory / 'sock'}",
        f"--pid-file={directory / 'pid'}",
        f"--tmpdir={directory}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        "--innodb-flush-log-at-trx-commit=1",
        "--sql-mode=STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
        "--character-set-server=utf8mb4",
        "--skip-log-bin",
        "--performance-schema=OFF",
        "--max-connections=500",
    ]
    if mariadb:
        command += ["--skip-name-resolve", "--innodb-log-file-size=64M"]
    else:
        command += ["--mysqlx=OFF", "--secure-file-priv=NULL"]
    # Linux ends the server when its starter dies: a killed test run leaves no server behind.
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    return command


def _wait_until_ready(server: Server, process: "subprocess.Popen[bytes]", directory: Path) -> bool:
    """False when the process ended or time is up. Only *our* server counts, not one on its port."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(MySQLdb.Error), contextlib.closing(server.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT @@datadir")
            return Path(cursor.fetchone()[0]) == directory / "data"
        time.sleep(0.05)
    return False


def _with_version(server: Server) -> Server:
    with contextlib.closing(server.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT VERSION()")
        version = str(cursor.fetchone()[0])
    kind, _, build = version.partition("-")
    name = f"MariaDB {kind}" if "MariaDB" in build else f"MySQL {version}"
    return Server(server.host, server.port, name, server.user, server.password, server.private)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str]) -> int:
    """`run -- command...`: the command's exit code, with BAILING_TEST_MYSQL_URL set for it."""
    if arguments[:2] != ["run", "--"] or len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    with the_server() as server:
        print(f"database server: {server}", flush=True)
        environment = {**os.environ, "BAILING_TEST_MYSQL_URL": server.url()}
        return subprocess.run(arguments[2:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
