"""manage.py person: add, list, change; passwords are made here and shown once (L2, L4)."""

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User

from kernel.access.people import role_of
from kernel.models import AuditRow
from tests.management.running import done, last_act, run

pytestmark = pytest.mark.usefixtures("kernel_db")


def password_of(out: str) -> str:
    (password,) = (line.strip() for line in out.splitlines() if line.startswith("  "))
    return password


def test_an_added_person_can_sign_in_with_the_password_shown_once() -> None:
    out = done("person", "add", "vera", "--role", "operator").out
    user = authenticate(username="vera", password=password_of(out))
    assert isinstance(user, User)
    assert role_of(user) == "operator"
    assert len(password_of(out)) == 20
    assert "the only time the password is shown" in out
    assert last_act().actor_kind == "command"
    assert password_of(out) not in repr(list(AuditRow.objects.values()))
    assert password_of(out) not in done("person", "list").out


def test_no_two_passwords_are_alike() -> None:
    found = {
        done("person", "add", f"p{i}", "--role", "viewer", "--json").document["password"]
        for i in range(5)
    }
    assert len(found) == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a b", "--role", "viewer"], "valid username"),
        (["x" * 151, "--role", "viewer"], "at most 150 characters"),
        (["vera", "--role", "root"], "invalid choice: 'root'"),
        (["vera"], "--role"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_adds_nobody(words: list[str], says: str) -> None:
    answer = run("person", "add", *words)
    assert answer.code == 1
    assert says in answer.error
    assert not User.objects.exists()


def test_a_name_is_taken_in_any_case() -> None:
    done("person", "add", "vera", "--role", "viewer")
    assert "A person named VERA exists." in run("person", "add", "VERA", "--role", "viewer").error


def test_the_list_shows_names_and_roles() -> None:
    assert "manage.py person add" in done("person", "list").out
    done("person", "add", "vera", "--role", "viewer")
    done("person", "add", "adam", "--role", "admin")
    lines = done("person", "list").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["adam", "admin", "active"],
        ["vera", "viewer", "active"],
    ]
    assert [each["role"] for each in done("person", "list", "--json").document] == [
        "admin",
        "viewer",
    ]


def test_a_role_and_access_can_be_changed() -> None:
    done("person", "add", "vera", "--role", "viewer")
    out = done(
        "person", "change", "vera", "--role", "approver", "--active", "no", "--reason", "on leave"
    ).out
    assert "vera is approver and closed." in out
    user = User.objects.get(username="vera")
    assert (role_of(user), user.is_active) == ("approver", False)
    assert last_act().reason == "on leave"


def test_a_lost_password_is_replaced_and_the_act_is_audited_without_it() -> None:
    old = password_of(done("person", "add", "vera", "--role", "viewer").out)
    session = User.objects.get(username="vera").get_session_auth_hash()
    new = password_of(done("person", "change", "vera", "--new-password").out)
    assert authenticate(username="vera", password=new)
    assert authenticate(username="vera", password=old) is None
    assert User.objects.get(username="vera").get_session_auth_hash() != session
    assert '"password": "changed"' in last_act().after_text
    assert new not in last_act().after_text


def test_a_change_of_nothing_or_of_nobody_says_so() -> None:
    assert "Say what to change" in run("person", "change", "vera").error
    assert "No person named vera." in run("person", "change", "vera", "--active", "no").error
