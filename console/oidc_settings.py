"""Settings of signing in: the OpenID Connect provider, if any; roles that need a second factor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ImproperlyConfigured

ROLES = frozenset({"viewer", "approver", "operator", "admin"})  # as kernel/access/people.py
PROVIDER = "sso"  # the id of our one provider, part of its addresses


@dataclass(frozen=True, slots=True)
class Oidc:
    """Where the provider is, and who we are to it."""

    url: str
    client_id: str
    secret: str = field(repr=False)
    name: str

    def app(self) -> dict[str, Any]:
        """The provider in allauth's words."""
        return {
            "provider_id": PROVIDER,
            "name": self.name,
            "client_id": self.client_id,
            "secret": self.secret,
            "settings": {"server_url": self.url, "scope": ["openid"], "oauth_pkce_enabled": True},
        }


def oidc(environ: Mapping[str, str]) -> Oidc | None:
    """None without BAILING_OIDC_URL; ImproperlyConfigured names what is missing or not https."""
    url = environ.get("BAILING_OIDC_URL", "")
    if not url:
        return None
    if not url.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise ImproperlyConfigured("BAILING_OIDC_URL must begin with https://")
    needed = ("BAILING_OIDC_CLIENT_ID", "BAILING_OIDC_CLIENT_SECRET")
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        raise ImproperlyConfigured(f"BAILING_OIDC_URL needs {' and '.join(missing)} as well.")
    return Oidc(
        url=url,
        client_id=environ["BAILING_OIDC_CLIENT_ID"],
        secret=environ["BAILING_OIDC_CLIENT_SECRET"],
        name=environ.get("BAILING_OIDC_NAME", "") or "single sign-on",
    )


def mfa_roles(environ: Mapping[str, str]) -> frozenset[str]:
    """BAILING_MFA_ROLES; ImproperlyConfigured names a role that does not exist."""
    wanted = (name.strip() for name in environ.get("BAILING_MFA_ROLES", "").split(","))
    found = frozenset(filter(None, wanted))
    unknown = found - ROLES
    if unknown:
        raise ImproperlyConfigured(
            f"BAILING_MFA_ROLES: no such role {sorted(unknown)}; roles are {sorted(ROLES)}."
        )
    return found
