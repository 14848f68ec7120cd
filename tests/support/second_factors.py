"""Second factors for tests: codes as an authenticator app shows them, and signing in."""

import re
import time

from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.auth.models import User
from django.test import Client

from kernel import access
from kernel.audit import Actor

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
SELF = Actor("user", "olga")


def code(secret: str = SECRET, *, steps: int = 0) -> str:
    """What the app shows now, or so many half minutes from now."""
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps))


def with_app(user: User) -> list[str]:
    """Give this person an authenticator app; returns the recovery codes."""
    return access.add_app(user=user, secret=SECRET, actor=Actor("user", user.username))


def key_on(page: str) -> str:
    """The secret that a set-up page shows."""
    found = re.search(r"\b[A-Z2-7]{32}\b", page)
    assert found, "the page shows no key"
    return found[0]


def sign_in(
    client: Client, name: str = "olga", password: str = "correct horse", to: str = ""
) -> str:
    """Name and password; returns where it leads."""
    response = client.post("/sign-in/", {"username": name, "password": password, "next": to})
    assert response.status_code == 302, response.text
    return str(response["Location"])
