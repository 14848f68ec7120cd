"""BAILING_DATABASE_URL: nothing in it is ignored, and no database keeps nothing."""

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from console.database import database

MYSQL = "mysql://ann:hunter2@db:3306/bailing"


def refusal(url: str) -> str:
    with pytest.raises(ImproperlyConfigured) as refused:
        database(url, default_path=Path("unused"))
    return str(refused.value)


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("?ssl-ca=", "ssl-ca needs a file"),
        ("?ssl-ca", "ssl-ca needs a file"),
        ("?ssl-ca=/a&ssl-ca=/b", "no other option is read"),
        ("?ssl-ca=&ssl-ca=/b", "no other option is read"),
        ("?ssl-ca=/a&charset=", "no other option is read"),
        ("?charset=", "no other option is read"),
        ("#?ssl-ca=/x", "# is written %23"),
        ("?ssl-ca=/x#y", "# is written %23"),
        ("#", "# is written %23"),
    ],
)
def test_no_url_that_speaks_of_tls_becomes_a_connection_without_it(rest: str, told: str) -> None:
    line = refusal(MYSQL + rest)
    assert line.endswith(told) and "\n" not in line
    assert "hunter2" not in line and "/x" not in line


def test_one_authority_verifies_the_server_and_none_asks_for_nothing() -> None:
    options = database(f"{MYSQL}?ssl-ca=/etc/a%20b.pem", default_path=Path("unused"))["OPTIONS"]
    assert options["ssl"] == {"ca": "/etc/a b.pem"} and options["ssl_mode"] == "VERIFY_IDENTITY"
    plain = database(MYSQL, default_path=Path("unused"))
    assert not {"ssl", "ssl_mode"} & set(plain["OPTIONS"])
    assert (plain["NAME"], plain["USER"], plain["PASSWORD"]) == ("bailing", "ann", "hunter2")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///x.db?timeout=1", "SQLite takes no option"),
        ("sqlite:///x.db?timeout=", "SQLite takes no option"),
        ("sqlite:///x.db#y", "# is written %23"),
        ("sqlite:///", "SQLite needs a file"),
        ("sqlite://", "SQLite needs a file"),
        ("sqlite:", "SQLite needs a file"),
        ("sqlite://x.db", "SQLite needs a file"),
        ("sqlite://place/x.db", "SQLite needs a file"),
        ("sqlite://:memory:", "SQLite needs a file"),
        ("sqlite:///:memory:", "SQLite needs a file"),
        ("sqlite:///%3Amemory%3A", "SQLite needs a file"),
        ("sqlite:///file:x%3Fmode=memory", "SQLite needs a file"),
        ("mysql://ann:hunter2@db:3306/", "the name is missing"),
        ("mysql://ann:hunter2@db:3306", "the name is missing"),
    ],
)
def test_no_option_is_ignored_and_no_database_keeps_nothing(url: str, told: str) -> None:
    line = refusal(url)
    assert line.endswith(told) and "\n" not in line
    assert "hunter2" not in line and "x.db" not in line


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("", "/var/lib/default.sqlite3"),
        ("sqlite:///near.db", "near.db"),
        ("sqlite:////far/a%23b.db", "/far/a#b.db"),
    ],
)
def test_a_file_is_taken_as_it_is_named(url: str, name: str) -> None:
    entry = database(url, default_path=Path("/var/lib/default.sqlite3"))
    assert (entry["NAME"], entry["OPTIONS"]["transaction_mode"]) == (name, "IMMEDIATE")
