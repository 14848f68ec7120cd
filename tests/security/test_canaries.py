"""A canary in every kind of secret: none comes out in a log, an answer, a page, an export, a row.

The secrets are where an installation has them; then everything that can go wrong with them does.
"""

import asyncio
import logging
import os
import re

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import Client
from django.urls import get_resolver, reverse

from console.database import database
from console.mail import mail
from kernel import access, jobs
from kernel.access import SCOPES, add_person, add_signing_key
from kernel.conf import override
from kernel.delivery import destinations
from kernel.jobs.tools import build_request
from kernel.models import AuditRow, Service, Tool
from kernel.usage.providers import build_call
from tests.support.fixtures import provider, provider_process, shop
from tests.support.product import (
    OPERATOR,
    chat_body,
    client_of,
    look,
    look_apart,
    make_service,
    running_kernel,
)

__all__ = ["provider", "provider_process", "shop"]

CANARY = "canary7f3a"
ENVIRON = {
    "OPENAI_API_KEY": f"{CANARY}-provider-key",
    "SHOP_TOOL_KEY": f"{CANARY}-tool-key",
    "SHOP_HOOK_SECRET": f"{CANARY}-hook-secret-of-16-bytes",
    "ACME_SIGNING_KEY": f"{CANARY}-signing-key-of-16-bytes",
    "BAILING_WEBHOOK_SECRET": f"{CANARY}-webhook-secret",
    "BAILING_API_TOKEN": f"{CANARY}-api-token",
    "BAILING_EXECUTOR_TOKEN": f"{CANARY}-executor-token",
    "BAILING_ADMIN_PASSWORD": f"{CANARY}-admin-password",
    "MYSQL_PASSWORD": f"{CANARY}-mysql-password",
    "BAILING_DATABASE_URL": f"mysql://bailing:{CANARY}-db-password@127.0.0.1:9/bailing",
    "BAILING_BROKER_URL": f"redis://:{CANARY}-broker-password@127.0.0.1:9/0",
    "BAILING_EMAIL_URL": f"smtp://ops:{CANARY}-mail-password@127.0.0.1:9",
}
JSON = {"Content-Type": "application/json"}
KEPT_IN_ROWS = {"bz_tokens", "auth_user", "django_session", "bz_sessions"}  # digests, never values


