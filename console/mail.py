"""From BAILING_EMAIL_URL to Django's mail settings."""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
FORM = "smtp[+starttls]://[user:secret@]host[:port]?from=address, or smtps://..."


@dataclass(frozen=True, slots=True)
class Mail:
    """Where mails go; an empty host: e-mail is not configured, and says so."""

    host: str = ""
    port: int = 25
    user: str = ""
    secret: str = field(default="", repr=False)
    starttls: bool = False
    tls: bool = False
    sender: str = "bailing@localhost"


def mail(url: str) -> Mail:
    """Reads the URL ('' = no e-mail). ImproperlyConfigured, which never repeats it."""
    if not url:
        return Mail()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ImproperlyConfigured(f"BAILING_EMAIL_URL must look like {FORM}") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or port == 0:
        raise ImproperlyConfigured(f"BAILING_EMAIL_URL must look like {FORM}")
    if set(query) - {"from"}:
        raise ImproperlyConfigured("BAILING_EMAIL_URL knows one parameter: from")
    return Mail(
        host=parts.hostname,
        port=port or PORTS[parts.scheme],
        user=unquote(parts.username or ""),
        secret=unquote(parts.password or ""),
        starttls=parts.scheme == "smtp+starttls",
        tls=parts.scheme == "smtps",
        sender=query.get("from") or Mail().sender,
    )
