"""0070 and the tables of allauth: the console works without them, db_init adds them (H2-H4)."""

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client

from kernel import schema
from kernel.access import ensure_roles
from kernel.conf import override
from kernel.models import AuditRow
from tests.kernel.test_schema import fresh_db, fresh_url, only
from tests.support.second_factors import sign_in, with_app

__all__ = ["fresh_db", "fresh_url"]


@pytest.fixture
def before_0070(fresh_db, monkeypatch):
    """A database of the version before, with one person."""
    monkeypatch.setattr(schema, "_found", set())
    only(schema.DELIVERY)
    for app in ("contenttypes", "auth", "sessions"):
        call_command("migrate", app, verbosity=0)
    ensure_roles()
    user = User.objects.create_user("olga", password="correct horse", is_superuser=True)
    assert "mfa_authenticator" not in connection.introspection.table_names()
    return user


def test_without_0070_people_sign_in_and_only_their_account_is_unavailable(before_0070):
    client = Client()
    assert sign_in(client) == "/"
    assert client.get("/people/").status_code == 200
    page = client.get("/you/")
    assert page.status_code == 503 and "0070_sign_in" in page.text
    with override(sign_in_tries_max=3):
        tries = [
            Client().post("/sign-in/", {"username": "marek", "password": "x"}).status_code
            for _try in range(4)
        ]
    assert tries == [422, 422, 422, 429]
    assert schema.state().usable and not schema.state().ready


def test_db_init_adds_the_tables_and_keeps_the_people(before_0070):
    assert "0070_sign_in" in schema.migrate()
    assert schema.state().ready
    with_app(before_0070)
    assert sign_in(Client()) == "/sign-in/factor/"
    assert Authenticator.objects.count() == 2
    call_command("db_verify", no_store=True)
    assert AuditRow.objects.filter(action="person.factor_add").exists()


def test_a_run_killed_before_ours_still_finds_the_other_apps_tables(before_0070):
    schema._migrate_what_is_not_ours()
    assert "mfa_authenticator" in connection.introspection.table_names()
    assert not schema.is_applied(schema.SIGN_IN)
    assert sign_in(Client()) == "/"
    schema.migrate()
    assert schema.is_applied(schema.SIGN_IN)
