"""The gateway: admit, dispatch, call, save, settle, detached from the client that asked (A).

Every generation is a task of the background registry. The HTTP request only listens: when the
client leaves, nothing that is saved or charged changes.
"""

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass, replace
from typing import Any

from django.db import DatabaseError, DataError, InterfaceError

from kernel import audit, clock
from kernel.conf import conf
from kernel.errors import KernelError, NotSent, OutcomeUnknown, PeerError, Unavailable
from kernel.http import Door
from kernel.models import Request
from kernel.runtime import Background, Database, Writer
from kernel.states import Billing, Result
from kernel.usage import outcomes, providers
from kernel.usage.admission import Admission, Submission, admit, admit_again
from kernel.usage.bodies import read_body
from kernel.usage.dispatch import (
    DispatchOrder,
    Fence,
    confirm_dispatch,
    dispatch,
    order,
)
from kernel.usage.live import Live
from kernel.usage.recovery import renew_leases
from kernel.usage.results import Outcome, Saved, save_results
from kernel.usage.settlement import Settled, settle

log = logging.getLogger(__name__)

LARGE_BODY_BYTES = 256 * 1024
SERVICE_CHANGED = "The service was changed after this request was admitted; it was not sent."
LEASE_ENDED = "The lease had ended before the call began; it was not sent."

# Our own last event of a stream that did not end well: its code and what it says.
CUT = ("outcome_unknown", "The stream ended before it was complete. It is never sent again.")
CANCELLED = ("cancelled", "The request was cancelled while it ran.")
UNSAVED = ("result_not_saved", "The end of this stream is not saved yet. Read the operation again.")


@dataclass(frozen=True, slots=True)
class Ended:
    """A generation that is over: what was saved, and the outcome that was kept."""

    saved: Saved
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Streaming:
    """A generation whose provider streams now."""

    status: int
    content_type: str
    live: Live


class Flight(providers.Opened):
    """One running generation, seen from outside."""

    def __init__(self, request: Request):
        self.request = request
        loop = asyncio.get_running_loop()
        self._dispatched: asyncio.Future[None] = loop.create_future()
        self._opened: asyncio.Future[Streaming | Ended] = loop.create_future()
        self._over: asyncio.Future[Ended] = loop.create_future()
        self.fence: Fence | None = None
        self._live: Live | None = None

    async def wait_dispatched(self) -> None:
        """Until the dispatch is durable. Raises what kept it from being so."""
        await asyncio.shield(self._dispatched)

    async def wait_opened(self) -> Streaming | Ended:
        """Until the provider streams, or the outcome is saved. Raises what broke the generation."""
        return await asyncio.shield(self._opened)

    async def wait_ended(self) -> Ended:
        """Until the outcome is saved. Raises what broke the generation."""
        return await asyncio.shield(self._over)

    def dispatched(self, fence: Fence) -> None:
        """The dispatch is durable under this fence."""
        self.fence = fence
        _set(self._dispatched, None)

    def stream(self, *, status: int, content_type: str) -> Live:
        self._live = Live()
        _set(self._opened, Streaming(status, content_type, self._live))
        return self._live

    def ended(self, end: Ended) -> None:
        """The outcome is saved: the client may see the end of the stream."""
        if self._live is not None:
            ended = (Result.COMPLETE, Result.FAILED)
            whole = end.saved.applied and end.outcome.result_state in ended
            why = CANCELLED if end.saved.result_state == Result.CANCELLED else CUT
            self._live.end(tail=b"" if whole else _last_event(*why), release=whole)
        _set(self._opened, end)
        _set(self._over, end)

    def stop_listening(self) -> None:
        """Answer whoever still waits: the call goes on, its outcome is not known yet (G3)."""
        error = OutcomeUnknown(
            "The server closed before the outcome was known.",
            next_action="Read the operation later; it is never sent again.",
        )
        self.broke(error)

    def broke(self, error: BaseException) -> None:
        """The generation ended with an error of ours."""
        if self._live is not None:
            self._live.end(tail=_last_event(*UNSAVED), release=False)
        for future in (self._dispatched, self._opened, self._over):
            _fail(future, error)


def _last_event(code: str, message: str) -> bytes:
    error = {"code": code, "message": message, "retryable": False}
    return f"data: {json.dumps({'error': error})}\n\n".encode()


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # the client may have left; then nobody asks for it


