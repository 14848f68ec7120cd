"""Tools: what an agent may call, where it goes, when a person is asked (D4)."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from kernel import audit, clock, schema
from kernel.approvals.arguments import PLACEHOLDER, canonical
from kernel.approvals.json_schema import check_schema
from kernel.approvals.policy import check_policy
from kernel.conf import SETTINGS
from kernel.errors import AddressRefused, Conflict, InvalidInput, NotFound
from kernel.http import AddressPolicy, check_url
from kernel.http.headers import OURS, TOKEN
from kernel.ids import check_key_name, check_text, is_id
from kernel.jobs.fields import (
    check_count,
    check_flag,
    check_known,
    check_long_text,
    check_optional_count,
)
from kernel.models import Tool
from kernel.transactions import insert_new_in_tx, reading, transaction
from kernel.versions import change_at_version_in_tx

# Model providers take no other names for functions.
TOOL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
URL_CHARS_MAX, EFFECT_CHARS_MAX, DESCRIPTION_CHARS_MAX = 1000, 500, 4000
HEADER_CHARS_MAX = 80
DEADLINE_SECONDS_MAX = 600
CALLS_PER_MINUTE_MAX = 100_000
TOOLS_LISTED_MAX = 1000
# What a placeholder or a policy condition can stand for.
SCALARS = frozenset({"string", "integer", "number", "boolean"})
COMPARABLE = {"number": {"integer", "number"}, "string": {"string"}, "boolean": {"boolean"}}
# Field of the verbs -> column. Fields that are not given at creation hold these values.
COLUMNS = {"parameters": "parameters_text", "policy": "policy_text", "effect": "effect_text"}
DEFAULTS: dict[str, Any] = {
    "description": "",
    "method": "POST",
    "url": "",
    "parameters": {"type": "object"},
    "policy": {"default": "approval", "risk": "high"},
    "effect": "",
    "side_effect": True,
    "idempotency_header": "Idempotency-Key",
    "secret_env": "",
    "secret_header": "Authorization",
    "body_bytes_max": None,
    "deadline_seconds": 30,
    "calls_per_minute_max": None,
    "allow_private": False,
    "active": True,
}


@transaction
def create_tool(*, tool_id: str, actor: audit.Actor, **fields: Any) -> Tool:
    """Add a tool; `fields` are the keys of DEFAULTS, `url` is needed. Audited (D4).

    `parameters` (JSON Schema) and `policy` come as JSON text or plain values. Without a policy
    every call is asked about, at high risk. InvalidInput names a wrong field down to its place;
    Conflict when the id is taken; Unavailable without migration 0068. The secret itself never
    reaches a row: `secret_env` is the name of an environment variable.
    """
    schema.require(schema.AGENT_JOBS)
    check_tool_id(tool_id)
    values = _checked({**DEFAULTS, **fields})
    if Tool.objects.filter(id=tool_id).exists():
        raise Conflict(f"a tool named {tool_id} exists", field="tool_id")
    now = clock.db_now()
    row = Tool(id=tool_id, created_at=now, updated_at=now, **_columns(values))
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor, action="tool.create", kind="tool", object_id=tool_id, after=values
    )
    return row


@transaction
def change_tool(
    *, tool_id: str, actor: audit.Actor, seen_version: int, reason: str = "", **fields: Any
) -> Tool:
    """Change fields of the tool at `seen_version`; every change is a new version (C1, D4).

    Approvals are bound to the version they were asked for. LostRace when somebody changed it
    meanwhile; InvalidInput; NotFound; Unavailable without migration 0068.
    """
    schema.require(schema.AGENT_JOBS)
    row = Tool.objects.select_for_update().filter(id=tool_id).first()
    if row is None:
        raise NotFound(f"no tool {tool_id}")
    before = plain_fields(row)
    values = _checked({**before, **fields})
    change_at_version_in_tx(row, seen_version, _columns(values))
    audit.append_in_tx(
        actor=actor,
        action="tool.change",
        kind="tool",
        object_id=tool_id,
        before=before,
        after=values,
        reason=reason,
    )
    return row


@reading
def get_tool(*, tool_id: str) -> Tool:
    """One tool. NotFound, Unavailable without migration 0068."""
    schema.require(schema.AGENT_JOBS)
    row = Tool.objects.filter(id=tool_id).first() if is_id(tool_id) else None
    if row is None:
        raise NotFound("no such tool", code="tool_not_found", field="tool")
    return row


@reading
def list_tools() -> list[Tool]:
    """All tools by id, at most TOOLS_LISTED_MAX. Unavailable without migration 0068."""
    schema.require(schema.AGENT_JOBS)
    return list(Tool.objects.order_by("id")[:TOOLS_LISTED_MAX])


def plain_fields(row: Tool) -> dict[str, Any]:
    """A tool's fields as the verbs take them; parameters and policy as JSON text."""
    return {name: getattr(row, COLUMNS.get(name, name)) for name in DEFAULTS}


