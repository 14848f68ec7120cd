"""Rows for looking at the console: a busy day, hostile texts; made by the product's own verbs.

python manage.py shell -c "from tests.support import console_data as d; d.busy_day(); d.hostile()"

Only times are moved afterwards, so that a day lies behind the rows, as it would in production.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from kernel import access, audit, clock, usage
from kernel.invariants import check_all, store_reports
from kernel.models import AuditRow, LedgerRow, Request
from kernel.money import usd_to_nano
from kernel.runtime.maintenance import record_status
from kernel.usage import outcomes
from kernel.usage.dispatch import Fence
from kernel.usage.outcomes import Answered
from tests.support import lives

OLGA = audit.Actor("user", "olga")
OWNER = "krn_019a3b5fe2c4a0f1d2e3b4c5d6e7f8a9"
SETTLED_ROWS = 60
TIMES = ("admitted_at", "dispatched_at", "result_at", "settled_at", "resolved_at", "updated_at")

LONG = "a-very-long-identifier-that-nobody-would-type-but-some-machine-did" + "-0123456789" * 5
BIDI = "open photo\u202egnp.exe\u2066 now\u2069"
ZERO_WIDTH = "rm -rf /tmp\u200b/cache\u2060"
RIGHT_TO_LEFT = "שלום עולם مرحبا rm -rf"
MARKUP = "<script>alert('x')</script> {{ 7|add:7 }} \"quoted\" <b>bold</b> =cmd()"
LOOKALIKE = "log in at pаypаl.com"
UNBROKEN = "W" * 120
ZALGO = "Z" + "\u0351\u036b\u0343\u036a\u0302\u036b\u033d" * 3 + "algo"
HOSTILE = (BIDI, ZERO_WIDTH, RIGHT_TO_LEFT, MARKUP, LOOKALIKE, UNBROKEN, ZALGO)
WORD = "word " * 2_000  # 10 kB


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider of a made request says."""

    text: str = "The parcel left the depot at 09:12."
    usage: dict[str, Any] | None = None
    status: int = 200
    provider_id: str = "chatcmpl-9f2c41"


def dispatched(operation_id: str, **fields: Any) -> Fence:
    """A request on its way, owned by a kernel of another process."""
    return lives.dispatch(lives.admitted(operation_id, **fields), owner=OWNER)