def _request_id(item: DispatchOrder | Outcome) -> str:
    return item.request_id


class Gateway:
    """All generations of one kernel: its writers, its running calls, their lease renewal."""

    def __init__(self, *, owner: str, database: Database, background: Background, door: Door):
        self.owner = owner
        self._database, self._background, self._door = database, background, door
        self._running: dict[str, Flight] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._admit: Writer[Submission, Admission] = Writer(
            database,
            admit,
            confirm=admit_again,
            key=lambda item: (item.account_id, item.operation_id),
        )
        self._dispatch: Writer[DispatchOrder, Fence] = Writer(
            database, dispatch, confirm=confirm_dispatch, key=_request_id
        )
        self._save: Writer[Outcome, Saved] = Writer(
            database, save_results, confirm=save_results, key=_request_id
        )
        self._settle: Writer[str, Settled] = Writer(
            database,
            settle,
            confirm=settle,
            key=lambda item: item,
            linger_seconds=conf.settlement_linger_milliseconds / 1000,
        )

    @property
    def running(self) -> int:
        """Provider calls that this kernel owns now."""
        return len(self._running)

    async def admit(self, submission: Submission) -> Admission:
        """Make the submission durable, or find the request it repeats; sends nothing (A2, A3)."""
        ready: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._background.start("generation", self._admit_only(submission, ready))
        return await asyncio.shield(ready)

    async def submit(self, submission: Submission) -> Admission | Flight:
        """Admit and, if that created the request, generate. A repeat is an Admission (A8).

        Shielded: once admission began, the request goes on whatever happens to the caller.
        """
        ready: asyncio.Future[Admission | Flight] = asyncio.get_running_loop().create_future()
        self._background.start("generation", self._admit_and_run(submission, ready))
        return await asyncio.shield(ready)

    async def dispatch(
        self, request: Request, *, actor: audit.Actor | None = None, reason: str = ""
    ) -> Flight:
        """Generate an admitted request under its original identity (A3); `actor`: audited."""
        flight = Flight(request)
        asked = order(request_id=request.id, owner=self.owner, actor=actor, reason=reason)
        self._background.start("generation", self._run(flight, asked, raw=None))
        return flight

    async def _admit_only(self, submission: Submission, ready: asyncio.Future[Admission]) -> None:
        if (admission := await self._admitted(submission, ready)) is not None:
            _set(ready, admission)

    async def _admit_and_run(
        self, submission: Submission, ready: asyncio.Future[Admission | Flight]
    ) -> None:
        admission = await self._admitted(submission, ready)
        if admission is None:
            return
        if not admission.created:
            _set(ready, admission)
            return
        flight = Flight(admission.request)
        _set(ready, flight)
        asked = order(request_id=admission.request.id, owner=self.owner)
        await self._run(flight, asked, raw=submission.body)

    async def _admitted(
        self, submission: Submission, ready: asyncio.Future[Any]
    ) -> Admission | None:
        """The admission, or None when it was refused: that is the caller's to know, no failure."""
        try:
            return await self._admit.put(submission, group=submission.account_id)
        except BaseException as error:
            _fail(ready, error)
            if not isinstance(error, Exception):
                raise
            return None

    async def _run(self, flight: Flight, asked: DispatchOrder, *, raw: bytes | None) -> None:
        request = flight.request
        try:
            if raw is None:
                raw = await self._database.in_tx(read_body, request_id=request.id, kind="request")
            lease_ends = clock.monotonic() + conf.dispatch_lease_seconds
            flight.dispatched(await self._dispatch.put(asked, group=request.id))
            self._running[request.id] = flight
            self._keep_renewing()
            try:
                outcome = await self._call(flight, raw=raw or b"", lease_ends=lease_ends)
                saved = await self._save_outcome(outcome, account_id=request.account_id)
            finally:
                self._running.pop(request.id, None)
            flight.ended(Ended(saved, outcome))
            if saved.billing_state == Billing.PENDING and outcome.usage_text:
                self._background.start("settlement", self._settle_now(request))
        except (KernelError, DatabaseError, InterfaceError) as error:
            known = isinstance(error, KernelError)
            flight.broke(error if known else Unavailable("The database did not answer."))
            if flight.fence is not None:
                log.error("the outcome of %s was not saved; it will be unknown", request.id)
                raise
        except BaseException as error:
            flight.broke(error)
            raise

    async def _call(self, flight: Flight, *, raw: bytes, lease_ends: float) -> Outcome:
        request, fence = flight.request, flight.fence
        assert fence is not None, "only a confirmed own fence may send (A4)"
        names = {"request_id": request.id, "fence_token": fence.token}
        if fence.service is None:
            return outcomes.not_sent(**names, code="service_changed", message=SERVICE_CHANGED)
        if clock.monotonic() >= lease_ends:
            # This process slept; others may have called the request unknown, or resolved it.
            return outcomes.not_sent(**names, code="lease_ended", message=LEASE_ENDED)
        try:
            call = providers.build_call(
                service=fence.service,
                request_id=request.id,
                raw=raw,
                limit_output=request.hold_nano > 0,
            )
        except Exception as error:
            # Nothing was connected yet, so nothing was sent.
            log.warning("no call could be built for %s: %s", request.id, type(error).__name__)
            if isinstance(error, KernelError):
                return outcomes.not_sent(**names, code=error.error_code, message=error.message)
            return outcomes.not_sent(**names, code="internal", message=type(error).__name__)
        try:
            answer = await providers.send(door=self._door, call=call, opened=flight)
        except NotSent as error:
            return outcomes.not_sent(**names, code=error.error_code, message=error.message)
        except PeerError as error:
            return outcomes.lost(**names, code=error.error_code, message=error.message)
        except Exception as error:
            # Whatever went wrong, bytes may have left: unknown, never sent again.
            log.exception("provider call of %s failed", request.id)
            return outcomes.lost(**names, code="internal", message=type(error).__name__)
        if len(answer.body) > LARGE_BODY_BYTES:
            # Reading a large answer would hold up every other request of this process.
            return await asyncio.to_thread(outcomes.classify, **names, answer=answer)
        return outcomes.classify(**names, answer=answer)

    async def _save_outcome(self, outcome: Outcome, *, account_id: str) -> Saved:
        """Save, and keep trying while the database is away: the bytes exist only here."""
        give_up_at = clock.monotonic() + conf.result_save_seconds_max
        wait = 0.2
        while True:
            try:
                return await self._save.put(outcome, group=account_id)
            except (DataError, ValueError) as error:
                # A text the database refuses must not lose the bytes: save them without it.
                log.warning("result of %s: %s", outcome.request_id, type(error).__name__)
                barer = _without_texts(outcome)
                if barer == outcome:
                    raise
                outcome = barer
                continue
            except (DatabaseError, InterfaceError, Unavailable):
                if clock.monotonic() + wait >= give_up_at:
                    raise
                log.warning("result of %s is not saved yet; trying again", outcome.request_id)
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)

    async def _settle_now(self, request: Request) -> None:
        # Maintenance settles what this cannot; a failure here loses nothing.
        with contextlib.suppress(DatabaseError, InterfaceError, Unavailable):
            await self._settle.put(request.id, group=request.account_id)

    def _keep_renewing(self) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        while self._running:
            # Twice within a lease, also where somebody made the lease short.
            await asyncio.sleep(min(conf.dispatch_renewal_seconds, conf.dispatch_lease_seconds / 3))
            ids = sorted(self._running)
            if not ids:
                return
            try:
                await self._database.in_tx(renew_leases, owner=self.owner, request_ids=ids)
            except (DatabaseError, InterfaceError, Unavailable) as error:
                log.warning("leases were not renewed: %s", type(error).__name__)

    def stop_listening(self) -> None:
        """Answer every caller that still waits; the calls themselves go on."""
        for flight in list(self._running.values()):
            flight.stop_listening()

    async def stop_renewing(self) -> None:
        """End the renewal timer; after the drain nothing is left to renew."""
        if self._renewal is not None:
            self._renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewal


def _without_texts(outcome: Outcome) -> Outcome:
    """The same outcome with fewer texts: first without names and remarks, then without metering."""
    bare = replace(outcome, error_text="", provider_request_id="", content_type="")
    if bare != outcome or not outcome.usage_text:
        return bare
    return replace(bare, usage_text="", pending_reason="unreadable_usage")
