"""manage.py signing_key: add, list, revoke; the secret itself is never printed (L4)."""

import pytest

from kernel.models import SigningKey
from tests.management.running import done, last_act, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")
SECRET = "a secret of more than 16 bytes"


def test_a_key_is_added_listed_and_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    lives.open_account()
    monkeypatch.setenv("ACME_SIGNING", SECRET)
    out = done("signing_key", "add", "--account", "acme", "--env", "ACME_SIGNING").out
    row = SigningKey.objects.get()
    assert row.id in out
    assert "no usable value" not in out
    assert (last_act().action, last_act().actor_kind) == ("signing_key.add", "command")
    listed = done("signing_key", "list", "--account", "acme").out
    assert "ACME_SIGNING" in listed
    assert SECRET not in listed + out
    (document,) = done("signing_key", "list", "--json").document
    assert (document["key_id"], document["revoked_at"]) == (row.id, None)
    assert "refused from now on" in done("signing_key", "revoke", row.id, "--reason", "old").out
    assert last_act().reason == "old"
    assert "nothing changed" in done("signing_key", "revoke", row.id).out


@pytest.mark.parametrize("secret", ["", "short", "whsec_%%%"])
def test_a_variable_without_a_usable_secret_is_said(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    lives.open_account()
    monkeypatch.setenv("ACME_SIGNING", secret)
    out = done("signing_key", "add", "--account", "acme", "--env", "ACME_SIGNING").out
    assert "no usable value" in out
    assert "no secret here" in done("signing_key", "list").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "--account", "ghost", "--env", "ACME_SIGNING"], "No account ghost"),
        (["add", "--account", "acme", "--env", "my secret"], "name of an environment variable"),
        (["add", "--account", "acme", "--env", "DJANGO_SECRET_KEY"], "belongs to this product"),
        (["revoke", "sgk_none"], "No signing key"),
    ],
)
def test_nonsense_is_refused_with_the_reason(words: list[str], says: str) -> None:
    lives.open_account()
    answer = run("signing_key", *words)
    assert answer.code == 1
    assert says in answer.error
    assert SigningKey.objects.count() == 0
