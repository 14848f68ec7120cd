"""Django's handler for the API alone: no middleware, no signals, no thread per request."""

from typing import Any

from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.exception import convert_exception_to_response
from structlog.contextvars import bound_contextvars

from kernel import clock
from kernel.api import door
from kernel.api.errors import http_request_id, on_wrong_method
from kernel.metrics import count_answer

PROBES = frozenset({"/livez", "/readyz", "/metrics"})


class ApiHandler(ASGIHandler):
    """The views of `API_URLCONF`, straight from the event loop.

    Ten middlewares cost 3 ms a request. Django's own entry also starts a thread for each request,
    to close database connections in it; the API's views own none: verbs run on the kernel's
    threads. A client that leaves is not listened for: its generation goes on, and its answer goes
    nowhere.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain = convert_exception_to_response(
            self._get_response_async  # type: ignore[attr-defined]  # absent from the stubs
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with body:
            request, refusal = self.create_request(scope, body)
            response: Any = refusal if request is None else await self.get_response_async(request)
        await self.send_response(response, send)

    async def get_response_async(self, request: Any) -> Any:
        began = clock.monotonic()
        with bound_contextvars(request_id=http_request_id(request)):
            response = await self._answer(request)
        if request.path_info not in PROBES:
            count_answer(status=response.status_code, seconds=clock.monotonic() - began)
        return response

    async def _answer(self, request: Any) -> Any:
        if request.method == "POST" and request.path_info == door.CHAT_PATH:
            response: Any = await self._chat(request)
        else:
            response = await self._routed(request)
        if not response.streaming and not response.has_header("Content-Length"):
            response["Content-Length"] = str(len(response.content))
        return response

    async def _routed(self, request: Any) -> Any:
        request.urlconf = settings.API_URLCONF
        response: Any = await super().get_response_async(request)
        if response.status_code == 405:
            response = on_wrong_method(request, allowed=response["Allow"])
        return response

    async def _chat(self, request: Any) -> Any:
        """The one hot address without routing: the same token check, view and error handlers.

        Resolving it and ninja's own steps around the view cost 0.3 ms a request.
        """
        try:
            request.auth = await door.bearer(request)
            return await door.chat_completions(request)
        except Exception as error:
            return door.api.on_exception(request, error)
