"""manage.py token: issue, list, revoke (L4)."""

import pytest

from kernel.access import authenticate
from kernel.errors import Unauthorized
from kernel.models import Token
from tests.management.running import done, last_act, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")


def secret_of(out: str) -> str:
    (secret,) = (line.strip() for line in out.splitlines() if line.startswith("  bz_"))
    return secret


def test_an_issued_token_works_and_its_secret_is_shown_once() -> None:
    lives.open_account()
    out = done("token", "issue", "--account", "acme", "--name", "ci").out
    assert "the only time the secret is shown" in out
    caller = authenticate(secret=secret_of(out))
    assert (caller.account_id, caller.scopes) == ("acme", {"usage:read", "usage:write"})
    assert caller.token_id in out
    assert secret_of(out) not in done("token", "list").out + done("token", "list", "--json").out
    act = last_act()
    assert (act.action, act.actor_kind) == ("token.issue", "command")
    assert secret_of(out) not in act.after_text


def test_a_script_gets_the_secret_as_json_and_its_own_scopes() -> None:
    lives.open_account()
    document = done(
        "token",
        "issue",
        "--account",
        "acme",
        "--name",
        "ci",
        "--scope",
        "usage:write",
        "--scope",
        "usage:read",
        "--json",
    ).document
    assert authenticate(secret=document["secret"]).scopes == {"usage:read", "usage:write"}
    assert document["scopes"] == ["usage:read", "usage:write"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--account", "ghost", "--name", "ci"], "No account ghost."),
        (["--account", "acme", "--name", "ci", "--scope", "root"], "scopes are usage:write"),
        (["--account", "acme", "--name", "  "], "name must have 1-120 characters"),
        (["--account", "acme"], "--name"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_issues_nothing(
    words: list[str], says: str
) -> None:
    lives.open_account()
    answer = run("token", "issue", *words)
    assert answer.code == 1
    assert says in answer.error
    assert not Token.objects.exists()


def test_the_list_is_newest_first_and_filters_by_account() -> None:
    assert "token issue" in done("token", "list").out
    for account in ("acme", "zeta"):
        lives.open_account(account)
        done("token", "issue", "--account", account, "--name", f"{account}s")
    lines = done("token", "list").out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["zeta", "acme"]
    (document,) = done("token", "list", "--account", "acme", "--json").document
    assert (document["name"], document["revoked_at"]) == ("acmes", None)


def test_a_revoked_token_ends_at_once_and_for_good() -> None:
    lives.open_account()
    document = done("token", "issue", "--account", "acme", "--name", "ci", "--json").document
    out = done("token", "revoke", document["token_id"], "--reason", "leaked").out
    assert "within 2 s" in out
    with pytest.raises(Unauthorized):
        authenticate(secret=document["secret"])
    assert (last_act().action, last_act().reason) == ("token.revoke", "leaked")
    assert "was revoked before" in done("token", "revoke", document["token_id"]).out
    assert "revoked" in done("token", "list").out
    assert "No token tok_1." in run("token", "revoke", "tok_1").error


def test_a_secret_given_in_place_of_an_id_is_refused() -> None:
    lives.open_account()
    document = done("token", "issue", "--account", "acme", "--name", "ci", "--json").document
    assert run("token", "revoke", document["secret"]).code == 1
    authenticate(secret=document["secret"])
