"""A private Redis per run: loopback, a free port, nothing on disk, thrown away (K5).

with private_redis() as redis:
    redis.url                     # redis://:secret@127.0.0.1:40123/0
    redis.restart()               # the same port, and everything it held is gone
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator

from redis import Redis
from redis.exceptions import RedisError

from tests.support.mariadb_server import ServerUnavailable
from tests.support.owned import OwnedDirectory, remove_stale
from tests.support.wait import NotInTime, wait_until

START_SECONDS_MAX = 20.0
DIRECTORY_PREFIX = "bz-redis-"


class RedisServer:
    """A running server that may be stopped and started again on its port."""

    def __init__(self, program: str, directory: OwnedDirectory):
        self._program, self._directory = program, directory
        self.password = secrets.token_hex(12)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    @property
    def url(self) -> str:
        """The address as BAILING_BROKER_URL takes it."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def client(self) -> Redis:
        """A plain connection beside the product."""
        return Redis(port=self.port, password=self.password, socket_timeout=2)

    def start(self) -> "RedisServer":
        """Start and wait until it answers. ServerUnavailable when it does not."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--requirepass", self.password, "--save", "", "--appendonly", "no"]
        command += ["--dir", str(self._directory.path), "--daemonize", "no"]
        # Linux ends the server when its starter dies: a killed test run leaves no server behind.
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        log = self._directory.path / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._directory.adopt(self._process)
        try:
            wait_until(self._answers, START_SECONDS_MAX, about="the private Redis answers")
        except NotInTime as error:
            words = log.read_text(errors="replace")[-2000:]
            raise ServerUnavailable(f"the private Redis did not start:\n{words}") from error
        return self

    def kill(self) -> None:
        """The broker is gone, and what it held with it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Gone, and there again: empty."""
        self.kill()
        self.start()

    def _answers(self) -> bool:
        with contextlib.suppress(RedisError), contextlib.closing(self.client()) as client:
            return self._process.poll() is None and bool(client.ping())
        return False


@contextlib.contextmanager
def private_redis() -> Iterator[RedisServer]:
    """Start a server of our own and throw it away afterwards. ServerUnavailable without one."""
    program = _program()
    remove_stale(DIRECTORY_PREFIX)
    directory = OwnedDirectory.create(DIRECTORY_PREFIX)
    try:
        # By its own name: the program asks what it was called.
        named = directory.path / "redis-server"
        named.symlink_to(program)
        yield RedisServer(str(named), directory).start()
    finally:
        directory.remove()


def _program() -> str:
    """The server; a machine with Redis's tools only has it under another name."""
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    for name in ("redis-server", "redis-check-rdb"):
        if program := shutil.which(name, path=search):
            return program
    raise ServerUnavailable("no Redis server is installed; its package is redis-server")
