"""The demo service and its price, so that the first request works without any API key."""

from collections.abc import Mapping

from kernel.audit import Actor
from kernel.demo.launcher import MODEL
from kernel.errors import NotFound
from kernel.models import Service
from kernel.transactions import reading
from kernel.usage.catalog import add_price, add_service, change_service, get_service

SERVICE = "demo"
PROVIDER = "demo"
PORT = 18901
OUTPUT_TOKENS_MAX = 1024
# In USD per million tokens; made up, as the provider is.
RATES = {"input": "0.50", "output": "1.50"}
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


@reading
def _has_demo_service() -> bool:
    return Service.objects.filter(id=SERVICE, active=True).exists()


@reading
def _has_services() -> bool:
    return Service.objects.exists()
