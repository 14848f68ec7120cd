"""From a caller's bytes to a Submission (A1)."""

from kernel.conf import conf
from kernel.errors import InvalidInput, TooLarge
from kernel.ids import new_id
from kernel.usage.admission import Submission, check_operation_id, content_sha256
from kernel.usage.json_text import has_more_values
from kernel.usage.request_body import read_request


def submission(*, account_id: str, operation_id: object, path: str, raw: bytes) -> Submission:
    """Read an OpenAI-style chat completion body.

    InvalidInput names the field; TooLarge over budget.

    A body of too many JSON values is refused before it is decoded.
    Fields we do not act on pass to the provider as they are.
    """
    checked_id = check_operation_id(operation_id)
    if len(raw) > conf.request_body_bytes_max:
        raise TooLarge(f"a request body has at most {conf.request_body_bytes_max} bytes")
    check_values(raw)
    request = read_request(raw)
    messages = request.fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidInput("messages must be a list with at least one message", field="messages")
    return Submission(
        account_id=account_id,
        operation_id=checked_id,
        service_id=request.model,
        path=path,
        body=raw,
        content_sha256=content_sha256(account_id=account_id, path=path, body=raw),
        streamed=request.stream,
        hide_usage=request.stream and not request.wants_usage,
        max_output_tokens=request.max_output_tokens,
        choices=request.choices,
        service_tier=request.service_tier,
        request_id=new_id("req"),
    )


def check_values(raw: bytes) -> None:
    """InvalidInput when a body has too many JSON values (`request_values_count_max`).

    Decodes nothing.
    """
    most = conf.request_values_count_max
    if has_more_values(raw, most=most):
        raise InvalidInput(
            f"a request body has at most {most} JSON values",
            field="body",
            code="body_too_complex",
            next_action="Send fewer values, or text instead of lists of numbers.",
        )
