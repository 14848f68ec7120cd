"""The one door to other people's HTTP: at most one request per call, bounded in bytes and time.

Built on the connection layer of httpx (httpcore), without its pool, client, redirects, cookies,
environment proxies and retries: none of them exists here, so none can be switched on by mistake.
docs/decisions/0001-http-client.md has the reasons and the numbers.

At most once (A5): a request is written to one connection, once. A kept connection is looked at
before use and dropped when the peer closed it; after the first byte nothing is ever repeated.
"""

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpcore
import httpcore2

from kernel.errors import NotSent, OutcomeUnknown, PeerError
from kernel.http.addresses import AddressPolicy, Resolve, Target, check_url, resolve_name
from kernel.http.answer import Answer, Key, Link
from kernel.http.headers import request_headers
from kernel.http.wire import Wire, WireClosed, dial

# The connection layers of httpx 0.28 and of httpx2; the conformance tests run on both.
STACKS: dict[str, Any] = {"httpx": httpcore, "httpx2": httpcore2}
STACK = "httpx2"

CONNECTIONS_MAX = 2000
IDLE_MAX = 64
# Below the 5 s after which common servers close: a closing race costs an unknown outcome.
IDLE_SECONDS = 2.0
SLOT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, ready to be written, and its time budget (loop time)."""

    method: str
    target: Target
    policy: AddressPolicy
    request: Any
    deadline_at: float
    connect_seconds: float

    @property
    def key(self) -> Key:
        return (*self.target[:3], self.policy)


class Door:
    """Makes calls. One per process and event loop; `aclose()` ends it.

    `connections_max` bounds open calls (a stream holds its connection), `idle_max` and
    `idle_seconds` what is kept for reuse (0 seconds: nothing), `slot_seconds` the wait for a free
    place. `ca_file` adds a private authority to the system's; verification cannot be turned off.
    """

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        idle_max: int = IDLE_MAX,
        idle_seconds: float = IDLE_SECONDS,
        slot_seconds: float = SLOT_SECONDS,
        ca_file: str | None = None,
        resolve: Resolve = resolve_name,
        stack: str = STACK,
    ):
        self._http = STACKS[stack]
        self._slots = asyncio.Semaphore(connections_max)
        self._slot_seconds = slot_seconds
        self._idle_max = idle_max if idle_seconds > 0 else 0
        self._idle_seconds = idle_seconds
        self._resolve = resolve
        self._tls = _tls_context(ca_file)
        self._idle: list[Link] = []
        self._busy: set[Link] = set()
        self._closed = False

    @property
    def busy(self) -> int:
        """Connections that a call holds now."""
        return len(self._busy)

    @property
    def idle(self) -> int:
        """Connections kept for reuse now."""
        return len(self._idle)

    @asynccontextmanager
    async def call(
        self,
        *,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]] = (),
        content: bytes | None = None,
        policy: AddressPolicy,
        deadline_seconds: float,
        read_seconds: float,
        connect_seconds: float,
    ) -> AsyncIterator[Answer]:
        """Send one request, at most once; the block gets the answer's head and reads its body.

        `deadline_seconds` bounds everything from here to the last byte of the body, `read_seconds`
        each silence, `connect_seconds` resolving, connecting and TLS together. Raises NotSent
        (AddressRefused among them) only where no byte of the request was handed to a socket, and
        OutcomeUnknown for everything after. Any status, a redirect too, is an answer. Leaving
        the block gives up what was not read (A5, E6).
        """
        call = self._prepare(
            target=check_url(url, policy),
            method=method,
            headers=headers,
            content=content,
            policy=policy,
            deadline_seconds=deadline_seconds,
            read_seconds=read_seconds,
            connect_seconds=connect_seconds,
        )
        await self._take_slot(call)
        try:
            answer = await self._send(call)
            try:
                yield answer
            finally:
                await answer.close()
        finally:
            self._slots.release()

    def _prepare(
        self,
        *,
        target: Target,
        method: str,
        headers: Iterable[tuple[str, str]],
        content: bytes | None,
        policy: AddressPolicy,
        deadline_seconds: float,
        read_seconds: float,
        connect_seconds: float,
    ) -> _Call:
        ready = request_headers(method=method, target=target, headers=headers, content=content)
        url = self._http.URL(
            scheme=target.scheme, host=target.host, port=target.port, target=target.path
        )
        silence = {"timeout": {"read": read_seconds, "write": read_seconds}}
        request = self._http.Request(
            method, url, headers=ready, content=content, extensions=silence
        )
        deadline_at = asyncio.get_running_loop().time() + deadline_seconds
        return _Call(method, target, policy, request, deadline_at, connect_seconds)

    async def _take_slot(self, call: _Call) -> None:
        if self._slots.locked():
            until = asyncio.get_running_loop().time() + self._slot_seconds
            try:
                async with asyncio.timeout_at(min(until, call.deadline_at)):
                    await self._slots.acquire()
            except TimeoutError:
                raise NotSent("too many open calls, none ended in time", reason="slots") from None
        else:
            await self._slots.acquire()

    async def _send(self, call: _Call) -> Answer:
        while True:
            link = self._reuse(call.key) or await self._connect(call)
            link.method = call.method
            link.wire.start_request(deadline_at=call.deadline_at)
            try:
                response = await link.connection.handle_async_request(call.request)
                return Answer(link=link, response=response, keep=self._keep, drop=self._drop)
            except WireClosed:
                self._drop(link)
                # Nothing was written: trying a fresh connection is not a second request.
                if not link.reused:
                    why = f"{call.target.origin} closed the connection before the request"
                    raise NotSent(why, reason="connect") from None
            except BaseException as error:
                self._drop(link)
                if not isinstance(error, Exception) or isinstance(error, OutcomeUnknown):
                    raise
                raise _classified(error, call, link.wire) from error

    def _reuse(self, key: Key) -> Link | None:
        """The kept connection used last that is still open and silent; dead ones go."""
        for link in reversed([one for one in self._idle if one.key == key]):
            self._idle.remove(link)
            if link.connection.has_expired():
                link.wire.abort()
                continue
            self._busy.add(link)
            link.reused = True
            return link
        return None

    async def _connect(self, call: _Call) -> Link:
        if self._closed:
            raise NotSent("the door is closed", reason="closed")
        now = asyncio.get_running_loop().time()
        wire = await dial(
            call.target,
            policy=call.policy,
            resolve=self._resolve,
            tls=self._tls,
            until=min(call.deadline_at, now + call.connect_seconds),
            write_error=self._http.WriteError,
        )
        if self._closed:
            wire.abort()
            raise NotSent("the door was closed", reason="closed")
        connection = self._http.AsyncHTTP11Connection(
            origin=call.request.url.origin, stream=wire, keepalive_expiry=self._idle_seconds
        )
        link = Link(call.key, connection, wire)
        self._busy.add(link)
        return link

    def _drop(self, link: Link) -> None:
        self._busy.discard(link)
        link.wire.abort()

    def _keep(self, link: Link) -> None:
        """The answer was read to its end; keep the connection if the layer says it is idle."""
        if self._closed or not link.connection.is_available():
            self._drop(link)
            return
        self._busy.discard(link)
        self._idle.append(link)
        while self._idle and (
            len(self._idle) > self._idle_max or self._idle[0].connection.has_expired()
        ):
            self._idle.pop(0).wire.abort()

    async def aclose(self) -> None:
        """Close every connection. Calls that are reading get BodyBroken; new ones NotSent."""
        self._closed = True
        for link in [*self._idle, *self._busy]:
            link.wire.abort()
        self._idle.clear()


@functools.cache
def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The system's authorities and one more; reading them takes tens of milliseconds, so once."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _classified(error: Exception, call: _Call, wire: Wire) -> PeerError:
    """The request went wrong before an answer: proven not sent, or unknown."""
    origin = call.target.origin
    if not wire.wrote:
        return NotSent(f"the request to {origin} was not sent", reason="invalid_request")
    if isinstance(error, TimeoutError):
        reason = wire.timeout_reason()
        return OutcomeUnknown(f"{origin} did not answer in time ({reason})", reason=reason)
    if wire.heard:
        return OutcomeUnknown(f"bad response from {origin}", reason="bad_response")
    return OutcomeUnknown(f"{origin} closed without an answer", reason="connection_lost")