def check_tool_id(value: Any) -> str:
    """A name that every model provider takes for a function, else InvalidInput."""
    if not isinstance(value, str) or not TOOL_ID.match(value):
        raise InvalidInput(
            "a tool's id is 1-64 of A-Z a-z 0-9 _ -: it is the function's name for the model",
            field="tool_id",
        )
    return value


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    return {COLUMNS.get(name, name): value for name, value in values.items()}


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    check_known(fields, tuple(DEFAULTS), what="tool")
    if fields["method"] not in METHODS:
        raise InvalidInput(f"method is one of {' '.join(METHODS)}", field="method")
    flags = {
        name: check_flag(fields[name], field=name)
        for name in ("side_effect", "allow_private", "active")
    }
    parameters = _canonical(fields["parameters"], field="parameters")
    described = json.loads(parameters, parse_float=Decimal)
    check_schema(described)
    policy = check_policy(fields["policy"])
    _check_conditions(json.loads(policy), described)
    effect = fields["effect"]
    if effect != "":
        effect = check_text(effect, field="effect", chars_max=EFFECT_CHARS_MAX)
        _check_placeholders(effect, described, field="effect", always_there=False)
    return {
        "description": check_long_text(
            fields["description"], field="description", chars_max=DESCRIPTION_CHARS_MAX
        ),
        "method": fields["method"],
        "url": _checked_url(fields["url"], described, allow_private=flags["allow_private"]),
        "parameters": parameters,
        "policy": policy,
        "effect": effect,
        **flags,
        **_checked_headers(fields, side_effect=flags["side_effect"]),
        "body_bytes_max": check_optional_count(
            fields["body_bytes_max"],
            field="body_bytes_max",
            low=1,
            high=int(SETTINGS["tool_body_bytes_max"].high),
        ),
        "deadline_seconds": check_count(
            fields["deadline_seconds"], field="deadline_seconds", low=1, high=DEADLINE_SECONDS_MAX
        ),
        "calls_per_minute_max": check_optional_count(
            fields["calls_per_minute_max"],
            field="calls_per_minute_max",
            low=1,
            high=CALLS_PER_MINUTE_MAX,
        ),
    }


def _canonical(value: Any, *, field: str) -> str:
    try:
        return canonical(value).text
    except InvalidInput as error:
        message = error.message.replace("arguments", field, 1)
        raise InvalidInput(message, field=field) from None


def _checked_url(url: Any, described: Mapping[str, Any], *, allow_private: bool) -> str:
    """An address whose placeholders stand in path or query, and always have a value."""
    if not isinstance(url, str) or not 1 <= len(url) <= URL_CHARS_MAX:
        raise InvalidInput(f"url has 1-{URL_CHARS_MAX} characters", field="url")
    host = re.split(r"[/?#\\]", url.partition("://")[2], maxsplit=1)[0]
    if PLACEHOLDER.search(url.partition("://")[0] + host):
        # An argument must never choose who is called.
        raise InvalidInput("url takes no {name} in its scheme or host", field="url")
    _check_placeholders(url, described, field="url", always_there=True)
    if "#" in url:
        raise InvalidInput("url has no #", field="url")
    try:
        check_url(PLACEHOLDER.sub("x", url), AddressPolicy(allow_private=allow_private))
    except AddressRefused as error:
        raise InvalidInput(
            f"url: {error.message}",
            field="url",
        ) from error
    return url


def _check_placeholders(
    text: str, described: Mapping[str, Any], *, field: str, always_there: bool
) -> None:
    """Every {name} is an argument; with `always_there` a plain one that no call can lack."""
    properties = described.get("properties", {})
    if "{" in PLACEHOLDER.sub("", text) or "}" in PLACEHOLDER.sub("", text):
        raise InvalidInput(f"{field} has a brace that is no {{name}}", field=field)
    for name in PLACEHOLDER.findall(text):
        if name not in properties:
            raise InvalidInput(f"{field} names {{{name}}}, which is no argument", field=field)
        if not always_there:
            continue
        if properties[name].get("type") not in SCALARS:
            raise InvalidInput(f"{{{name}}} in {field} must be a plain value", field=field)
        if name not in described.get("required", []) and "default" not in properties[name]:
            raise InvalidInput(
                f"{{{name}}} in {field} must be required or have a default", field=field
            )


def _check_conditions(policy: Mapping[str, Any], described: Mapping[str, Any]) -> None:
    """A condition on what no call can hold would forbid every call: refused at once."""
    for index, rule in enumerate(policy.get("rules", [])):
        when, field = rule["when"], f"policy.rules[{index}].when"
        part: Any = described
        for step in when["argument"].split("."):
            known = part.get("properties", {})
            if step not in known and part.get("additionalProperties"):
                part = None
                break
            if step not in known:
                name = f"{when['argument']} is no argument of this tool"
                raise InvalidInput(f"{field}.argument: {name}", field=f"{field}.argument")
            part = known[step]
        if part and "type" in part and part["type"] not in COMPARABLE[when["is"]]:
            message = f"{when['argument']} is of the type {part['type']}, never a {when['is']}"
            raise InvalidInput(f"{field}.is: {message}", field=f"{field}.is")


def _checked_headers(fields: Mapping[str, Any], *, side_effect: bool) -> dict[str, str]:
    """Names of the headers we add, and of the variable that holds the tool's key."""
    for name in ("idempotency_header", "secret_header"):
        value = fields[name]
        if value == "" and name == "idempotency_header" and not side_effect:
            continue
        if (
            not isinstance(value, str)
            or len(value) > HEADER_CHARS_MAX
            or not TOKEN.fullmatch(value)
            or value.lower() in OURS | {"content-type"}
        ):
            raise InvalidInput(
                f"{name} is the name of a header of at most {HEADER_CHARS_MAX} characters that is"
                " not part of the framing",
                field=name,
            )
    if fields["idempotency_header"].lower() == fields["secret_header"].lower():
        raise InvalidInput("secret_header is the idempotency_header", field="secret_header")
    key = fields["secret_env"]
    if key != "":
        check_key_name(key, field="secret_env")
    return {
        "idempotency_header": fields["idempotency_header"],
        "secret_env": key,
        "secret_header": fields["secret_header"],
    }
