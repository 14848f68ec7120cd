"""The conversation of one job: the same saved facts give the same bytes (D2). Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kernel.conf import conf
from kernel.http import View, view_utf8
from kernel.models import Tool, ToolCall
from kernel.states import CallState

CALL_ID_CHARS_MAX = 200
NAME_CHARS_MAX = 128


class Unreadable(ValueError):
    """The model's saved answer is not what the protocol allows; the text says where."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One tool call as the model wrote it; nothing of it is trusted yet."""

    call_id: str
    name: str
    arguments_text: str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """choices[0].message: a final text, or the tool calls it asks for (then text may be None)."""

    content: str | None
    calls: tuple[ModelCall, ...]


def read_answer(body: bytes) -> ModelAnswer:
    """The one message of a saved model result. Unreadable when the protocol is broken."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable("the answer is not JSON") from None
    message = _message(value)
    content = message.get("content")
    if content is not None and type(content) is not str:
        raise Unreadable("message.content is neither text nor null")
    asked = message.get("tool_calls")
    if asked is not None and type(asked) is not list:
        raise Unreadable("message.tool_calls is not a list")
    calls = tuple(_call(one) for one in asked or ())
    if len({call.call_id for call in calls}) != len(calls):
        raise Unreadable("two tool calls have the same id")
    if len(calls) > conf.step_calls_count_max:
        raise Unreadable(f"more than {conf.step_calls_count_max} tool calls in one step")
    if content is None and not calls:
        raise Unreadable("the answer has neither content nor tool calls")
    return ModelAnswer(None if content is None else _clean(content), calls)


def _message(value: Any) -> dict[str, Any]:
    choices = value.get("choices") if type(value) is dict else None
    if type(choices) is not list or not choices or type(choices[0]) is not dict:
        raise Unreadable("the answer has no choices")
    message = choices[0].get("message")
    if type(message) is not dict or message.get("role", "assistant") != "assistant":
        raise Unreadable("the answer has no message of the assistant")
    return message


def _call(value: Any) -> ModelCall:
    function = value.get("function") if type(value) is dict else None
    if type(function) is not dict or value.get("type", "function") != "function":
        raise Unreadable("a tool call is not a function call")
    call_id, name, text = value.get("id"), function.get("name"), function.get("arguments")
    if type(call_id) is not str or not 1 <= len(call_id) <= CALL_ID_CHARS_MAX:
        raise Unreadable("a tool call has no usable id")
    if type(name) is not str or not 1 <= len(name) <= NAME_CHARS_MAX:
        raise Unreadable("a tool call has no usable name")
    if type(text) is not str:
        raise Unreadable("the arguments of a tool call are not text")
    return ModelCall(_clean(call_id), _clean(name), text)


def first_messages(*, instructions: str, input_text: str) -> list[dict[str, Any]]:
    """The messages before the first step, from the route and the job's input."""
    given = json.loads(input_text)
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if "messages" in given:
        messages += given["messages"]
    else:
        messages.append({"role": "user", "content": given["prompt"]})
    return messages


def step_messages(answer: ModelAnswer, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """What a finished step adds: the model's calls, and what became of each."""
    asked = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": _clean(call.arguments_text)},
        }
        for call in answer.calls
    ]
    told = [
        {"role": "tool", "tool_call_id": call.call_id, "content": told_to_model(call)}
        for call in calls
    ]
    return [{"role": "assistant", "content": answer.content, "tool_calls": asked}, *told]


def told_to_model(call: ToolCall) -> str:
    """What the model learns of an ended call; of a body that was cut, how large it is (E3)."""
    if call.state == CallState.FAILED:
        return _dump({"error": call.error_code or "not_executed", "message": call.note})
    if call.http_status is None:
        return _dump({"outcome": "done", "found_by": "an operator", "note": call.note})
    told: dict[str, Any] = {"status": call.http_status, "body": call.response_text}
    shown = len(call.response_text.encode())
    if call.response_bytes is not None and shown < call.response_bytes:
        told |= {"body_was_cut": True, "shown_bytes": shown, "body_bytes": call.response_bytes}
    return _dump(told)


def audit_view(call: ToolCall) -> View:
    """The body of a call within the budget of audit and console, with its true size (E3)."""
    view = view_utf8(call.response_text, conf.audit_view_bytes_max)
    true_bytes = call.response_bytes if call.response_bytes is not None else view.true_bytes
    return View(view.text, view.shown_bytes, true_bytes, view.cut or view.shown_bytes < true_bytes)


def request_body(
    *, service_id: str, messages: Sequence[dict[str, Any]], tools: Iterable[Tool]
) -> bytes:
    """The body of the next model request."""
    value: dict[str, Any] = {"model": service_id, "messages": list(messages)}
    offered = [
        {
            "type": "function",
            "function": {
                "name": tool.id,
                "description": tool.description,
                "parameters": json.loads(tool.parameters_text),
            },
        }
        for tool in tools
    ]
    if offered:
        value["tools"] = offered
    return _dump(value).encode("utf-8", "replace")


def result_text(answer: ModelAnswer, *, steps: int) -> str:
    """The result of a job that is done: the final text and how many steps it took."""
    return _dump({"content": answer.content or "", "steps": steps})


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _clean(text: str) -> str:
    """Text that every database and provider takes: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
