"""From BAILING_DATABASE_URL to Django's DATABASES entry, with the settings the verbs rely on."""

from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from kernel.conf import conf

SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
    " PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16000;"
)
FORM = "mysql://user:password@host:3306/name, mysql://...?ssl-ca=/path or sqlite:///path"
MYSQL_SESSION = (
    "SET SESSION time_zone='+00:00',"
    " sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ZERO_DATE,NO_ZERO_IN_DATE',"
    " innodb_lock_wait_timeout={lock_wait}, wait_timeout={idle_connection}"
    # Read by MariaDB only. The locks of a host that vanished would hold its accounts up for long.
    "/*M! , idle_write_transaction_timeout={idle_transaction} */"
)


def database(url: str, *, default_path: Path, mysql_password: str = "") -> dict[str, Any]:
    """Returns the DATABASES entry for `url` ('' = the embedded SQLite file at `default_path`).

    A MySQL or MariaDB URL without a password takes `mysql_password`; `?ssl-ca=/path` speaks TLS and
    verifies the server. ImproperlyConfigured for other databases, for whatever would be ignored,
    and for a database that nobody named or that lives in memory: it would keep nothing.
    """
    if not url:
        return _sqlite(str(default_path))
    try:
        parts = urlsplit(url)
        parsed: dict[str, Any] = dict(dj_database_url.parse(url))
    except ValueError:  # its words may hold the URL, and that a password
        raise _refused("") from None
    if "#" in url:
        raise _refused(": # is written %23")
    if parsed["ENGINE"].endswith("sqlite3"):
        if parts.query:
            raise _refused(": SQLite takes no option")
        if parts.netloc or not _is_file(parsed["NAME"]):
            raise _refused(": SQLite needs a file")
        return _sqlite(parsed["NAME"])
    if not parsed["ENGINE"].endswith("mysql"):
        raise _refused("")
    if not parsed["NAME"]:
        raise _refused(": the name is missing")
    parsed.pop("OPTIONS", None)
    return {
        **parsed,
        "ENGINE": "kernel.mysql",
        "PASSWORD": parsed.get("PASSWORD") or mysql_password,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **_tls(parts),
            "charset": "utf8mb4",
            "isolation_level": "read committed",
            "connect_timeout": 5,
            "read_timeout": 30,
            "write_timeout": 30,
            "init_command": MYSQL_SESSION.format(
                lock_wait=conf.lock_wait_seconds,
                idle_connection=conf.idle_connection_seconds,
                idle_transaction=conf.idle_transaction_seconds,
            ),
        },
        "TEST": {"CHARSET": "utf8mb4", "COLLATION": "utf8mb4_bin"},
    }


def _tls(parts: SplitResult) -> dict[str, Any]:
    options = parse_qsl(parts.query, keep_blank_values=True)
    if not options:
        return {}
    if len(options) > 1 or options[0][0] != "ssl-ca":  # an option that nobody reads is no promise
        raise _refused(": no other option is read")
    authority = options[0][1]
    if not authority:
        raise _refused(": ssl-ca needs a file")
    # With the authority alone a server without TLS is spoken to in the open.
    return {"ssl": {"ca": authority}, "ssl_mode": "VERIFY_IDENTITY"}


def _is_file(name: str) -> bool:
    """SQLite reads a name that starts with `file:` as a URI, which may mean memory."""
    return bool(name) and name != ":memory:" and not name.startswith("file:")


def _refused(why: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"BAILING_DATABASE_URL must look like {FORM}{why}")


def _sqlite(name: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": name,
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": SQLITE_PRAGMAS,
        },
    }
