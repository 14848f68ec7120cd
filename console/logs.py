"""Log lines: one JSON object each, escaped and bounded, with the request id, without our secrets.

No text can forge a second line: control characters, line separators and all else outside ASCII are
escaped. Known secrets of the installation are replaced on the way out. That is the net, not the
rule: the rule is that nobody writes one (docs/security.md).
"""

import json
import logging
import os
import re
import traceback
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from structlog.stdlib import ProcessorFormatter

from kernel.conf import conf

Line = MutableMapping[str, Any]

# Words in the name of an environment variable that say: its value is a secret.
SECRET_WORDS = frozenset({"KEY", "TOKEN", "SECRET", "PASSWORD", "SIGNING", "CREDENTIALS"})
SECRET_CHARS_MIN = 8  # a shorter one would take half of every line away
CUT = "[cut]"


def secrets_of(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Secret -> what stands for it: values of variables with telling names, passwords in URLs."""
    found: dict[str, str] = {}
    for name, value in environ.items():
        if SECRET_WORDS & set(name.upper().split("_")):
            listed = value.split(",") if name.endswith("_FALLBACKS") else ()  # each is a secret
            found |= dict.fromkeys((value, *listed), name)
        elif "://" in value:
            found |= dict.fromkeys(_passwords_of(value), name)
    return {value: f"[{name}]" for value, name in found.items() if len(value) >= SECRET_CHARS_MIN}


def _passwords_of(url: str) -> set[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return set()
    return {password, unquote(password)}


class LineFormatter(ProcessorFormatter):
    """`{"at", "level", "logger", "event", "request_id", "traceback"}` as one line.

    Each value has at most `log_value_bytes_max` bytes. A record that cannot be formatted is
    one line too: Python's own complaint about it would be many, unescaped.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._secrets = secrets_of(environ)
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        super().__init__(
            foreign_pre_chain=[structlog.contextvars.merge_contextvars, _described],
            processors=[
                ProcessorFormatter.remove_processors_meta,
                self._bounded,
                structlog.processors.JSONRenderer(serializer=json.dumps, default=str),
            ],
        )

    def format(self, record: logging.LogRecord) -> str:
        try:
            return super().format(record)
        except Exception as error:
            kind = type(error).__name__
            line = {"level": "ERROR", "logger": record.name, "event": f"a log line failed: {kind}"}
            return json.dumps(line)

    def _bounded(self, _logger: Any, _name: str, line: Line) -> Line:
        return {str(key): self._plain(value) for key, value in line.items()}

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        text = self._pattern.sub(lambda match: self._secrets[match[0]], str(value))
        most = conf.log_value_bytes_max
        raw = text.encode("utf-8", "surrogatepass")
        return text if len(raw) <= most else raw[:most].decode("utf-8", "ignore") + CUT


def _described(_logger: Any, _name: str, line: Line) -> Line:
    """What is always there, in this order; then what the context adds."""
    record: logging.LogRecord = line["_record"]
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    head = {"at": at, "level": record.levelname, "logger": record.name}
    described: dict[str, Any] = {**head, "event": line.pop("event"), **line}
    described.pop("exc_info", None)
    if record.exc_info and record.exc_info[0] is not None:
        described["traceback"] = "".join(traceback.format_exception(*record.exc_info))
    return described
