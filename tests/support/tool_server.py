"""A business service as an independent process: it writes each call down before it answers.

The same process as the test provider (tests/support/provider.py): one fsynced JSON line per call,
behaviours such as `raw`, `status_503`, `hang`. What it answers without a word from a test is
`{"ok": true}`. The file of calls is the truth about physical tool calls.
"""

import json
from typing import Any

from tests.support.provider import ProviderCall, ProviderProcess

ANSWER = json.dumps({"ok": True})


class ToolServer(ProviderProcess):
    """Starts, steers and reads the business service."""

    def start(self) -> "ToolServer":
        super().start()
        self.default("raw", body=ANSWER)
        return self

    def __enter__(self) -> "ToolServer":
        return self.start()

    def reset(self) -> None:
        super().reset()
        self.default("raw", body=ANSWER)

    def answers(self, value: Any, *, status: int = 200, **params: Any) -> None:
        """The next call gets this JSON value."""
        self.next("raw", body=json.dumps(value), status=status, **params)

    def keys(self, path: str = "") -> list[str]:
        """The idempotency keys of the calls (of one path), in order."""
        return [call.headers["idempotency-key"] for call in self.sent(path)]

    def sent(self, path: str = "") -> list[ProviderCall]:
        """The calls (of one path), in order, from the file."""
        return [call for call in self.calls() if path in ("", call.path)]
