"""Tools, routes and jobs that the tests of this folder start from."""

from typing import Any

from kernel import jobs
from kernel.models import Route, Tool
from kernel.state import DatabaseStore, JobRecord
from tests.support.product import OPERATOR

STORE = DatabaseStore()
PARAMETERS = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "maxLength": 40},
        "amount": {"type": "integer", "minimum": 1},
        "note": {"type": "string"},
        "fast": {"type": "boolean", "default": False},
    },
    "required": ["order", "amount"],
}
POLICY = {
    "default": "approval",
    "risk": "medium",
    "rules": [
        {"when": {"argument": "amount", "is": "number", "op": "<=", "value": 20}, "then": "auto"}
    ],
}


def make_tool(tool_id: str = "refund", **fields: Any) -> Tool:
    """A tool; `fields` are those of create_tool."""
    values = {
        "url": "https://shop.example/orders/{order}/refunds",
        "parameters": PARAMETERS,
        "policy": POLICY,
        "effect": "Refund {amount} cents of {order}.",
        **fields,
    }
    return jobs.create_tool(tool_id=tool_id, actor=OPERATOR, **values)


def make_route(route_id: str = "refunds", **fields: Any) -> Route:
    """An agent route on the service `gpt`; `fields` are those of create_route."""
    return jobs.create_route(route_id=route_id, actor=OPERATOR, **{"service_id": "gpt", **fields})


def submit(request_id: str = "req-1", **fields: Any) -> tuple[JobRecord, bool]:
    """Submit a job of `acme` on `refunds`."""
    values = {
        "account_id": "acme",
        "route_id": "refunds",
        "input": {"prompt": "refund order DE-1"},
        "actor": OPERATOR,
        **fields,
    }
    return jobs.submit_job(store=STORE, request_id=request_id, **values)
