"""Streams: reading a provider's events as they pass, hiding the usage chunk that only we asked for.

Pure and incremental. Neither class changes a byte it passes on; both give the same result for any
chunking of the same bytes, and hold at most one unfinished event (A10).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel.usage.json_text import dump, members
from kernel.usage.metering import (
    Envelope,
    Metering,
    error_text,
    no_usage,
    open_envelope,
    read_usage_text,
)
from kernel.usage.sse import BOM, EventSplitter, parse_event, split_events

# What can matter in an event; a plain search for a word comes before each pattern (see _matters).
_USAGE = re.compile(rb'"usage(?:Metadata)?"\s*+:\s*+(?!null)')
_FINISH = re.compile(rb'eason"\s*+:\s*+(?!null)')  # finish_reason, finishReason, stop_reason
_ERROR = re.compile(rb'"error"(?!\s*+:\s*+null)|event: ?error')
_TYPES = re.compile(  # of the other dialects; their many small delta events do not matter
    rb'"type"\s*+:\s*+"(?:message_|response\.(?!output|reasoning|content|function|refusal))'
)
_NO_CHOICES = re.compile(rb'"choices"\s*+:\s*+\[\s*+\]')
_ENDS = {  # `type` of an event -> whether it reports a failure
    "message_stop": False,
    "response.completed": False,
    "response.incomplete": False,  # cut by a limit or a filter: a whole answer with its usage
    "response.failed": True,
    "response.cancelled": True,
}
_OUTPUT_FIELDS = ("completion_tokens", "output_tokens", "candidatesTokenCount")


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """What a whole stream came to.

    terminal: the answer was seen to end (finish reason of every choice, [DONE], message_stop,
    response.completed, .incomplete or .failed), whatever the connection did afterwards.
    error: the text of an error the provider reported in the stream, else None.
    metering: chargeable unless it has a reason; a report that is not the last word has one.
    """

    terminal: bool
    error: str | None
    metering: Metering
    provider_request_id: str
    model: str


class StreamReader:
    """Follows a provider's event stream: usage, end, error, id and model.

    The last usage that is not null wins; reports are never summed. In the Messages dialect the last
    one wins field by field, because its events report only what changed. `choices` is the number of
    answers asked for (`n`): the stream has ended when each has a finish reason.
    """

    def __init__(self, *, choices: int = 1) -> None:
        self._splitter = EventSplitter()
        self._choices = max(1, choices)
        self._finished_choices: set[int] = set()
        self._first = True
        self._named = False
        self._ended = False
        self._error: str | None = None
        self._provider_request_id = ""
        self._model = ""
        self._service_tier: object = None
        self._usage_text: str | None = None
        self._usage_fields: dict[str, str] = {}
        self._usage_is_last = False
        self._usage_repeated = False
        self._largest_output = 0
        self._lost_usage = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes. Never raises."""
        for piece in self._splitter.push(chunk):
            if piece.whole and (not self._named or _matters(piece.data)):
                for event in split_events(piece.data):
                    self._take(event)
            elif not piece.whole:
                self._lost_usage = True

    def finish(self) -> StreamSummary:
        """The stream is over, well or badly."""
        rest = self._splitter.rest()
        if rest:
            self._take(rest, cut=True)
        return StreamSummary(
            terminal=self._terminal,
            error=self._error,
            metering=self._metering(),
            provider_request_id=self._provider_request_id,
            model=self._model,
        )

    @property
    def _terminal(self) -> bool:
        return self._ended or len(self._finished_choices) >= self._choices

    def _take(self, event: bytes, *, cut: bool = False) -> None:
        if self._first:
            self._first = False
            event = event.removeprefix(BOM)
        if self._named and not _matters(event):
            return
        name, data = parse_event(event)
        if data.strip() == b"[DONE]":
            self._ended = True
            return
        if not data:
            return
        try:
            found = open_envelope(data.decode("utf-8", "replace"))
        except ValueError:
            # A cut last event is no loss of ours: nothing final was seen in it.
            self._lost_usage |= not cut and b'"usage' in data
            if name == "error":
                self._error = self._error or error_text(data.decode("utf-8", "replace"))
            return
        self._read(name, found)

    def _read(self, name: str, found: Envelope) -> None:
        self._named = True
        self._provider_request_id = found.provider_request_id or self._provider_request_id
        self._model = found.model or self._model
        if found.service_tier is not None:
            self._service_tier = found.service_tier
        kind = found.fields.get("type")
        self._read_end(kind, found)
        if found.error or name == "error" or kind == "error":
            self._error = found.error or error_text(found.fields)
        elif type(kind) is str and _ENDS.get(kind):
            self._error = self._error or kind
        if found.usage_text is not None:
            self._read_usage(kind, found)

    def _read_end(self, kind: object, found: Envelope) -> None:
        if type(kind) is str and kind in _ENDS:
            self._ended = True
        delta = found.fields.get("delta")
        if kind == "message_delta" and type(delta) is dict and delta.get("stop_reason"):
            self._finished_choices.add(0)
        for key, field in (("choices", "finish_reason"), ("candidates", "finishReason")):
            for choice in _objects(found.fields.get(key)):
                if choice.get(field):
                    index = choice.get("index", 0)
                    self._finished_choices.add(index if type(index) is int else 0)
                    if choice[field] == "error" and self._error is None:
                        self._error = "finish_reason is error"

    def _read_usage(self, kind: object, found: Envelope) -> None:
        if kind in ("message_start", "message_delta") and type(found.usage) is dict:
            self._usage_repeated |= found.repeated_usage
            self._merge_usage(found.usage_text or "")
        else:
            self._usage_repeated = found.repeated_usage
            self._usage_text, self._usage_fields = found.usage_text, {}
        self._usage_is_last = self._terminal
        self._lost_usage = False
        if type(found.usage) is dict:
            for field in _OUTPUT_FIELDS:
                count = found.usage.get(field)
                if type(count) is int:
                    self._largest_output = max(self._largest_output, count)

    def _merge_usage(self, text: str) -> None:
        changes = members(text)
        self._usage_repeated |= len({member.key for member in changes}) < len(changes)
        for member in changes:
            if member.value is not None or member.key not in self._usage_fields:
                self._usage_fields[member.key] = text[member.start : member.end]
        joined = ",".join(f"{dump(key)}:{value}" for key, value in self._usage_fields.items())
        self._usage_text = "{" + joined + "}"

    def _metering(self) -> Metering:
        if self._usage_text is None:
            if self._lost_usage:
                return no_usage("a part of the stream cannot be read; no usage was seen elsewhere")
            return no_usage("the stream holds no usage")
        found = read_usage_text(self._usage_text, service_tier=self._service_tier)
        if found.reason is not None:
            return found
        if self._usage_repeated:
            return found.refused("invalid_usage", "one event reports the same thing twice")
        if self._lost_usage:
            return found.refused("unreadable_usage", "a later part of the stream cannot be read")
        if found.output_tokens < self._largest_output:
            detail = f"output tokens fell from {self._largest_output} to {found.output_tokens}"
            return found.refused("inconsistent_usage", detail)
        # An error event ends the answer too: what was reported by then is what was used (A7).
        if not (self._usage_is_last or self._ended or self._error):
            return found.refused("partial_usage", "the stream broke off after this report")
        return found


