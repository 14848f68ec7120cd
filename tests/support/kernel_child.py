"""A kernel in a process of its own, to be killed: the real ASGI application behind a real socket.

Forked from a server that has imported the product and nothing else: no connection, no thread, no
setting survives from the test. Tests use KernelProcess; it tells and is told things over a pipe.
"""

import asyncio
import os
import socket
import threading
import warnings
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn
import uvloop
from django.db import connections
from django.db.utils import DEFAULT_DB_ALIAS

from console import asgi
from console.database import database
from kernel.conf import Conf, conf
from kernel.kernel import Kernel
from tests.support import delivery_mutants, job_mutants, mutants
from tests.support.stops import Stops

LOOK_SECONDS = 0.005
Place = tuple[str, str, int]


@dataclass(frozen=True)
class Plan:
    """What a child is to be: where it stops (see stops.py), which mutant it is ('' = none).

    With `worker` its kernel also runs agent jobs, as standalone does.
    """

    database_url: str
    environment: dict[str, str]
    stops: tuple[Place, ...] = ()
    mutant: str = ""
    worker: bool = False


def main(plan: Plan, pipe: Connection) -> None:
    """The life of a child. Ends by a signal, or when the test's end of the pipe is closed."""
    os.setsid()
    become(plan)
    if plan.worker:
        asgi.Kernel = partial(Kernel, worker=True)
    mutate(plan)
    stops = Stops(plan.stops, tell=pipe.send)
    stops.around_commits()
    threading.Thread(target=_listen, args=[stops, pipe], daemon=True).start()
    uvloop.run(_serve(stops, pipe))


def become(plan: Plan) -> None:
    """The environment, the limits and the database of this child, and no others (K5)."""
    os.environ.clear()
    os.environ.update(plan.environment)
    conf._values.update(Conf()._values)
    entry = database(plan.database_url, default_path=Path("unused"))
    complete = connections.configure_settings({DEFAULT_DB_ALIAS: entry})
    connections.settings[DEFAULT_DB_ALIAS] = complete[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    warnings.filterwarnings("ignore", message="No directory at")


def mutate(plan: Plan) -> None:
    """Seed the mutant of this child, when it is one."""
    if plan.mutant:
        every = mutants.MUTANTS | job_mutants.MUTANTS | delivery_mutants.MUTANTS
        every[plan.mutant]()


def _listen(stops: Stops, pipe: Connection) -> None:
    """Obey the test; without it this process has no reason to live."""
    try:
        while True:
            stops.release(*pipe.recv())
    except (EOFError, OSError):
        os._exit(0)


async def _serve(stops: Stops, pipe: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            stops.before_answers(asgi.application),
            loop="none",
            lifespan="on",
            log_config=None,
            access_log=False,
        )
    )
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    while not (server.started or serving.done()):
        await asyncio.sleep(LOOK_SECONDS)
    if server.started:
        pipe.send(("ready", listener.getsockname()[1]))
    await serving
