"""The demo's rows: a service with a price, a tool, a route, and one job that waits for a person.

So the first request works without any API key, and the first look at the console finds a decision.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from kernel.audit import Actor
from kernel.demo.answers import CURRENCIES, TOOL
from kernel.demo.launcher import MODEL
from kernel.errors import Conflict, InvalidInput, NotFound, Unavailable
from kernel.jobs import change_tool, create_route, create_tool, get_route, get_tool, submit_job
from kernel.models import Service
from kernel.state import RuntimeStateStore
from kernel.states import JobState, Waiting
from kernel.transactions import reading
from kernel.usage.catalog import add_price, add_service, change_service, get_service

SERVICE = "demo"
PROVIDER = "demo"
PORT = 18901
OUTPUT_TOKENS_MAX = 1024
# In USD per million tokens; made up, as the provider is.
RATES = {"input": "0.50", "output": "1.50"}
ROUTE = "refunds"
APPROVAL_SECONDS = 7 * 86_400
# The job of the first start: it stops at its refund, which a person decides about.
REQUEST = "demo-refund-1001"
PROMPT = "Refund order 1001: the parcel never arrived. The customer paid 4200 EUR."
INSTRUCTIONS = "You look after orders. Use your tools; say in one sentence what you did."
TOOL_FIELDS = {
    "description": "Refund an order, in whole currency units.",
    "method": "POST",
    "parameters": {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "maxLength": 40},
            "amount": {"type": "number", "minimum": 0.01},
            "currency": {"type": "string", "enum": list(CURRENCIES)},
        },
        "required": ["order_id", "amount", "currency"],
    },
    "policy": {
        "default": "approval",
        "risk": "medium",
        "rules": [
            {
                "when": {"argument": "amount", "is": "number", "op": ">", "value": 100},
                "then": "approval",
                "risk": "high",
            }
        ],
    },
    "effect": "Refund {amount} {currency} for order {order_id}.",
    "allow_private": True,
}
DEMO = Actor("system", "demo")
REAL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")


def wants_demo(environ: Mapping[str, str]) -> bool:
    """Whether this installation runs the demo.

    BAILING_DEMO=1/0 decides, else no key and no service.
    """
    switch = environ.get("BAILING_DEMO", "")
    if switch:
        return switch == "1"
    if _has_demo_service():
        return True
    return not any(environ.get(name) for name in REAL_KEYS) and not _has_services()


def ports(environ: Mapping[str, str]) -> list[int]:
    """Where the demo provider may listen, in this order; 0 is any free port. InvalidInput.

    BAILING_DEMO_PORT and then the port it had last; where it is not set that one first: another one
    would be a new version of its service and its tool, at every start while the usual one is taken.
    """
    is_set = bool(environ.get("BAILING_DEMO_PORT"))
    chosen = round(number(environ, "BAILING_DEMO_PORT", default=PORT, most=65_535))
    if not chosen:
        return [0]
    wanted = [chosen, *_last_port()] if is_set else [*_last_port(), chosen]
    return list(dict.fromkeys([*wanted, 0]))


def _last_port() -> list[int]:
    try:
        parts = urlsplit(get_service(service_id=SERVICE).base_url)
    except NotFound:
        return []
    return [parts.port] if parts.hostname == "127.0.0.1" and parts.port else []


def number(environ: Mapping[str, str], name: str, *, default: float, most: float) -> float:
    """A number of the demo's environment, from 0 to `most`. InvalidInput names its variable."""
    try:
        value = float(environ.get(name) or default)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:  # NaN is out of every bound
        raise InvalidInput(f"{name} must be a number from 0 to {most:g}", field=name)
    return value


def ensure_demo_service(*, provider_url: str) -> None:
    """Add the demo service and its price, or point it at the provider's present address."""
    base_url = f"{provider_url}/v1"
    try:
        row = get_service(service_id=SERVICE)
    except NotFound:
        add_price(
            provider=PROVIDER,
            model=MODEL,
            rates=RATES,
            valid_from_at=None,
            actor=DEMO,
            reason="made-up price of the demo provider",
        )
        add_service(
            service_id=SERVICE,
            actor=DEMO,
            base_url=base_url,
            model=MODEL,
            price_provider=PROVIDER,
            price_model=MODEL,
            max_output_tokens=OUTPUT_TOKENS_MAX,
            allow_private=True,
        )
        return
    if row.base_url != base_url:
        change_service(
            service_id=SERVICE,
            version=row.version,
            actor=DEMO,
            base_url=base_url,
            reason="the demo provider got another port",
        )


def ensure_demo_agent(*, url: str, account_id: str, store: RuntimeStateStore) -> None:
    """Add the demo's tool and route, or point the tool at the present address of its service.

    At the first start one job asks for a refund. Nothing happens while migration 0068 is absent.
    """
    with suppress(Unavailable):
        _ensure_tool(url=f"{url}/refunds")
        try:
            get_route(route_id=ROUTE)
        except NotFound:
            create_route(
                route_id=ROUTE,
                actor=DEMO,
                service_id=SERVICE,
                instructions=INSTRUCTIONS,
                tools=[TOOL],
                approval_seconds=APPROVAL_SECONDS,
            )
        try:
            store.find(account_id=account_id, request_id=REQUEST)
        except NotFound:
            with suppress(Conflict):  # the route is out of use: so is the demo
                submit_job(
                    store=store,
                    account_id=account_id,
                    request_id=REQUEST,
                    route_id=ROUTE,
                    input={"prompt": PROMPT},
                    actor=DEMO,
                )


def asks_about_refund(*, account_id: str, store: RuntimeStateStore) -> bool:
    """Whether the job of the first start waits for a decision, or is on its way there."""
    try:
        job = store.find(account_id=account_id, request_id=REQUEST)
    except (NotFound, Unavailable):
        return False
    waits = job.state == JobState.WAITING and job.waiting_reason == Waiting.APPROVAL
    return waits or job.state in (JobState.QUEUED, JobState.RUNNING)


def _ensure_tool(*, url: str) -> None:
    try:
        row = get_tool(tool_id=TOOL)
    except NotFound:
        create_tool(tool_id=TOOL, actor=DEMO, url=url, **TOOL_FIELDS)
        return
    if row.url != url and row.url.startswith("http://127.0.0.1:"):
        change_tool(
            tool_id=TOOL,
            actor=DEMO,
            seen_version=row.version,
            url=url,
            reason="the demo's business service got another port",
        )


@reading
def _has_demo_service() -> bool:
    return Service.objects.filter(id=SERVICE, active=True).exists()


@reading
def _has_services() -> bool:
    return Service.objects.exists()
