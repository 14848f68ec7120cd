"""Checks of this host and process: disk, environment, doors in front, where calls may go."""

import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from kernel.conf import MIB, conf
from kernel.doctor.findings import FAILURE, OK, WARNING, Finding, judge, listed
from kernel.ids import key_values
from kernel.models import Destination, Service, Tool
from kernel.transactions import reading

SECRETS = {
    "DJANGO_SECRET_KEY": "sessions and forms are signed with it",
    "BAILING_ADMIN_PASSWORD": "without it nobody gets the first sign-in",
    "BAILING_API_TOKEN": "without it only issued tokens call the API, and /metrics is loopback's",
    "BAILING_EXECUTOR_TOKEN": "without it only issued tokens claim jobs",
    "BAILING_WEBHOOK_SECRET": "without it signed decisions need a key of their own",
}
SECRET_CHARS_MIN = 16
LOOPBACK = {"127.0.0.1", "localhost", "[::1]", "::1", ""}
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy")
CONNECT_SECONDS = 2
NAMES_SHOWN_MAX = 20


def check_host(
    *, environ: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> list[Finding]:
    """Every check that needs no database. `headers`: of the request that asks, if there is one."""
    return [
        *_check_secrets(environ),
        _check_env_file(),
        _check_disk(),
        *_check_doors(headers),
        _check_outgoing_proxy(environ),
        _check_broker(),
    ]


def _check_secrets(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name, why in SECRETS.items():
        value = environ.get(name, "")
        if not value:
            yield Finding(f"secrets.{name}", WARNING, "not set", f"Set it in .env: {why}.")
        elif len(value) < SECRET_CHARS_MIN:
            seen = f"set, shorter than {SECRET_CHARS_MIN} characters"
            yield Finding(f"secrets.{name}", FAILURE, seen, "Make one: openssl rand -base64 24")
        else:
            yield Finding(f"secrets.{name}", OK, "set")
    values = [environ[name] for name in SECRETS if environ.get(name)]
    yield judge(
        "secrets.distinct",
        "each its own" if len(set(values)) == len(values) else "two are the same",
        good=len(set(values)) == len(values),
        todo="Give each its own value: openssl rand -base64 24",
        otherwise=WARNING,
    )


def _check_env_file() -> Finding:
    path = Path(settings.BASE_DIR) / ".env"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return Finding("secrets.env_file", OK, "none here; the environment is given otherwise")
    return judge(
        "secrets.env_file",
        f"mode {mode:04o}",
        good=not mode & 0o077,
        todo="Others can read it: chmod 600 .env, then renew what it holds.",
    )


def _check_disk() -> Finding:
    path = Path(settings.VAR_DIR)
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free // MIB
    level = OK
    if free < conf.disk_free_mib_warn:
        level = FAILURE if free < conf.disk_free_mib_min else WARNING
    todo = "" if level == OK else "Make room; a full disk stops every commit of a database on it."
    return Finding("host.disk", level, f"{free} MiB free for var/", todo)


def _check_doors(headers: Mapping[str, str] | None) -> Iterator[Finding]:
    yield judge(
        "door.debug",
        "on" if settings.DEBUG else "off",
        good=not settings.DEBUG,
        todo="Unset BAILING_DEBUG: error pages show settings and source.",
    )
    hosts = [host for host in settings.ALLOWED_HOSTS if host]
    yield judge(
        "door.hosts",
        ", ".join(hosts),
        good="*" not in hosts,
        todo="Name your hosts in BAILING_ALLOWED_HOSTS.",
    )
    outside = [host for host in hosts if host not in LOOPBACK]
    yield judge(
        "door.https",
        "behind TLS" if settings.BEHIND_TLS else "plain HTTP",
        good=settings.BEHIND_TLS or not outside,
        todo=f"{', '.join(outside)} is served without TLS: put a proxy in front and set"
        " BAILING_BEHIND_TLS=1.",
        otherwise=WARNING,
    )
    yield _check_trusted()
    if headers is not None:
        yield _check_forwarded(headers)


def _check_trusted() -> Finding:
    networks = list(settings.TRUSTED_PROXIES)
    wide = [str(one) for one in networks if one.num_addresses > 2**24 and one.version == 4]
    wide += [str(one) for one in networks if one.version == 6 and one.prefixlen < 48]
    return judge(
        "door.trusted_proxies",
        ", ".join(map(str, networks)) or "none",
        good=not wide,
        todo=f"{', '.join(wide)} is too wide: anybody there may claim any address. Name the"
        " proxies' own addresses in BAILING_TRUSTED_PROXIES.",
    )


def _check_forwarded(headers: Mapping[str, str]) -> Finding:
    """Whether a proxy announces itself that the settings do not know, or the other way round."""
    told = [name for name in ("X-Forwarded-For", "X-Forwarded-Proto") if headers.get(name)]
    seen = f"this request carried {', '.join(told)}" if told else "this request came directly"
    if told and not settings.TRUSTED_PROXIES:
        todo = "A proxy is in front: name its address in BAILING_TRUSTED_PROXIES, or throttles and"
        return Finding("door.forwarded", WARNING, seen, f"{todo} the audit see only the proxy.")
    if settings.BEHIND_TLS and "X-Forwarded-Proto" not in told:
        todo = "The proxy must set X-Forwarded-Proto (and pass nothing on that a client wrote)."
        return Finding("door.forwarded", WARNING, seen, todo)
    return Finding("door.forwarded", OK, seen)


def _check_outgoing_proxy(environ: Mapping[str, str]) -> Finding:
    names = [name for name in PROXY_VARIABLES if environ.get(name)]
    return judge(
        "calls.proxy",
        ", ".join(names) or "none in the environment",
        good=not names,
        todo="These are not used: outgoing calls dial the checked address themselves.",
        otherwise=WARNING,
    )


def _check_broker() -> Finding:
    engine: Any = settings.ENGINE
    if not engine.is_celery:
        return Finding("engine", OK, "in this process; no broker")
    parts = urlsplit(engine.broker)
    port = parts.port or {"redis": 6379, "rediss": 6379, "amqps": 5671}.get(parts.scheme, 5672)
    try:
        socket.create_connection((parts.hostname, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        todo = "Start the broker. Nothing is lost meanwhile; work waits in the tables."
        return Finding("engine", FAILURE, f"celery; {engine.broker} does not answer", todo)
    return Finding("engine", OK, f"celery; {engine.broker} answers")


@reading
def check_targets(*, environ: Mapping[str, str]) -> list[Finding]:
    """Where calls may go, and whether the keys that rows name can be read here, as senders do."""
    kinds: list[tuple[str, Any, tuple[str, str]]] = [
        ("service", Service, ("base_url", "api_key_env")),
        ("tool", Tool, ("url", "secret_env")),
        ("destination", Destination, ("address", "secret_env")),
    ]
    rows = [
        (f"{kind} {name}", url, env, may)
        for kind, model, fields in kinds
        for name, url, env, may in model.objects.filter(active=True)
        .order_by("id")
        .values_list("id", *fields, "allow_private")
    ]
    private = [name for name, _, _, may in rows if may]
    open_text = [name for name, url, _, may in rows if url.startswith("http://") and not may]
    lost = [
        f"{variable} of {name}"
        for name, _, env, _ in rows
        for variable, value in key_values(env, environ=environ).items()
        if not value
    ]
    return [
        Finding("calls.private", OK, f"may reach private addresses: {_some(private)}"),
        judge(
            "calls.tls",
            f"over plain HTTP: {_some(open_text)}",
            good=not open_text,
            todo="Use https: keys and contents are readable on the way.",
            otherwise=WARNING,
        ),
        judge(
            "calls.secrets",
            f"not in this environment, or not declared: {_some(lost)}",
            good=not lost,
            todo="Set them where this process is started, declare them in BAILING_KEY_NAMES if that"
            " is set, then restart it.",
        ),
    ]


def _some(names: list[str]) -> str:
    return listed(names, most=NAMES_SHOWN_MAX) or "none"
