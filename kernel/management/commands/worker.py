"""`manage.py worker`: a process that only runs agent jobs, beside a web server (D1)."""

import asyncio
import signal

import uvloop
from django.conf import settings
from django.core.management.base import CommandError

from kernel.conf import conf
from kernel.kernel import Kernel
from kernel.management.base import EXIT_FAILED, KernelCommand, Options
from kernel.metrics import serve_metrics

ABOUT = """\
It claims due jobs, runs them and keeps their leases; it does no maintenance:
a web server, standalone or `manage.py maintain` does that. As many may run as
the database bears; a job has one owner at a time. SIGTERM or Ctrl-C closes:
nothing new is claimed, running jobs are released between two steps and go on
elsewhere."""


class Command(KernelCommand):
    help = "Run agent jobs until SIGTERM or Ctrl-C."
    more = ABOUT

    def run(self, options: Options) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        kernel = Kernel(worker=True)
        await kernel.initialize()
        serve_metrics(kernel, address=settings.METRICS_ADDRESS)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        self.say(f"Running up to {conf.job_count_max} jobs at once. Ctrl-C or SIGTERM closes.")
        self.stdout.flush()
        await stop.wait()
        self.say("Closing: no new job; waiting for what has started.")
        report = await kernel.close()
        if not report.drained:
            raise CommandError(
                f"The close budget of {conf.close_budget_seconds} s ran out; left: {report.left}."
                " Their leases end by themselves; other workers take them over.",
                returncode=EXIT_FAILED,
            )
        self.say(f"Closed cleanly in {report.seconds:.1f} s.")
