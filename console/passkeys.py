"""Passkeys: the browser's ceremony, checked by allauth and fido2.

The library is loaded when a passkey is first used: it costs a quarter of a second of a start.
"""

import ipaddress
import json
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest

from kernel import access

# What the library raises for bytes that are no answer of a browser.
BAD_ANSWERS = (
    ValidationError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)


def _library() -> Any:
    return import_module("allauth.mfa.webauthn.internal.auth")


def work_at(request: HttpRequest) -> bool:
    """Browsers give passkeys to https and to localhost, and to names only, never to addresses."""
    host = urlsplit(f"//{request.get_host()}").hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return request.is_secure() or host == "localhost"
    return False


def challenge_for(request: HttpRequest, user: User, kinds: frozenset[str]) -> str | None:
    """What the browser needs to ask for a passkey; None where there is none to ask for."""
    if access.PASSKEY not in kinds or not work_at(request):
        return None
    return json.dumps(_library().begin_authentication(user), cls=DjangoJSONEncoder)


def is_right(user: User, text: str) -> bool:
    """Whether the browser's answer is one of this user's passkeys over our challenge."""
    try:
        credential = json.loads(text)
        _library().parse_authentication_response(credential)
        row = _library().complete_authentication(user, credential)
    except BAD_ANSWERS:
        return False
    return access.factor_used(factor_id=row.pk)


def invitation(user: User) -> str:
    """What the browser needs to make a new passkey for this user."""
    return json.dumps(_library().begin_registration(user, False), cls=DjangoJSONEncoder)


def registered(text: str) -> dict[str, Any] | None:
    """The browser's new passkey when it answers our invitation, else None."""
    try:
        credential = json.loads(text)
        _library().parse_registration_response(credential)
        _library().complete_registration(credential)
    except BAD_ANSWERS:
        return None
    return dict(credential)