def reply(fence: Fence, answer: Answer) -> None:
    """Save a plain answer under its fence."""
    message = {"role": "assistant", "content": answer.text}
    value: dict[str, Any] = {
        "id": answer.provider_id,
        "object": "chat.completion",
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    if answer.status >= 400:
        value = {"error": {"message": answer.text, "type": "invalid_request_error"}}
    elif answer.usage is not None:
        value["usage"] = answer.usage
    lives.save(
        outcomes.classify(
            request_id=fence.request_id,
            fence_token=fence.token,
            answer=Answered(answer.status, "application/json", json.dumps(value).encode()),
        )
    )


def lose(fence: Fence, text: str = "The connection was reset while the answer was read.") -> None:
    """The call whose answer never came: the outcome is unknown."""
    lives.save(
        outcomes.lost(
            request_id=fence.request_id,
            fence_token=fence.token,
            code="connection_lost",
            message=text,
        )
    )


def tokens(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    """A usage object as an OpenAI-compatible provider reports it."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def move_back(request_id: str, *, ago: timedelta, took: timedelta = timedelta(seconds=2)) -> None:
    """Move the times of a request so that it was admitted `ago` and answered after `took`."""
    row = Request.objects.get(id=request_id)
    start = clock.db_now() - ago
    ended = start + timedelta(milliseconds=9) + took
    times: dict[str, datetime] = {"admitted_at": start, "updated_at": start}
    if row.dispatched_at:
        times |= dict.fromkeys(("dispatched_at", "updated_at"), start + timedelta(milliseconds=9))
    for name, later in (("result_at", 0), ("settled_at", 14), ("resolved_at", 900_000)):
        if getattr(row, name):
            at = ended + timedelta(milliseconds=later)
            times |= {name: at, "updated_at": at}
    Request.objects.filter(id=request_id).update(**times)
    LedgerRow.objects.filter(request_id=request_id).update(created_at=times["updated_at"])


def accounts_and_services() -> None:
    """Four accounts (capped, open, nearly spent, closed), three services, one of them unpriced."""
    for account_id, name, cap in (
        ("acme-prod", "Acme, production", "250"),
        ("acme-staging", "Acme, staging", None),
        ("research", "Research group", "0.50"),
        ("old-shop", "Old shop (moved)", None),
    ):
        usage.create_account(
            account_id=account_id,
            name=name,
            actor=OLGA,
            cap_nano=None if cap is None else usd_to_nano(cap),
            allow_unpriced=account_id == "acme-staging",
        )
    usage.change_account(
        account_id="old-shop", version=1, actor=OLGA, active=False, reason="Moved to acme-prod."
    )
    lives.add_service("gpt-main", base_url="https://api.openai.com/v1", api_key_env="OPENAI_KEY")
    lives.add_service("claude", price_provider="anthropic", price_model="claude-3-5-haiku-latest")
    lives.add_service("local-llama", price_provider="", price_model="")
    usage.add_price(
        provider="openai",
        model="gpt-4o-internal",
        rates={"input": "2.40", "input_cached": "1.20", "output": "9.60"},
        valid_from_at=None,
        actor=OLGA,
        reason="Contract of November.",
    )
    for name, scopes in (("checkout worker", ["usage:write"]), ("nightly report", ["usage:read"])):
        access.issue_token(account_id="acme-prod", name=name, scopes=scopes, actor=OLGA)


def busy_day(*, settled_rows: int = SETTLED_ROWS) -> dict[str, str]:
    """Accounts, services and a day of requests in every state; returns request ids by kind."""
    accounts_and_services()
    made: dict[str, str] = {}
    for number in range(settled_rows):
        account = ("acme-prod", "acme-prod", "acme-staging")[number % 3]
        fence = dispatched(
            f"order-{4100 + number}", account=account, service=("gpt-main", "claude")[number % 2]
        )
        used = tokens(700 + 41 * number, 80 + 13 * number, 512 if number % 4 == 0 else 0)
        reply(fence, Answer(usage=used, provider_id=f"chatcmpl-{number:04x}"))
        lives.settle(fence.request_id)
        move_back(fence.request_id, ago=timedelta(minutes=11 + 23 * number))
        made["settled"] = fence.request_id
    made |= _open_ends() | _closed_ends()
    _a_person_acted(made)
    _passes()
    store_reports(reports=check_all())
    _space_out_audit()
    return made


def _open_ends() -> dict[str, str]:
    made = {}
    unknowns = (("unknown", 2291, 128), ("unknown_old", 2107, 4000), ("unknown_new", 2304, 4))
    for name, number, ago in unknowns:
        fence = dispatched(f"invoice-{number}", account="acme-prod", service="gpt-main")
        lose(fence)
        move_back(fence.request_id, ago=timedelta(minutes=ago), took=timedelta(seconds=131))
        made[name] = fence.request_id
    fence = dispatched("summary-77", account="acme-prod", service="claude")
    made["dispatched"] = fence.request_id
    row = lives.admitted("batch-2026-11-29-0007", account="acme-staging", service="gpt-main")
    move_back(row.id, ago=timedelta(minutes=52))
    made["admitted"] = row.id
    contradiction = {**tokens(50, 4), "total_tokens": 9}
    for name, number, used in (("no_usage", 5512, None), ("inconsistent", 5514, contradiction)):
        fence = dispatched(f"chat-{number}", account="acme-prod", service="gpt-main")
        reply(fence, Answer(usage=used))
        lives.settle(fence.request_id)
        move_back(fence.request_id, ago=timedelta(hours=5))
        made[name] = fence.request_id
    fence = dispatched("llama-1", account="acme-staging", service="local-llama")
    reply(fence, Answer(usage=tokens(900, 210)))
    lives.settle(fence.request_id)
    move_back(fence.request_id, ago=timedelta(hours=7))
    return made | {"unpriced": fence.request_id}


def _closed_ends() -> dict[str, str]:
    made = {}
    fence = dispatched("order-4099", account="acme-prod", service="gpt-main")
    reply(fence, Answer(status=400, text="Invalid value for 'temperature': 9. Maximum is 2."))
    made["rejected"] = fence.request_id
    row = lives.admitted("batch-2026-11-28-0031", account="acme-prod", service="gpt-main")
    usage.cancel(request_id=row.id, actor=OLGA, reason="The batch was replaced.")
    made["cancelled"] = row.id
    fence = dispatched("research-1", account="research", service="gpt-main")
    reply(fence, Answer(usage=tokens(180_000, 22_000)))
    lives.settle(fence.request_id)
    made["overrun"] = fence.request_id
    for number, request_id in enumerate(made.values()):
        move_back(request_id, ago=timedelta(minutes=40 + 70 * number))
    return made


def _a_person_acted(made: dict[str, str]) -> None:
    fence = dispatched("invoice-88", account="acme-prod", service="gpt-main")
    lose(fence, "Read timed out after 120 s.")
    row = lives.read(fence.request_id)
    usage.resolve_unknown(
        request_id=row.id,
        evidence=usage.Evidence(True, "chatcmpl-77a1", {**tokens(1204, 310)}),
        note="Found in the provider's log at 02:14, with its usage.",
        actor=OLGA,
        seen_updated_at=row.updated_at,
    )
    move_back(row.id, ago=timedelta(hours=9), took=timedelta(seconds=120))
    made["resolved"] = row.id


def _passes() -> None:
    now = clock.db_now()
    for name, scanned, settled, ago in (("recovery", 0, 0, 3), ("settlement", 7, 4, 21)):
        pass_status(name, scanned=scanned, settled=settled, ended_at=now - timedelta(seconds=ago))


def pass_status(name: str, **values: Any) -> None:
    """The row of a pass; `ended_at` None with running=True: it runs now."""
    ended_at = values.pop("ended_at", None)
    scanned, settled = values.get("scanned", 0), values.get("settled", 0)
    record_status(
        name=name,
        values={
            "owner": OWNER,
            "running": False,
            "deferred": scanned - settled,
            "pages": 1,
            "pass_scanned": scanned,
            "pass_settled": settled,
            "started_at": (ended_at or clock.db_now()) - timedelta(seconds=1),
            "finished_at": ended_at,
            **values,
        },
    )


def _space_out_audit() -> None:
    """Let the acts lie minutes apart. Their digests no longer fit; nothing here verifies them."""
    for number, row in enumerate(AuditRow.objects.order_by("-at", "-id")):
        AuditRow.objects.filter(id=row.id).update(at=F("at") - timedelta(minutes=17 * number))


def hostile() -> dict[str, str]:
    """Names, errors, bodies and notes that try to mislead; returns request ids by kind."""
    made: dict[str, str] = {}
    account_id = LONG[:128]
    usage.create_account(account_id=account_id, name=BIDI, actor=OLGA, cap_nano=10**17)
    address = f"https://api.example.com/{'x' * 300}"
    lives.add_service("hostile", base_url=address, model=MARKUP)
    for text in HOSTILE:
        access.issue_token(
            account_id=account_id, name=text[:120], scopes=["usage:read"], actor=OLGA
        )
    for number, text in enumerate(HOSTILE):
        operation_id = f"{number}:{'X' * 126}"
        fence = dispatched(
            operation_id,
            account=account_id,
            service="hostile",
            messages=[{"role": "user", "content": text}, {"role": "user", "content": WORD}],
        )
        if number % 2:
            lose(fence, f"{text}\nsecond line {text}")
        else:
            reply(fence, Answer(f"{text} {WORD}", tokens(9, 4), provider_id=text))
        made[f"hostile_{number}"] = fence.request_id
    row = lives.read(made["hostile_1"])
    usage.resolve_unknown(
        request_id=row.id,
        evidence=usage.Evidence(False, MARKUP),
        note=f"{MARKUP}\n{BIDI} {UNBROKEN}",
        actor=audit.Actor("user", RIGHT_TO_LEFT),
        seen_updated_at=row.updated_at,
    )
    return made