class Everything(logging.Handler):
    """Every record as it was logged, before the formatter's net."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {record.args!r} {record.exc_info!r}")
        if record.exc_info:
            self.lines.append(logging.Formatter().formatException(record.exc_info))


@pytest.fixture
def heard(monkeypatch):
    for name, value in ENVIRON.items():
        monkeypatch.setitem(os.environ, name, value)
    handler = Everything()
    logger = logging.getLogger()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler.lines
    logger.setLevel(before)
    logger.removeHandler(handler)


def rows() -> str:
    """Secrets of every kind in use. Returns a token's secret, which is a canary of its own."""
    Service.objects.filter(id="gpt").update(api_key_env="OPENAI_API_KEY")
    make_service("away", api_key_env="OPENAI_API_KEY")
    jobs.create_tool(
        tool_id="refund",
        actor=OPERATOR,
        url="http://127.0.0.1:9/refund",
        allow_private=True,
        policy={"default": "auto", "risk": "low"},
        secret_env="SHOP_TOOL_KEY",
    )
    jobs.create_route(route_id="refunds", actor=OPERATOR, service_id="gpt", tools=["refund"])
    destinations.create_destination(
        account_id="acme",
        channel="webhook",
        address="http://127.0.0.1:9/hook",
        events=["message", "request", "job"],
        secret_env="SHOP_HOOK_SECRET",
        allow_private=True,
        actor=OPERATOR,
        destination_id="hook",
    )
    add_signing_key(account_id="acme", secret_env="ACME_SIGNING_KEY", actor=OPERATOR)
    add_person(
        name="petra", role="viewer", password=ENVIRON["BAILING_ADMIN_PASSWORD"], actor=OPERATOR
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernel.access.tokens.os.urandom", lambda size: b"canary-token-bytes-24-xx")
        return access.issue_token(
            account_id="acme", name="ci", scopes=list(SCOPES), actor=OPERATOR
        )[1]


def quoting_providers(shop) -> None:
    """The next two calls are answered with the key that they sent: whole, and over chunks."""
    key = ENVIRON["OPENAI_API_KEY"].encode()
    refusal = b'{"error": {"message": "Incorrect API key provided: ' + key + b'"}}'
    shop.next_bytes([refusal], marker="op-quote-0", content_type="application/json")
    spoken = b'data: {"choices": [{"delta": {"content": "' + key + b'"}}]}\n\n'
    cut = spoken.index(key) + 5
    events = [spoken[:cut], spoken[cut:], b"data: " + refusal + b"\n\n"]
    shop.next_bytes(events, marker="op-quote-1")


async def calls(kernel, secret: str, shop) -> list[str]:
    """Answers of the API while everything goes wrong."""
    texts = []
    async with client_of(kernel, secret) as client:

        async def ask(method: str, path: str, **parts) -> None:
            answer = await client.request(method, path, **parts)
            texts.append(f"{answer.headers!r} {answer.text}")

        for number, behaviour in enumerate(["status_500", "close", "status_401"]):
            shop.next(behaviour, marker=f"op-{number}")
            await ask(
                "POST",
                "/v1/chat/completions",
                content=chat_body(marker=f"op-{number}"),
                headers={"Idempotency-Key": f"op-{number}"} | JSON,
            )
        await ask(
            "POST",
            "/v1/chat/completions",
            content=chat_body(model="away"),
            headers={"Idempotency-Key": "op-away"} | JSON,
        )
        quoting_providers(shop)
        for number in (0, 1):
            await ask(
                "POST",
                "/v1/chat/completions",
                content=chat_body(marker=f"op-quote-{number}", stream=bool(number)),
                headers={"Idempotency-Key": f"op-quote-{number}"} | JSON,
            )
        call = {"invocation_id": "i-1", "tool": "refund", "arguments": {}}
        await ask("POST", "/v1/agent/invocations", json=call)
        await ask("POST", "/v1/agent/invocations/i-1/resume")
        await ask("POST", "/v1/notifications", json={"destination_id": "hook", "data": {"a": 1}})
        await ask("POST", "/v1/jobs", json={"request_id": 7, "route": secret and "refunds"})
        for path in ("/v1/models", "/v1/jobs", "/usage/v1/account", "/v1/openapi.json"):
            await ask("GET", path)
        for path in ("/metrics", "/readyz", "/livez", "/v1/dead-letters", "/v1/notifications"):
            await ask("GET", path)
    async with client_of(kernel, ENVIRON["BAILING_API_TOKEN"] + "x") as stranger:
        answer = await stranger.get("/v1/models")
        assert answer.status_code == 401
        texts.append(answer.text)
    return texts


def pages() -> list[str]:
    """Every page and export that has an address without an object, as an administrator."""
    user = User.objects.create_superuser("root", password="a long first password")
    user.groups.set(Group.objects.all())
    client = Client(raise_request_exception=False)
    client.force_login(user)
    texts = []
    for pattern in get_resolver("console.urls").url_patterns:
        if hasattr(pattern, "url_patterns") or not pattern.name:
            continue
        if pattern.pattern.converters:
            continue
        answer = client.get(reverse(pattern.name))
        body = b"".join(answer)
        texts.append(f"{pattern.name} {answer.headers!r} {body.decode('utf-8', 'replace')}")
    for address in ("/services/gpt/", "/tools/refund/", "/destinations/hook/", "/nowhere/"):
        texts.append(client.get(address).text)
    wrong = {"login": "root", "username": "root", "password": ENVIRON["BAILING_ADMIN_PASSWORD"]}
    texts.append(Client(raise_request_exception=False).post("/sign-in/", wrong).text)
    return texts


def stored() -> list[str]:
    """Every text of every table but the digests of tokens and people."""
    texts = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            if table in KEPT_IN_ROWS:
                continue
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            texts += [f"{table} {row!r}" for row in cursor.fetchall()]
    return texts


def shown_objects() -> list[str]:
    service, tool = Service.objects.get(id="gpt"), Tool.objects.get(id="refund")
    call = build_call(service=service, raw=chat_body(), request_id="req_1")
    asked = build_request(tool=tool, arguments_text="{}", idempotency_key="k")
    texts = [repr(call), repr(asked), repr(mail(ENVIRON["BAILING_EMAIL_URL"]))]
    for read in (mail, lambda url: database(url, default_path=None)):
        for url in (f"gopher://x:{CANARY}@h", f"smtp://x:{CANARY}@h:99999"):
            with pytest.raises(ImproperlyConfigured) as refused:
                read(url)
            texts.append(repr(refused.value))
    return texts


async def test_no_canary_comes_out_anywhere(shop, heard) -> None:
    with override(notification_poll_seconds=0.05, notification_retry_first_seconds=1):
        async with running_kernel(worker=True) as kernel:
            secret = await look(kernel, rows)
            answers = await calls(kernel, secret, shop)
            await asyncio.sleep(0)
            assert await look(kernel, AuditRow.objects.count) > 5
    found = {
        "answers": answers,
        "pages": await look_apart(pages),
        "rows": await look_apart(stored),
        "reprs": await look_apart(shown_objects),
        "log": heard,
    }
    assert all(found.values())
    assert sum("provider key removed" in text for text in answers) == 2
    token = re.escape(secret[8:])  # the first eight characters are its public prefix
    for where, texts in found.items():
        leaks = [text for text in texts if CANARY in text or re.search(token, text)]
        assert not leaks, (where, [text[:400] for text in leaks[:3]])
