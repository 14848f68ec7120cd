"""A client of the JSON door that never repeats a call: what it got, or that it got nothing."""

import http.client
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.support import lives

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. `lost` names the error when it broke off; then `body` is what came."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    lost: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The stable code of an error answer; '' for any other."""
        return str(self.json["error"]["code"]) if self.status >= 400 else ""

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def request_id(self) -> str:
        return self.headers.get("bailing-request-id", "")

    @property
    def may_be_repeated(self) -> bool:
        """What client libraries honour (A8)."""
        return self.headers.get("x-should-retry") != "false"


OnAnswer = Callable[[str, Answer], None]


class Client:
    """Calls one kernel. Each call is one connection and one attempt."""

    def __init__(self, port: int, token: str, *, on_answer: OnAnswer):
        self._port, self._token, self._on_answer = port, token, on_answer
        self._threads = ThreadPoolExecutor(64, thread_name_prefix="client")

    def post(self, operation_id: str, **fields: Any) -> Answer:
        """POST /v1/chat/completions under an operation id."""
        answer = self.call("POST", lives.PATH, lives.body(operation_id, **fields), operation_id)
        self._on_answer(operation_id, answer)
        return answer

    def post_later(self, operation_id: str, **fields: Any) -> "Future[Answer]":
        """The same from a thread of its own."""
        return self._threads.submit(self.post, operation_id, **fields)

    def act(self, operation_id: str, act: str) -> Answer:
        """POST /usage/v1/requests/{operation_id}/{dispatch or cancel}."""
        return self.call("POST", f"/usage/v1/requests/{operation_id}/{act}", b"{}")

    def look(self, operation_id: str) -> Any:
        """The status document."""
        return self.call("GET", f"/usage/v1/requests/{operation_id}").json

    def result(self, operation_id: str) -> Answer:
        """The saved bytes."""
        return self.call("GET", f"/usage/v1/requests/{operation_id}/result")

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        operation_id: str = "",
        *,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request; an Answer in any case. `headers` in place of the token's."""
        headers = headers or {"Authorization": f"Bearer {self._token}"}
        headers = {**headers, "Content-Type": "application/json"}
        if operation_id:
            headers["Idempotency-Key"] = operation_id
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            try:
                return Answer(response.status, names, response.read())
            except (http.client.HTTPException, OSError) as error:
                got = error.partial if isinstance(error, http.client.IncompleteRead) else b""
                return Answer(response.status, names, got, lost=type(error).__name__)
        except (http.client.HTTPException, OSError) as error:
            return Answer(lost=type(error).__name__)
        finally:
            connection.close()
