"""Who may act: tokens shown once and stored as a hash, environment tokens, people and roles."""

import base64
import hashlib
import logging

import pytest

from kernel import audit, clock
from kernel.access import (
    SCOPES,
    add_person,
    authenticate,
    change_person,
    issue_token,
    list_tokens,
    revoke_token,
    sync_environment_tokens,
)
from kernel.access.people import ensure_admin, ensure_roles, role_of
from kernel.errors import Conflict, Forbidden, InvalidInput, NotFound, Unauthorized
from kernel.models import AuditRow, ConsoleSession, Token
from tests.support.product import OPERATOR, make_account, make_token

PASSWORD = "correct horse battery 9"
SECRETS = {"BAILING_API_TOKEN": "a" * 32, "BAILING_EXECUTOR_TOKEN": "e" * 32}


def actions() -> list[str]:
    return list(AuditRow.objects.order_by("at", "id").values_list("action", flat=True))


def test_a_secret_is_shown_once_and_stored_as_hash_and_prefix(kernel_db: None) -> None:
    make_account()
    row, secret = issue_token(account_id="acme", name="ci", scopes=["usage:read"], actor=OPERATOR)
    random = base64.urlsafe_b64decode(secret.removeprefix("bz_"))
    assert len(random) * 8 >= 128
    stored = Token.objects.filter(id=row.id).values().get()
    assert stored["secret_sha256"] == hashlib.sha256(secret.encode()).hexdigest()
    assert stored["prefix"] == secret[:8]
    everything = repr(stored) + repr(list(AuditRow.objects.values()))
    assert secret not in everything


def test_two_tokens_never_share_a_secret(kernel_db: None) -> None:
    make_account()
    assert len({make_token() for _ in range(20)}) == 20


def test_a_token_has_exactly_its_scopes(kernel_db: None) -> None:
    make_account()
    caller = authenticate(secret=make_token(scopes=("usage:read",)))
    caller.require("usage:read")
    with pytest.raises(Forbidden, match="usage:write"):
        caller.require("usage:write")
    assert caller.account_id == "acme"
    assert caller.actor == audit.Actor("token", caller.token_id)


@pytest.mark.parametrize(
    "secret", ["", "bz_", "bz_unknown", "é", "\ud800", "' OR 1=1 --", "x" * 9999]
)
def test_any_other_secret_is_unauthorized(kernel_db: None, secret: str) -> None:
    make_account()
    make_token()
    with pytest.raises(Unauthorized):
        authenticate(secret=secret)


def test_a_secret_differs_from_another_case_of_itself(kernel_db: None) -> None:
    make_account()
    secret = make_token()
    with pytest.raises(Unauthorized):
        authenticate(secret=secret.swapcase())


def test_a_revoked_token_is_unauthorized_and_stays_listed(kernel_db: None) -> None:
    make_account()
    secret = make_token()
    (row,) = list_tokens(account_id="acme")
    assert revoke_token(token_id=row.id, actor=OPERATOR, reason="leaked")
    with pytest.raises(Unauthorized):
        authenticate(secret=secret)
    assert not revoke_token(token_id=row.id, actor=OPERATOR), "a second time changes nothing"
    assert list_tokens()[0].revoked_at is not None
    assert actions().count("token.revoke") == 1
    with pytest.raises(NotFound):
        revoke_token(token_id="tok_none", actor=OPERATOR)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["usage:read", "root"]}, "scopes"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 121}, "name"),
    ],
)
def test_a_wrong_field_is_named(kernel_db: None, values: dict[str, object], field: str) -> None:
    make_account()
    fields = {"account_id": "acme", "name": "ci", "scopes": ["usage:read"], **values}
    with pytest.raises(InvalidInput) as refusal:
        issue_token(actor=OPERATOR, **fields)
    assert refusal.value.field == field
    assert list_tokens() == []


def test_a_token_needs_an_account_that_exists(kernel_db: None) -> None:
    with pytest.raises(NotFound, match="ghost"):
        issue_token(account_id="ghost", name="x", scopes=list(SCOPES), actor=OPERATOR)


# --- the environment's tokens -----------------------------------------------------------------


def sync(**secrets: str) -> None:
    sync_environment_tokens(secrets={**SECRETS, **secrets}, account_id="acme")


def test_the_environments_tokens_become_rows_once(kernel_db: None) -> None:
    make_account()
    sync()
    sync()
    assert {row.name for row in list_tokens()} == set(SECRETS)
    assert authenticate(secret="a" * 32).scopes >= {"usage:read", "usage:write"}
    assert authenticate(secret="e" * 32).scopes == {"executor"}


