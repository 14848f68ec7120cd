"""Celery's application: beat ticks, each worker process runs one kernel, the web sends wake-ups.

    celery -A console.celery worker
    celery -A console.celery beat

Needs BAILING_ENGINE=celery and BAILING_BROKER_URL. No result backend: results are rows.
"""

import logging
import os
import sys
from typing import Any, NoReturn

from console.entry import reason_not_to_start

if reason := reason_not_to_start():
    sys.exit(reason)

from celery import Celery, signals
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from kombu import Connection

from kernel import tasks
from kernel.conf import conf
from kernel.errors import KernelError
from kernel.runtime.wake import Messenger

log = logging.getLogger(__name__)

QUEUE = "bailing"
# Each worker process has its kernel; forks would take half of one along.
POOLS = ("celery.concurrency.thread", "celery.concurrency.solo")
EXIT_NOT_STARTED, EXIT_LEFT_WORK = 1, 3
QUIET = ("celery.app.trace", "celery.worker.strategy", "celery.beat")
ENGINE = settings.ENGINE


def _refuse(text: str) -> NoReturn:
    # Celery swallows every error of a signal's receiver but this one.
    sys.stderr.write(f"{text}\n")
    raise SystemExit(EXIT_NOT_STARTED)


def _application() -> Celery:
    if not ENGINE.is_celery:
        _refuse("Celery runs only with BAILING_ENGINE=celery in the environment.")
    # Without Celery's fixup for Django: no task of ours touches a connection of its own.
    app = Celery("bailing", broker=ENGINE.broker_url, include=["kernel.tasks"], fixups=[])
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_store_eager_result=False,
        task_serializer="json",
        accept_content=["json"],
        timezone="UTC",
        # A task hands over and ends. What a worker took and did not begin is another's loss of one
        # wake-up; acknowledging late would only repeat it.
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        worker_pool="threads",
        worker_concurrency=2,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # A broker that is away, at the start or later, is waited for.
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=_transport_options(),
        # Nothing to remember between two starts: a tick is due at once, then every interval.
        beat_scheduler="celery.beat:Scheduler",
        beat_max_loop_interval=conf.beat_tick_seconds,
        beat_schedule={
            "tick": {
                "task": tasks.TICK,
                "schedule": conf.beat_tick_seconds,
                "options": {"expires": conf.wake_expires_seconds},
            }
        },
    )
    return app


def _transport_options(**more: Any) -> dict[str, Any]:
    if not ENGINE.is_redis:
        return more
    return {"socket_keepalive": True, "socket_connect_timeout": 5, "visibility_timeout": 60, **more}


app = _application()


# --- the worker -----------------------------------------------------------------------------------


@signals.setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Lines are Django's LOGGING; a line per message would say nothing."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


@signals.celeryd_after_setup.connect
def _start(instance: Any, **_: Any) -> None:
    """Start the kernel before the first message; a kernel that cannot start ends the worker."""
    if instance.pool_cls.__module__ not in POOLS:
        _refuse("Run the worker with --pool threads or --pool solo: one kernel, no forks.")
    try:
        tasks.start_kernel()
    except Exception as error:  # whatever it is: Celery would go on without a kernel
        if not isinstance(error, (KernelError, DatabaseError, InterfaceError, OSError)):
            log.exception("starting the kernel has a defect")
        way_out = f" {error.way_out}" if isinstance(error, KernelError) else ""
        _refuse(f"The kernel did not start: {error}.{way_out}".replace("..", "."))
    messenger().start()


@signals.worker_shutting_down.connect
def _begin_close(**_: Any) -> None:
    """SIGTERM: nothing new is claimed from here on, while Celery ends its own parts (G4)."""
    if here := tasks.kernel_here():
        here.begin_close()


@signals.worker_shutdown.connect
def _close(**_: Any) -> None:
    """Celery is done; the kernel has the rest of its one budget (G3)."""
    here = tasks.kernel_here()
    if here is None:
        return
    try:
        report = here.closed()
    except TimeoutError:
        log.error("close did not end within its budget")
        _leave()
    if report.drained:
        log.info("closed cleanly in %.1f s", report.seconds)
        return
    log.error("close ran out of time; left: %s; leases end by themselves", report.left)
    _leave()


def _leave() -> None:
    """End now: the interpreter would wait for threads that hang in the database."""
    logging.shutdown()
    os._exit(EXIT_LEFT_WORK)


# --- wake-ups -------------------------------------------------------------------------------------


class _Sender:
    """Hands one message to the broker, in a bounded time, over a connection that it keeps."""

    def __init__(self) -> None:
        self._connection: Connection | None = None

    def __call__(self, what: str) -> None:
        if self._connection is None:
            self._connection = _short_connection()
        try:
            app.send_task(
                tasks.TASK_OF[what],
                connection=self._connection,
                expires=conf.wake_expires_seconds,
                retry=False,
            )
        except Exception:
            connection, self._connection = self._connection, None
            connection.release()
            raise


def _short_connection() -> Connection:
    seconds = conf.wake_timeout_seconds
    options: dict[str, Any] = {"max_retries": 0, "connect_retries_timeout": seconds}
    if ENGINE.is_redis:
        options |= {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    else:
        options |= {"read_timeout": seconds, "write_timeout": seconds}
    connection: Connection = app.connection_for_write(
        connect_timeout=seconds, transport_options=_transport_options(**options)
    )
    return connection


def messenger() -> Messenger:
    """What tells the workers after a commit; not started yet."""
    return Messenger(_Sender(), linger_seconds=conf.wake_linger_milliseconds / 1000)
