"""The MySQL protocol as far as the proxy must read it: packets, greeting, responses, statements."""

import asyncio
import re
from dataclasses import dataclass, field

# capability flags
COMPRESS, SSL, DEPRECATE_EOF = 1 << 5, 1 << 11, 1 << 24
ZSTD, QUERY_ATTRIBUTES = 1 << 26, 1 << 27
HIDDEN = COMPRESS | SSL | ZSTD | QUERY_ATTRIBUTES
# server status flags
IN_TRANSACTION, AUTOCOMMIT, MORE_RESULTS = 0x0001, 0x0002, 0x0008
# commands
QUIT, INIT_DB, QUERY, STATISTICS, KILL, PING = 0x01, 0x02, 0x03, 0x09, 0x0C, 0x0E
STMT_PREPARE, STMT_CLOSE, SET_OPTION, RESET_CONNECTION = 0x16, 0x19, 0x1B, 0x1F
ONE_PACKET_ANSWERS = {INIT_DB, STATISTICS, KILL, PING, SET_OPTION, RESET_CONNECTION}

OK, LOCAL_INFILE, EOF, ERR = 0x00, 0xFB, 0xFE, 0xFF
PROGRESS_ERROR = 0xFFFF
DEADLOCK = 1213
PART_MAX = 0xFFFFFF
STATEMENT_BYTES_MAX = 256 * 1024


@dataclass
class Packet:
    """One logical packet: `raw` is all its bytes on the wire, `payload` its first part's payload.

    A payload of 16 MiB - 1 or more comes in several parts; `size` counts the payload of all.
    """

    sequence: int
    payload: bytes
    raw: bytes
    size: int


async def read_packet(reader: asyncio.StreamReader) -> Packet:
    """The next logical packet. Raises asyncio.IncompleteReadError at the end of the stream."""
    header = await reader.readexactly(4)
    length = size = int.from_bytes(header[:3], "little")
    payload = await reader.readexactly(length)
    raw = header + payload
    while length == PART_MAX:
        part = await reader.readexactly(4)
        length = int.from_bytes(part[:3], "little")
        raw += part + await reader.readexactly(length)
        size += length
    return Packet(header[3], payload, raw, size)


