"""Headers on both sides of a call: what we send is validated, what comes back is bounded.

The door alone sets the framing headers; a caller that could set `Transfer-Encoding` could smuggle a
second request behind the first.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kernel.errors import NotSent, OutcomeUnknown
from kernel.http.addresses import Target

USER_AGENT = "bailing"
HEADERS_MAX = 100
HEADER_LINE_BYTES_MAX = 32 * 1024

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
NOT_IN_A_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "accept-encoding"}
    | {"expect", "upgrade", "te", "trailer", "proxy-authorization", "proxy-connection"}
)
BODYLESS_METHODS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"})
SECONDS = re.compile(r"\d+(\.\d+)?", re.ASCII)
DATE = re.compile(r"[A-Z][a-z]{2,8},? .*\d\d:\d\d:\d\d( GMT| \d{4})", re.ASCII)

Headers = tuple[tuple[str, str], ...]


def request_headers(
    *, method: str, target: Target, headers: Iterable[tuple[str, str]], content: bytes | None
) -> list[tuple[bytes, bytes]]:
    """The full header list of a request, as bytes.

    Raises NotSent(reason="invalid_request") that names the header and never shows its value.
    """
    if not TOKEN.fullmatch(method) or method != method.upper() or method == "CONNECT":
        raise _invalid("the method is not an HTTP method in upper case")
    ready = [(b"Host", target.authority.encode()), (b"Accept-Encoding", b"identity")]
    seen = set()
    for name, value in headers:
        if not TOKEN.fullmatch(name):
            raise _invalid("a header name holds a character that is not allowed")
        if name.lower() in OURS:
            raise _invalid(f"the header {name} is set by the door")
        if NOT_IN_A_VALUE.search(value) or value != value.strip(" \t"):
            raise _invalid(f"the header {name} holds a character that is not allowed")
        seen.add(name.lower())
        ready.append((name.encode(), value.encode("latin-1")))
    if "user-agent" not in seen:
        ready.append((b"User-Agent", USER_AGENT.encode()))
    if content or method not in BODYLESS_METHODS:
        ready.append((b"Content-Length", str(len(content or b"")).encode()))
    return ready


def _invalid(why: str) -> NotSent:
    return NotSent(f"the request was not sent: {why}", reason="invalid_request")


def response_headers(raw: Sequence[tuple[bytes, bytes]], *, status: int) -> Headers:
    """Names in lower case, values as Latin-1 text, in the order received.

    Raises OutcomeUnknown(reason="bad_response") beyond HEADERS_MAX or HEADER_LINE_BYTES_MAX.
    """
    if len(raw) > HEADERS_MAX:
        why = f"more than {HEADERS_MAX} headers"
        raise OutcomeUnknown(f"bad response: {why}", reason="bad_response", status=status)
    if any(len(name) + len(value) > HEADER_LINE_BYTES_MAX for name, value in raw):
        why = f"a header line over {HEADER_LINE_BYTES_MAX} bytes"
        raise OutcomeUnknown(f"bad response: {why}", reason="bad_response", status=status)
    return tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw)


def retry_after_seconds(values: Sequence[str], *, now: datetime, seconds_max: int) -> int | None:
    """What `Retry-After` asks for, within [0, seconds_max]; None where it is missing or unclear.

    Seconds (a fraction is rounded up) or one of the three HTTP date forms. A negative number, text
    or two headers say nothing reliable: the caller keeps its own schedule.
    """
    if len(values) != 1:
        return None
    text = values[0].strip()
    if SECONDS.fullmatch(text):
        return min(seconds_max, math.ceil(float(text[:20])))
    if not DATE.fullmatch(text):
        return None
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0, min(seconds_max, math.ceil((when - now).total_seconds())))
