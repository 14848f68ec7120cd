"""Errors of the JSON door: one shape, stable codes, the way out, the id of the HTTP request."""

import logging
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja.errors import HttpError, ValidationError

from kernel.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    KernelError,
    NotFound,
    TooLarge,
    Unavailable,
    WrongMethod,
)
from kernel.ids import new_id

log = logging.getLogger(__name__)

HTTP_REQUEST_ID = "X-Request-Id"


def error_body(
    *,
    code: str,
    message: str,
    retryable: bool = False,
    next_action: str = "",
    http_request_id: str = "",
    **details: Any,
) -> dict[str, Any]:
    """`{"error": {...}}` as every refusal of the API answers."""
    return {
        "error": {
            "code": code,
            "message": message,
            "retryable": retryable,
            "next_action": next_action,
            "http_request_id": http_request_id,
            **details,
        }
    }


WAYS_OUT: dict[type[KernelError], str] = {
    InvalidInput: "Correct the field that is named, and send the call again.",
    NotFound: "Check the name or id: for this account nothing of that name is there.",
    TooLarge: "Send less: the message names the limit.",
    Forbidden: "Ask an operator: this account or token may not do it.",
    Conflict: "Read the object again, then decide.",
    Unavailable: "Repeat the same call later.",
    KernelError: "Read the object before you decide to repeat the call.",
}


def http_request_id(request: HttpRequest) -> str:
    """The id of this HTTP exchange; made once per request."""
    found = getattr(request, "http_request_id", "")
    if not found:
        found = new_id("http")
        request.http_request_id = found  # type: ignore[attr-defined]  # lives with the request
    return found


def peer(request: HttpRequest) -> str:
    """The caller's address, as far as trusted proxies say the truth (console/proxies.py)."""
    return str(request.META.get("REMOTE_ADDR", ""))


def render_error(
    request: HttpRequest, error: KernelError, *, headers: dict[str, str] | None = None
) -> HttpResponse:
    """The HTTP answer of a KernelError. Client libraries may repeat retryable ones only."""
    response = JsonResponse(
        error_body(
            code=error.error_code,
            message=error.message,
            retryable=error.retryable,
            next_action=error.way_out or _way_out(error),
            http_request_id=http_request_id(request),
            **_plain(error.details),
        ),
        status=error.status,
    )
    response._has_been_logged = True  # type: ignore[attr-defined]  # not Django's to log again
    response[HTTP_REQUEST_ID] = http_request_id(request)
    if error.retryable:
        response["Retry-After"] = "1"
    else:
        response["x-should-retry"] = "false"
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    for name, value in (headers or {}).items():
        response[name] = value
    return response


def _way_out(error: KernelError) -> str:
    """The way out of a refusal that names none itself."""
    return next(text for kind, text in WAYS_OUT.items() if isinstance(error, kind))


def on_kernel_error(request: HttpRequest, error: KernelError) -> HttpResponse:
    """Handler of every refusal raised on purpose."""
    return render_error(request, error)


def on_validation_error(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """422 that names each wrong or unknown field."""
    problems = []
    for problem in error.errors:
        path = [str(part) for part in problem.get("loc", ()) if part not in ("body", "payload")]
        problems.append({"field": ".".join(path) or "body", "problem": str(problem.get("msg", ""))})
    first = problems[0] if problems else {"field": "body", "problem": "invalid"}
    return render_error(
        request,
        InvalidInput(
            f"{first['field']}: {first['problem']}", field=first["field"], problems=problems
        ),
    )


def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """Errors of the framework itself, such as a body that is not JSON."""
    if isinstance(error.__cause__, KernelError):
        return render_error(request, error.__cause__)
    wrong = InvalidInput("the body is not valid JSON", field="body")
    return render_error(request, wrong)


def on_database_error(request: HttpRequest, error: Exception) -> HttpResponse:
    """The database is away or refused: nothing is half done; the same call may be repeated."""
    log.error("database error %s", http_request_id(request), exc_info=error)
    return render_error(request, Unavailable("The database did not answer."))


def on_any_error(request: HttpRequest, error: Exception) -> HttpResponse:
    """A defect of ours: logged with its id, no trace to the caller."""
    log.error("unexpected error %s", http_request_id(request), exc_info=error)
    return render_error(
        request,
        KernelError(
            "Something went wrong on our side.",
            next_action="Read the operation before you decide to repeat it.",
        ),
    )


def on_wrong_method(request: HttpRequest, *, allowed: str) -> HttpResponse:
    """405 that names the methods of the address."""
    error = WrongMethod(f"{request.method} is not answered here.", next_action=f"Use {allowed}.")
    return render_error(request, error, headers={"Allow": allowed})


def on_unknown_address(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 of an address the API does not have."""
    return render_error(
        request,
        NotFound(
            "There is nothing at this address.",
            code="unknown_address",
            next_action="GET /v1/openapi.json lists what there is.",
        ),
    )


def on_server_error(request: HttpRequest) -> HttpResponse:
    """500 outside the API's own handlers; Django has logged the trace."""
    return render_error(request, KernelError("Something went wrong on our side."))


DATABASE_ERRORS = (DatabaseError, InterfaceError)


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, str | int | bool | list | dict | None) else str(value)
        for key, value in details.items()
    }