def plain_greeting(packet: Packet) -> tuple[bytes, int]:
    """The server's greeting without TLS, compression and query attributes: (raw, thread id).

    The proxy hides them from the client, so that the stream it reads stays readable.
    """
    raw = bytearray(packet.raw)
    if packet.payload[0] != 10:
        return bytes(raw), 0
    at = 4 + packet.payload.index(0, 1) + 1
    thread_id = int.from_bytes(raw[at : at + 4], "little")
    low, high = at + 13, at + 18
    flags = int.from_bytes(raw[low : low + 2] + raw[high : high + 2], "little") & ~HIDDEN
    raw[low : low + 2] = (flags & 0xFFFF).to_bytes(2, "little")
    raw[high : high + 2] = (flags >> 16).to_bytes(2, "little")
    return bytes(raw), thread_id


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer at `at`: (value, where it ends)."""
    first = data[at]
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
    if size is None:
        return first, at + 1
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


@dataclass
class Response:
    """Follows the server's answer to one command, packet by packet, to its end.

    `done`; then `error` (code, 0 = none) and `status` (the last status flags, None = unknown).
    An answer whose form is not followed (prepared statements) is never `done`.
    """

    command: int
    capabilities: int
    done: bool = False
    error: int = 0
    status: int | None = None
    wants_client_data: bool = False
    _stage: str = field(default="start", repr=False)
    _columns: int = field(default=0, repr=False)

    def feed(self, packet: Packet) -> None:
        """Take the next packet of the answer."""
        first = packet.payload[0] if packet.payload else OK
        if self.command != QUERY and self.command not in ONE_PACKET_ANSWERS:
            return
        if first == ERR:
            code = int.from_bytes(packet.payload[1:3], "little")
            if code != PROGRESS_ERROR:
                self.error, self.done = code, True
        elif self.command != QUERY:
            self.done = True
        elif self._stage == "start":
            self._start(packet.payload, first)
        elif self._stage == "columns":
            self._columns -= 1
            if self._columns == 0:
                self._stage = self._after_columns()
        elif self._stage == "end of columns":
            self._stage = "rows"
        elif first == EOF and packet.size < (PART_MAX if self._modern else 9):
            self._end(packet.payload, is_ok_packet=self._modern)

    @property
    def _modern(self) -> bool:
        return bool(self.capabilities & DEPRECATE_EOF)

    def _after_columns(self) -> str:
        return "rows" if self._modern else "end of columns"

    def _start(self, payload: bytes, first: int) -> None:
        self.wants_client_data = first == LOCAL_INFILE
        if first == OK:
            self._end(payload, is_ok_packet=True)
        elif first != LOCAL_INFILE:
            self._columns, at = read_length(payload, 0)
            definitions_follow = payload[at : at + 1] != b"\x00"
            self._stage = "columns" if definitions_follow else self._after_columns()

    def _end(self, payload: bytes, *, is_ok_packet: bool) -> None:
        at = 3
        if is_ok_packet:
            _, at = read_length(payload, 1)
            _, at = read_length(payload, at)
        self.status = int.from_bytes(payload[at : at + 2], "little")
        self._stage = "start"
        self.done = not self.status & MORE_RESULTS


_COMMIT = re.compile(r"(?:^|;)\s*COMMIT\b[\w\s]*;?\s*$", re.IGNORECASE)
_BEGIN = re.compile(r"\s*(?:BEGIN|START\s+TRANSACTION)\b", re.IGNORECASE)
_ROLLBACK = re.compile(r"\s*ROLLBACK\s*(?:WORK\s*)?;?\s*$", re.IGNORECASE)
_SAVEPOINT = re.compile(r"\s*SAVEPOINT\s+`?(\w+)`?", re.IGNORECASE)
_ROLLBACK_TO = re.compile(r"\s*ROLLBACK\s+TO\s+(?:SAVEPOINT\s+)?`?(\w+)`?", re.IGNORECASE)
_COMMENTS = re.compile(r"\A(?:\s*/\*.*?\*/)+", re.DOTALL)


def statement_text(payload: bytes) -> str:
    """A COM_QUERY's text; of a very long one the first and the last 256 KiB."""
    text = payload[1:]
    if len(text) > 2 * STATEMENT_BYTES_MAX:
        text = text[:STATEMENT_BYTES_MAX] + b" ... " + text[-STATEMENT_BYTES_MAX:]
    return _COMMENTS.sub("", text.decode("utf-8", "backslashreplace"))


def is_commit(text: str) -> bool:
    """COMMIT alone, or as the last of several statements sent together."""
    return _COMMIT.search(text, max(0, len(text) - 100)) is not None


class Transaction:
    """The statements of a connection's open transaction, as far as they still count."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.in_transaction = False

    def sent(self, text: str) -> None:
        """A statement goes to the server. ROLLBACK TO forgets what came after its savepoint."""
        if back := _ROLLBACK_TO.match(text):
            self._forget_since(back.group(1))
        elif _BEGIN.match(text) and not is_commit(text):
            self.statements = []
        elif text.strip().upper() != "COMMIT":
            self.statements.append(text)

    def answered(self, text: str, response: Response) -> None:
        """Its answer came: a statement that failed, a transaction that ended are forgotten."""
        if response.error and text in self.statements:
            self.statements.reverse()
            self.statements.remove(text)
            self.statements.reverse()
        ended = is_commit(text) or _ROLLBACK.match(text) is not None
        if response.status is not None:
            self.in_transaction = bool(response.status & IN_TRANSACTION)
            ended = ended or (not self.in_transaction and bool(response.status & AUTOCOMMIT))
        if response.error == DEADLOCK or (ended and not response.error):
            self.statements = []

    def _forget_since(self, name: str) -> None:
        for at in range(len(self.statements) - 1, -1, -1):
            found = _SAVEPOINT.match(self.statements[at])
            if found and found.group(1) == name:
                del self.statements[at + 1 :]
                return
