"""What allauth asks of us: how a sign-in is completed, how factors are stored and named."""

import base64
import hashlib
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.encoding import force_bytes

from console.middleware import begin_session
from console.throttle import client_address
from kernel import access, schema
from kernel.audit import Actor

WAYS = {"password": "password", "mfa": "second factor", "socialaccount": "single sign-on"}


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth is untyped
    """Nobody signs up; every completed sign-in is in the audit trail; no mail, no messages."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def login(self, request: HttpRequest, user: User) -> None:
        """All factors were right. Recorded first: nobody is in unseen."""
        name = user.get_username()
        access.record_sign_in(
            user=user,
            actor=Actor("user", name, request_id=getattr(request, "request_id", "")),
            how=" + ".join(ways_of(request, user)),
            address=client_address(request),
        )
        super().login(request, user)
        begin_session(request)

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        return redirect("sign-in")

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Our pages say what happened."""

    def send_notification_mail(self, *args: Any, **kwargs: Any) -> None:
        """People have no address here."""

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_address(request)


def ways_of(request: HttpRequest, user: User) -> list[str]:
    """What the person proved in this session, in order: 'password', 'second factor'."""
    proved = [str(one.get("method")) for one in get_authentication_records(request, user)]
    return list(dict.fromkeys(WAYS.get(one, one) for one in proved))


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth is untyped
    """Secrets of factors are encrypted with a key that is not in the database."""

    def is_mfa_enabled(self, user: User, types: Any = None) -> bool:
        """Nobody has one before the tables are there (H3)."""
        applied = schema.is_applied(schema.SIGN_IN)
        return applied and bool(super().is_mfa_enabled(user, types))

    def encrypt(self, text: str) -> str:
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _cipher().decrypt(encrypted_text.encode()).decode()


def _cipher() -> MultiFernet:
    """The newest key first; what an older DJANGO_SECRET_KEY encrypted is still read."""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str | bytes) -> bytes:
    digest = hashlib.sha256(b"bailing.second-factors:" + force_bytes(key)).digest()
    return base64.urlsafe_b64encode(digest)
