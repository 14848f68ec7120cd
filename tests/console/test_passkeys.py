"""Passkeys: what is no answer of a browser is a wrong answer, never a defect (L2)."""

import base64
import json

import pytest

from console import passkeys

CLIENT_DATA = b'{"type":"webauthn.create","challenge":"AA","origin":"https://x.example"}'


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _answer(**parts: bytes) -> str:
    response = {"clientDataJSON": _text(CLIENT_DATA)} | {
        name: _text(data) for name, data in parts.items()
    }
    return json.dumps({"id": "AA", "rawId": "AA", "type": "public-key", "response": response})


NO_ANSWERS = [
    "",
    "[" * 100_000,
    "{}",
    _answer(attestationObject=b""),
    _answer(attestationObject=b"\xa1"),
    _answer(attestationObject=b"\x81" * 5_000),
    _answer(authenticatorData=b"a", signature=b"a"),
    _answer(authenticatorData=b"a" * 32 + b"\x80" + bytes(4), signature=b"a"),
]


@pytest.mark.parametrize("text", NO_ANSWERS, ids=map(str, range(len(NO_ANSWERS))))
def test_bytes_that_no_browser_sends_are_refused(person, text):
    assert passkeys.registered(text) is None
    assert passkeys.is_right(person("olga", "viewer"), text) is False