def test_a_changed_environment_token_replaces_the_earlier_one(kernel_db: None) -> None:
    make_account()
    sync()
    sync(BAILING_API_TOKEN="b" * 32)
    authenticate(secret="b" * 32)
    with pytest.raises(Unauthorized):
        authenticate(secret="a" * 32)
    authenticate(secret="e" * 32)


def test_a_removed_environment_token_ends(kernel_db: None) -> None:
    make_account()
    sync()
    sync(BAILING_API_TOKEN="")
    with pytest.raises(Unauthorized):
        authenticate(secret="a" * 32)


def test_a_token_an_operator_revoked_stays_revoked_and_never_stops_a_start(
    kernel_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    make_account()
    sync()
    token = next(row for row in list_tokens() if row.name == "BAILING_API_TOKEN")
    revoke_token(token_id=token.id, actor=OPERATOR)
    with caplog.at_level(logging.WARNING):
        sync()
    assert "BAILING_API_TOKEN" in caplog.text
    assert "a" * 32 not in caplog.text
    with pytest.raises(Unauthorized):
        authenticate(secret="a" * 32)


def test_one_secret_under_two_names_never_stops_a_start(kernel_db: None) -> None:
    make_account()
    sync(BAILING_EXECUTOR_TOKEN="a" * 32)
    assert len(list_tokens()) == 1


def test_a_secret_too_short_to_be_one_is_left_out(kernel_db: None) -> None:
    make_account()
    sync(BAILING_API_TOKEN="short")
    with pytest.raises(Unauthorized):
        authenticate(secret="short")


# --- people -----------------------------------------------------------------------------------


def person(name: str = "vera", role: str = "viewer"):
    return add_person(name=name, role=role, password=PASSWORD, actor=OPERATOR)


def test_a_person_has_one_role_and_a_hashed_password(kernel_db: None) -> None:
    user = person(role="operator")
    assert role_of(user) == "operator"
    assert user.check_password(PASSWORD)
    assert PASSWORD not in user.password
    assert not user.is_superuser


@pytest.mark.parametrize(
    ("values", "field"),
    [({"role": "root"}, "role"), ({"password": "123"}, "password"), ({"name": "a b"}, "name")],
)
def test_a_wrong_field_of_a_person_is_named(
    kernel_db: None, values: dict[str, str], field: str
) -> None:
    fields = {"name": "vera", "role": "viewer", "password": PASSWORD, **values}
    with pytest.raises(InvalidInput) as refusal:
        add_person(actor=OPERATOR, **fields)
    assert refusal.value.field == field


def test_a_name_is_taken_in_any_case(kernel_db: None) -> None:
    person("vera")
    with pytest.raises(Conflict):
        person("VERA")


def test_a_changed_role_replaces_the_earlier_one(kernel_db: None) -> None:
    person(role="admin")
    user = change_person(name="vera", role="approver", actor=OPERATOR, reason="moved")
    assert role_of(user) == "approver"
    assert [group.name for group in user.groups.all()] == ["approver"]
    assert not user.is_staff
    assert actions() == ["person.add", "person.change"]


def test_sign_ins_of_closed_access_do_not_come_back_with_it(kernel_db: None) -> None:
    user = person()
    now = clock.db_now()
    ConsoleSession.objects.create(
        session_key="k" * 32, session_data="", expire_date=now, person_id=user.pk
    )
    change_person(name="vera", active=False, actor=OPERATOR)
    change_person(name="vera", active=True, actor=OPERATOR)
    assert not ConsoleSession.objects.exists()


def test_nobody_changes_their_own_access(kernel_db: None) -> None:
    person(role="admin")
    with pytest.raises(InvalidInput, match="own access"):
        change_person(name="vera", active=False, actor=audit.Actor("user", "vera"))


def test_the_administrator_follows_the_environment(kernel_db: None) -> None:
    ensure_roles()
    assert ensure_admin(password="") == "unchanged"
    assert ensure_admin(password=PASSWORD) == "created"
    assert ensure_admin(password=PASSWORD) == "unchanged"
    assert ensure_admin(password=PASSWORD + "!") == "changed"
    assert list(audit.verify()) == []
    subjects = set(AuditRow.objects.values_list("subject", flat=True))
    assert len(subjects) == 1, "all acts on one person are one chain"
