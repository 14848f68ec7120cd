"""A private RabbitMQ per run: loopback, free ports, a throw-away directory (K5).

with private_rabbitmq() as rabbit:
    rabbit.url                    # amqp://guest:guest@127.0.0.1:40123//
    rabbit.restart()              # the same port, and everything it held is gone
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kombu import Connection

from tests.bench.product import free_port
from tests.support.mariadb_server import ServerUnavailable
from tests.support.owned import OwnedDirectory, remove_stale
from tests.support.wait import NotInTime, wait_until

START_SECONDS_MAX = 120.0
DIRECTORY_PREFIX = "bz-rabbitmq-"
# The program itself: the one in the path changes to a user of its own first.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitServer:
    """A running server that may be stopped and started again on its port.

    Erlang's port mapper is a process beside it, on the loopback too.
    """

    password = "guest"

    def __init__(self, directory: OwnedDirectory):
        self._directory = directory
        self.port, node, mapper = free_port(), free_port(), free_port()
        (directory.path / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")
        place = str(directory.path)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": place,
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"bz{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": f"{place}/rabbitmq.conf",
            "RABBITMQ_DIST_PORT": str(node),
            "RABBITMQ_LOG_BASE": place,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{place}/plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self._mapper = subprocess.Popen(
            [*_bound(), "epmd", "-port", str(mapper), "-address", "127.0.0.1"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )
        self._starts = 0

    @property
    def url(self) -> str:
        """The address as BAILING_BROKER_URL takes it."""
        return f"amqp://guest:{self.password}@127.0.0.1:{self.port}//"

    def start(self) -> "RabbitServer":
        """Start with nothing in it and wait until it answers. ServerUnavailable."""
        self._starts += 1
        store = self._directory.path / f"store-{self._starts}"
        log = self._directory.path / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*_bound(), str(PROGRAM)],
                env={**self._environment, "RABBITMQ_MNESIA_BASE": str(store)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._directory.adopt(self._process)
        try:
            wait_until(self._answers, START_SECONDS_MAX, about="RabbitMQ answers", look_every=0.5)
        except NotInTime as error:
            words = log.read_text(errors="replace")[-2000:]
            raise ServerUnavailable(f"the private RabbitMQ did not start:\n{words}") from error
        return self

    def kill(self) -> None:
        """The broker is gone, and what it held with it. The program is a shell and its child."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Gone, and there again: empty."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Nothing of it is left running."""
        self.kill()
        self._mapper.kill()
        self._mapper.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, "RabbitMQ ended by itself"
        with contextlib.suppress(OSError), Connection(self.url, connect_timeout=5) as one:
            one.connect()
            return True
        return False


def _bound() -> list[str]:
    """Linux ends the process when its starter dies: a killed test run leaves none behind."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


@contextlib.contextmanager
def private_rabbitmq() -> Iterator[RabbitServer]:
    """Start a server of our own and throw it away afterwards. ServerUnavailable without one."""
    if not PROGRAM.exists() or shutil.which("epmd") is None:
        raise ServerUnavailable("no RabbitMQ server is installed; its package is rabbitmq-server")
    remove_stale(DIRECTORY_PREFIX)
    directory = OwnedDirectory.create(DIRECTORY_PREFIX)
    server = RabbitServer(directory)
    try:
        yield server.start()
    finally:
        server.close()
        directory.remove()
