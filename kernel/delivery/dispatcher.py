"""The dispatcher: claims notifications, sends them, records what came of it (F1, F2, G3).

Messages only wake it: what is to be sent it reads from the table, at least every
`notification_poll_seconds`. Each destination has its own slots, and what takes long does not count
as one of the page: many that hang leave room for others. When the kernel closes, it sends
what draining work still publishes, takes one last look, and waits for what it has begun.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import asdict, replace

from django.db import DatabaseError

from kernel import clock
from kernel.conf import conf
from kernel.delivery.channels import Channels
from kernel.delivery.claims import Claimed, claim
from kernel.delivery.ends import End
from kernel.delivery.sending import Recorded, Report, record_attempts
from kernel.errors import CommitOutcomeUnknown, LostRace
from kernel.runtime import FAILURES, Background, Database, Looker, Writer
from kernel.states import Delivery
from kernel.transactions import is_contention, is_lost_connection

log = logging.getLogger(__name__)

RECORD_WAIT_SECONDS_MAX = 5.0
LEASE_MARGIN_SECONDS = 2.0  # between an attempt's end and its lease's: for recording it
KIND_OF_WORK = frozenset({"callback", "delivery", "approval_webhook", "alert"})


class Dispatcher(Looker):
    """Sends the notifications of one kernel: at most `notification_page_rows` at once, besides
    `notification_slow_count_max` that are slow.

    `start()` begins to claim, `wake()` says that there may be something, `stop_claiming()` ends
    claiming after one last look, `stopped()` waits for it. Attempts are background work of the
    notification's kind: the kernel's drain waits for them.
    """

    last_look = True

    def __init__(
        self, *, database: Database, background: Background, channels: Channels, owner: str
    ):
        super().__init__()
        self.owner = owner
        self._database, self._background, self._channels = database, background, channels
        self._running: Counter[str] = Counter()
        self._began: dict[str, float] = {}  # by message: when its attempt began
        # Attempts that end together share a commit; the call may be repeated.
        self._writer: Writer[Report, Recorded] = Writer(
            database,
            record_attempts,
            confirm=record_attempts,
            key=lambda item: (item.claimed.destination_id, item.claimed.id),
        )

    @property
    def running(self) -> int:
        """Attempts under way."""
        return self._running.total()

    async def stop(self) -> None:
        """Stop claiming and let the mail threads go. After the drain."""
        await super().stop()
        self._channels.mailer.close()

    # --- claiming ---------------------------------------------------------------------------------

    def _pace_seconds(self) -> float:
        pace: float = conf.notification_poll_seconds
        if self._free() < 1:  # by then some of them are slow
            pace = min(pace, conf.notification_slow_seconds)
        return pace

    def _free(self) -> int:
        """How many may be claimed now: those of a page, less what is under way and not slow."""
        slow_since = clock.monotonic() - conf.notification_slow_seconds
        slow = sum(began <= slow_since for began in self._began.values())
        beyond = max(0, slow - conf.notification_slow_count_max)
        return conf.notification_page_rows - (self.running - slow) - beyond

    async def _claim(self) -> None:
        free = self._free()
        if free < 1:
            return
        # Before the claim: the lease may only begin later than we think.
        lease_until = clock.monotonic() + conf.notification_lease_seconds
        taken = await self._database.in_tx(
            claim, owner=self.owner, limit=free, busy=dict(self._running)
        )
        for message in taken:
            self._start(message, lease_until=lease_until)

    def _start(self, message: Claimed, *, lease_until: float) -> None:
        self._running[message.destination_id] += 1
        self._began[message.id] = clock.monotonic()
        kind = message.kind if message.kind in KIND_OF_WORK else "delivery"
        work = self._send(message, lease_until=lease_until)
        # Its row was accepted long ago; what closes is only the door to new work.
        self._background.start(kind, work, accepted=True)

    # --- one attempt ------------------------------------------------------------------------------

    async def _send(self, message: Claimed, *, lease_until: float) -> None:
        try:
            end = await self._attempt(message, lease_until=lease_until)
            await self._record(message, end, until=lease_until + conf.notification_lease_seconds)
        finally:
            self._running[message.destination_id] -= 1
            self._running += Counter()  # drops what is zero
            self._began.pop(message.id, None)
            self._wake.set()

    async def _attempt(self, message: Claimed, *, lease_until: float) -> End:
        left = lease_until - clock.monotonic() - LEASE_MARGIN_SECONDS
        deadline = min(conf.notification_deadline_seconds, left)
        if deadline <= 0:  # we were held up: somebody else may send it by now
            return End(Delivery.NOT_SENT, "the lease was over before the attempt began")
        try:
            return await self._channels.send(message, deadline_seconds=deadline)
        except Exception as error:
            log.exception("a channel has a defect: %s", message.channel)
            return End(Delivery.UNKNOWN, f"internal error: {type(error).__name__}: {error}")

    async def _record(self, message: Claimed, end: End, *, until: float) -> None:
        """Record until it is recorded, somebody else has the message, or its lease is long over.

        The words of a receiver must not decide: what the database refuses to store is written in
        ASCII, then not at all, and the outcome stays what it was.
        """
        report = Report(message, **asdict(end))
        wait = 0.1
        while True:
            try:
                await self._writer.put(report, group=message.destination_id)
                return
            except LostRace as error:
                log.warning("%s; its outcome was %s", error.message, end.outcome)
                return
            except (*FAILURES, CommitOutcomeUnknown) as error:
                if _is_about_text(error):
                    report = replace(report, evidence=plainer(report.evidence))
                log.warning("an outcome is not recorded yet: %s", type(error).__name__)
            if clock.monotonic() >= until:
                log.error("the outcome %s of %s is given up", end.outcome, message.id)
                return
            await asyncio.sleep(wait)
            wait = min(wait * 2, RECORD_WAIT_SECONDS_MAX)


def plainer(evidence: str) -> str:
    """The same evidence in ASCII; '' when it was ASCII already."""
    if evidence.isascii():
        return ""
    return evidence.encode("ascii", "backslashreplace").decode()


def _is_about_text(error: Exception) -> bool:
    """Whether the database refuses what is written, not the writing."""
    if not isinstance(error, DatabaseError):
        return False
    return not is_lost_connection(error) and not is_contention(error)
