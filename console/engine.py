"""From BAILING_ENGINE and BAILING_BROKER_URL to how several processes share the work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

IN_PROCESS, CELERY = "in_process", "celery"
SCHEMES = ("redis", "rediss", "amqp", "amqps")
FORM = "redis[s]://[user:secret@]host[:port]/number or amqp[s]://user:secret@host[:port]/vhost"


@dataclass(frozen=True, slots=True)
class Engine:
    """Who ticks and runs the work: this installation's processes by themselves, or Celery.

    `broker_url` holds a secret and is in no repr; `broker` names the broker without it.
    """

    name: str = IN_PROCESS
    broker_url: str = field(default="", repr=False)
    broker: str = ""

    @property
    def is_celery(self) -> bool:
        return self.name == CELERY

    @property
    def is_redis(self) -> bool:
        return self.broker.startswith("redis")


def engine(environ: Mapping[str, str]) -> Engine:
    """Reads both settings; without BAILING_ENGINE nothing changes and no broker is needed.

    ImproperlyConfigured, which never repeats the URL: an unknown engine, or a broker URL that is
    missing or of another form.
    """
    name = environ.get("BAILING_ENGINE", "") or IN_PROCESS
    if name not in (IN_PROCESS, CELERY):
        raise ImproperlyConfigured(f"BAILING_ENGINE must be {CELERY} or not set, not {name[:20]!r}")
    if name == IN_PROCESS:
        return Engine()
    url = environ.get("BAILING_BROKER_URL", "")
    if not url:
        raise ImproperlyConfigured(f"BAILING_ENGINE={CELERY} needs BAILING_BROKER_URL: {FORM}")
    return Engine(CELERY, url, _without_secret(url))


def _without_secret(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ImproperlyConfigured(f"BAILING_BROKER_URL must look like {FORM}") from None
    if not host or parts.scheme not in SCHEMES or port == 0:
        raise ImproperlyConfigured(f"BAILING_BROKER_URL must look like {FORM}")
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")
