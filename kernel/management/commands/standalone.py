"""manage.py standalone: web, maintenance and background work in one process on loopback."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.asgi import create_application, tick_for_ever
from console.protocol import BoundedProtocol
from kernel import schema
from kernel.conf import conf
from kernel.demo import data as demo_data
from kernel.demo.launcher import DemoProvider, start_on_one_of
from kernel.errors import KernelError
from kernel.kernel import Kernel
from kernel.management.base import argument, leave
from kernel.startup import apply_environment
from kernel.state import DatabaseStore

# Told apart from a start that failed (1), so that whoever supervises can tell.
EXIT_LEFT_WORK = 3
CURL = """\
  curl -s -w '\\n' {address}/v1/chat/completions \\
    -H "Authorization: Bearer $(sed -n 's/^BAILING_API_TOKEN=//p' .env)" \\
    -H 'Idempotency-Key: hello-1' -H 'Content-Type: application/json' \\
    -d '{{"model": "{service}", "messages": [{{"role": "user", "content": "Hello"}}]}}'"""


class Command(BaseCommand):
    help = (
        "Run the console, the API, maintenance and background work in one process. Exit codes: 0"
        " closed cleanly, 1 did not start or ended by itself, 3 the close budget ran out with work"
        " left, which it names."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=argument(_port), default=18900, help="0 is any free one")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.ENGINE.is_celery:
            raise CommandError(
                "BAILING_ENGINE=celery is for several processes: start a web server, Celery's"
                " workers and its beat (docs/operations/scale-out.md), or remove the setting."
            )
        settings.VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = schema.state()
        if not found.usable:
            raise CommandError(f"The database is not ready: {found}. {found.way_out}")
        with _only_one(), _listening(options["host"], options["port"]) as listener:
            demo = demo_data.wants_demo(os.environ)
            try:
                account_id = apply_environment(environ=os.environ, demo=demo)
                with self._demo_provider(account_id) if demo else contextlib.nullcontext() as own:
                    asks = demo and demo_data.asks_about_refund(
                        account_id=account_id, store=DatabaseStore()
                    )
                    uvloop.run(self._serve(listener, demo_url=own.url if own else "", asks=asks))
            except KernelError as error:
                raise CommandError(f"{error.message} {error.way_out}".strip()) from error
            except CommandError as error:
                if error.returncode == EXIT_LEFT_WORK:
                    leave(self, error)
                raise

    @contextlib.contextmanager
    def _demo_provider(self, account_id: str) -> Iterator[DemoProvider]:
        latency, pause = (
            demo_data.number(os.environ, name, default=0, most=600_000)
            for name in ("BAILING_DEMO_LATENCY_MS", "BAILING_DEMO_CHUNK_MS")
        )
        ports = demo_data.ports(os.environ)
        with start_on_one_of(ports, latency_ms=latency, chunk_ms=pause) as provider:
            demo_data.ensure_demo_service(provider_url=provider.url)
            store = DatabaseStore()
            demo_data.ensure_demo_agent(url=provider.url, account_id=account_id, store=store)
            yield provider

    async def _serve(self, listener: socket.socket, *, demo_url: str, asks: bool) -> None:
        kernel = Kernel(worker=True)
        await kernel.initialize()
        server = _Server(
            uvicorn.Config(
                create_application(kernel),
                loop="none",
                http=BoundedProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
            )
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.stop)
        ticker = loop.create_task(tick_for_ever(kernel))
        serving = loop.create_task(server.serve(sockets=[listener]))
        host, port = listener.getsockname()[:2]
        self._welcome(f"http://{host}:{port}", demo_url=demo_url, asks=asks)
        stopping = loop.create_task(server.stopping.wait())
        await asyncio.wait([stopping, serving], return_when=asyncio.FIRST_COMPLETED)
        was_asked = server.stopping.is_set()
        self.stdout.write(
            "Closing: no new work; waiting for what has started, at most"
            f" {conf.close_budget_seconds} s."
        )
        ticker.cancel()
        deadline = loop.time() + conf.close_budget_seconds
        report = await kernel.close()
        if not report.drained:
            kernel.gateway.stop_listening()
        # Answers that are on their way may finish within the same budget.
        await asyncio.wait([serving], timeout=max(0.5, deadline - loop.time()))
        server.force_exit = True
        await serving
        if not was_asked:
            raise CommandError("The web server ended by itself; see the log.")
        if not report.drained:
            left = ", ".join(f"{count} {kind}" for kind, count in sorted(report.left.items()))
            raise CommandError(
                f"The close budget of {conf.close_budget_seconds} s ran out; left: {left}."
                " What was sent and not saved becomes unknown and is shown on Home.",
                returncode=EXIT_LEFT_WORK,
            )
        self.stdout.write(f"Closed cleanly in {report.seconds:.1f} s.")

    def _welcome(self, address: str, *, demo_url: str, asks: bool) -> None:
        lines = [
            "",
            f"  Console   {address}/    sign in as admin",
            "  Password  the line BAILING_ADMIN_PASSWORD in .env",
        ]
        if demo_url:
            lines += [
                f"  Demo      {demo_url}    provider, shop and inbox (BAILING_DEMO=0: without)"
            ]
            if asks:
                lines += [f"  Approvals {address}/approvals/    the demo's refund is decided there"]
            lines += [
                "",
                "  Send a model request (send it twice: the second answer is the saved one):",
                "",
                CURL.format(address=address, service=demo_data.SERVICE),
            ]
        lines += ["", "  Ctrl-C closes.", ""]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: Kernel.close() owns the one deadline (G3)."""

    def __init__(self, config: uvicorn.Config):
        super().__init__(config)
        self.stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """First signal: an orderly close. A second one is heard and changes nothing."""
        self.should_exit = True
        self.stopping.set()


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise ValueError("a port is a whole number from 0 to 65535")
    return int(text)


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """One standalone per installation: a second one would run a second demo and a second timer.

    The lock file holds the id of the process, for people; it is empty once that has ended well.
    """
    path = settings.VAR_DIR / "standalone.lock"
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(
                "standalone already runs for this installation, as process"
                f" {path.read_text().strip() or '?'}: end it with Ctrl-C there or with kill."
                " Another installation beside it needs a BAILING_VAR_DIR of its own."
            ) from None
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise CommandError(
                f"Cannot listen on {host}:{port}: {error.strerror}. Choose another with --port N or"
                ' --host ADDRESS (make run ARGS="--port N").'
            ) from None
        listener.listen(2048)
        yield listener
