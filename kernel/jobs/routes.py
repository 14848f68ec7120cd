"""Routes: kinds of jobs - who runs them, with which tools, within which limits (D2, D4)."""

import json
from collections.abc import Mapping
from typing import Any

from kernel import audit, clock, schema
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.ids import check_id, is_id
from kernel.jobs.fields import (
    check_count,
    check_flag,
    check_known,
    check_long_text,
    check_optional_count,
)
from kernel.models import Route, Service, Tool
from kernel.money import NANO_MAX
from kernel.transactions import insert_new_in_tx, reading, requires_transaction, transaction
from kernel.versions import change_at_version_in_tx

AGENT, EXECUTOR = "agent", "executor"
TARGETS = (AGENT, EXECUTOR)
INSTRUCTIONS_CHARS_MAX = 64_000
TOOLS_COUNT_MAX = 128
STEPS_MAX, TOKENS_MAX = 1000, 10**12
RUN_SECONDS_MAX, APPROVAL_SECONDS_MAX = 7 * 86_400, 90 * 86_400
ROUTES_LISTED_MAX = 1000
DEFAULTS: dict[str, Any] = {
    "target": AGENT,
    "service_id": "",
    "instructions": "",
    "tools": (),
    "steps_max": 20,
    "tokens_max": None,
    "cost_nano_max": None,
    "run_seconds_max": 900,
    "approval_seconds": 86_400,
    "active": True,
}


@transaction
def create_route(*, route_id: str, actor: audit.Actor, **fields: Any) -> Route:
    """Add a route; `fields` are the keys of DEFAULTS. Audited.

    `tools` are ids; `cost_nano_max` is in nano-USD, `tokens_max` counts all tokens of a job, None =
    no limit; `approval_seconds` is how long a question stays open. InvalidInput names a wrong
    field; Conflict when the id is taken; Unavailable without migration 0068.
    """
    schema.require(schema.AGENT_JOBS)
    check_id(route_id, field="route_id")
    values = _checked({**DEFAULTS, **fields})
    if Route.objects.filter(id=route_id).exists():
        raise Conflict(f"a route named {route_id} exists", field="route_id")
    now = clock.db_now()
    row = Route(id=route_id, created_at=now, updated_at=now, **_columns(values))
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor, action="route.create", kind="route", object_id=route_id, after=values
    )
    return row


@transaction
def change_route(
    *, route_id: str, actor: audit.Actor, seen_version: int, reason: str = "", **fields: Any
) -> Route:
    """Change fields of the route at `seen_version`; jobs that run see it at their next step.

    LostRace when somebody changed it meanwhile; InvalidInput; NotFound; Unavailable without 0068.
    """
    schema.require(schema.AGENT_JOBS)
    row = Route.objects.select_for_update().filter(id=route_id).first()
    if row is None:
        raise NotFound(f"no route {route_id}")
    before = plain_fields(row)
    values = _checked({**before, **fields})
    change_at_version_in_tx(row, seen_version, _columns(values))
    audit.append_in_tx(
        actor=actor,
        action="route.change",
        kind="route",
        object_id=route_id,
        before=before,
        after=values,
        reason=reason,
    )
    return row


@reading
def get_route(*, route_id: str) -> Route:
    """One route. NotFound, Unavailable without migration 0068."""
    schema.require(schema.AGENT_JOBS)
    row = Route.objects.filter(id=route_id).first() if is_id(route_id) else None
    if row is None:
        raise NotFound("no such route", code="route_not_found", field="route")
    return row


@reading
def list_routes() -> list[Route]:
    """All routes by id, at most ROUTES_LISTED_MAX. Unavailable without migration 0068."""
    schema.require(schema.AGENT_JOBS)
    return list(Route.objects.order_by("id")[:ROUTES_LISTED_MAX])


def tools_of(route: Route) -> list[str]:
    """The ids of a route's tools, in their order."""
    return list(json.loads(route.tools_text))


@requires_transaction
def may_call_in_tx(*, account_id: str, tool_id: str) -> bool:
    """Whether a tool is on a route in use that jobs of this account may run on (C9, D4).

    What no job of an account could call, no agent of it calls directly.
    """
    rows = Route.objects.filter(active=True, tools_text__contains=f'"{tool_id}"')
    found = [row for row in rows if tool_id in tools_of(row)]  # SQLite's LIKE ignores case
    if any(row.target == EXECUTOR for row in found):
        return True
    services = Service.objects.filter(id__in={row.service_id for row in found}, active=True)
    return services.filter(account_id__in=["", account_id]).exists()


def plain_fields(row: Route) -> dict[str, Any]:
    """A route's fields as the verbs take them."""
    return {name: tools_of(row) if name == "tools" else getattr(row, name) for name in DEFAULTS}


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: value for name, value in values.items() if name != "tools"}
    return {**columns, "tools_text": json.dumps(values["tools"])}


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    check_known(fields, tuple(DEFAULTS), what="route")
    if fields["target"] not in TARGETS:
        raise InvalidInput(f"target is one of {' '.join(TARGETS)}", field="target")
    return {
        "target": fields["target"],
        "service_id": _checked_service(fields["service_id"], target=fields["target"]),
        "instructions": check_long_text(
            fields["instructions"], field="instructions", chars_max=INSTRUCTIONS_CHARS_MAX
        ),
        "tools": _checked_tools(fields["tools"]),
        "steps_max": check_count(fields["steps_max"], field="steps_max", low=1, high=STEPS_MAX),
        "tokens_max": check_optional_count(
            fields["tokens_max"], field="tokens_max", low=1, high=TOKENS_MAX
        ),
        "cost_nano_max": check_optional_count(
            fields["cost_nano_max"], field="cost_nano_max", low=1, high=NANO_MAX
        ),
        "run_seconds_max": check_count(
            fields["run_seconds_max"], field="run_seconds_max", low=1, high=RUN_SECONDS_MAX
        ),
        "approval_seconds": check_count(
            fields["approval_seconds"], field="approval_seconds", low=1, high=APPROVAL_SECONDS_MAX
        ),
        "active": check_flag(fields["active"], field="active"),
    }


def _checked_service(service_id: Any, *, target: str) -> str:
    if target == EXECUTOR:
        if service_id != "":
            raise InvalidInput("an executor route has no service of ours", field="service_id")
        return ""
    if not is_id(service_id) or not Service.objects.filter(id=service_id).exists():
        raise InvalidInput(
            f"no service {str(service_id)[:128]!r}; an agent route needs one", field="service_id"
        )
    return str(service_id)


def _checked_tools(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) > TOOLS_COUNT_MAX:
        raise InvalidInput(f"tools is a list of at most {TOOLS_COUNT_MAX} ids", field="tools")
    ids = [each for each in value if is_id(each)]
    known = set(Tool.objects.filter(id__in=ids).values_list("id", flat=True))
    for each in value:
        if not isinstance(each, str) or each not in known:
            raise InvalidInput(f"no tool {str(each)[:128]!r}", field="tools")
    if len(known) != len(value):
        raise InvalidInput("tools names one tool twice", field="tools")
    return ids
