"""BAILING_EMAIL_URL: what it may say, and that a wrong one is never repeated."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from console.mail import Mail, mail


def test_without_a_url_there_is_no_host() -> None:
    assert mail("") == Mail() and mail("").host == ""


def test_a_full_url_is_read() -> None:
    found = mail("smtp+starttls://user%40x:p%2Fw@mail.example?from=ops@example.org")
    assert (found.host, found.port, found.starttls, found.tls) == ("mail.example", 587, True, False)
    assert (found.user, found.secret, found.sender) == ("user@x", "p/w", "ops@example.org")
    assert mail("smtps://mail.example:4650").port == 4650


@pytest.mark.parametrize(
    "url",
    ["http://x:secret@y", "smtp://", "smtp://u:secret@h:x", "smtp://h/path", "smtp://h?a=secret"],
)
def test_another_form_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="BAILING_EMAIL_URL") as refusal:
        mail(url)
    assert url not in str(refusal.value) and "secret@h:x" not in str(refusal.value)