class UsageChunkFilter:
    """Passes a stream on; with `hide`, without the usage-only chunk the client did not ask for.

    That is an event whose `choices` is empty and whose `usage` is not null. Every other byte passes
    unchanged, each whole event at once. The same filter serves live and replayed output.
    """

    def __init__(self, hide: bool) -> None:
        self._splitter = EventSplitter()
        self._pass: Callable[[bytes], bytes] = self._hide if hide else bytes

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, give those that may go on (b'' is possible)."""
        return self._pass(chunk)

    def finish(self) -> bytes:
        """The stream is over: the bytes that were still held, if any."""
        rest = self._splitter.rest()
        return b"" if rest and _is_usage_chunk(rest) else rest

    def _hide(self, chunk: bytes) -> bytes:
        pieces = self._splitter.push(chunk)
        if not any(piece.whole and _NO_CHOICES.search(piece.data) for piece in pieces):
            return b"".join(piece.data for piece in pieces)
        kept: list[bytes] = []
        for piece in pieces:
            events = split_events(piece.data) if piece.whole else (piece.data,)
            kept += (e for e in events if not (piece.whole and _is_usage_chunk(e)))
        return b"".join(kept)


def _matters(events: bytes) -> bool:
    """Whether any of these events may say something about usage, end or error."""
    return (
        (b"eason" in events and _FINISH.search(events) is not None)
        or (b'"usage' in events and _USAGE.search(events) is not None)
        or (b'"type"' in events and _TYPES.search(events) is not None)
        or (b"error" in events and _ERROR.search(events) is not None)
        or b"[DONE]" in events
    )


def _is_usage_chunk(event: bytes) -> bool:
    if not _NO_CHOICES.search(event):
        return False
    _, data = parse_event(event.removeprefix(BOM))
    try:
        fields = {m.key: m.value for m in members(data.decode("utf-8", "replace"))}
    except ValueError:
        return False
    return (
        fields.get("choices") == [] and fields.get("usage") is not None and not fields.get("error")
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if type(item) is dict] if type(value) is list else []
