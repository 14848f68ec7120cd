"""From BAILING_DATABASE_URL to Django's DATABASES entry, with the settings the verbs rely on."""

from pathlib import Path
from typing import Any

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
    verifies the server. ImproperlyConfigured for other databases, and for options that would be
    ignored.
    """
    if not url:
        return _sqlite(str(default_path))
    try:
        parsed: dict[str, Any] = dict(dj_database_url.parse(url))
    except ValueError:  # its words may hold the URL, and that a password
        raise ImproperlyConfigured(f"BAILING_DATABASE_URL must look like {FORM}") from None
    engine = parsed["ENGINE"]
    if engine.endswith("sqlite3"):
        return _sqlite(parsed["NAME"] or str(default_path))
    if not engine.endswith("mysql"):
        raise ImproperlyConfigured(f"BAILING_DATABASE_URL must look like {FORM}")
    tls = parsed.pop("OPTIONS", {})
    if set(tls) - {"ssl"}:  # an option that nobody reads would promise what is not so
        raise ImproperlyConfigured(
            f"BAILING_DATABASE_URL must look like {FORM}: no other option is read"
        )
    if tls:  # with the authority alone a server without TLS is spoken to in the open
        tls["ssl_mode"] = "VERIFY_IDENTITY"
    return {
        **parsed,
        "ENGINE": "kernel.mysql",
        "PASSWORD": parsed.get("PASSWORD") or mysql_password,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **tls,
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
