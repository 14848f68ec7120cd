"""TLS to the database: the server is verified, many threads may connect at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.db.utils import load_backend

from console.database import database
from tests.support.certificates import make_authority
from tests.support.fixtures import server_db
from tests.support.mariadb_server import Server, mortal_server

__all__ = ["server_db"]
THREADS, CONNECTIONS_EACH = 8, 15


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = make_authority(tmp_path_factory.mktemp("authority"))
    (place / "key.pem").chmod(0o600)
    return place


@pytest.fixture
def tls_server(server_db: None, authority: Path) -> Iterator[Server]:
    names = {"ssl-ca": "ca.pem", "ssl-cert": "cert.pem", "ssl-key": "key.pem"}
    options = [f"--{name}={authority / file}" for name, file in names.items()]
    with mortal_server(options=options) as mortal:
        yield mortal.server


def connected(url: str) -> Any:
    """A connection of the product to this database, not opened yet."""
    values = database(url, default_path=Path("unused"))
    values |= {"ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "TIME_ZONE": None}
    return load_backend(values["ENGINE"]).DatabaseWrapper(values)


def cipher_of(url: str) -> str:
    one = connected(url)
    try:
        with one.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
            return str(cursor.fetchone()[1])
    finally:
        one.close()


def test_threads_that_connect_over_tls_all_at_once_all_do(
    tls_server: Server, authority: Path
) -> None:
    url = f"{tls_server.url('mysql')}?ssl-ca={authority / 'ca.pem'}"

    def again_and_again(_: int) -> set[str]:
        return {cipher_of(url) for _ in range(CONNECTIONS_EACH)}

    with ThreadPoolExecutor(THREADS) as threads:
        ciphers = set[str]().union(*threads.map(again_and_again, range(THREADS)))
    assert ciphers and "" not in ciphers, "each spoke TLS"


def test_a_server_that_an_unknown_authority_vouches_for_is_refused(
    tls_server: Server, tmp_path: Path
) -> None:
    other = make_authority(tmp_path)
    with pytest.raises(OperationalError, match=r"(?i)ssl|tls|certificate"):
        cipher_of(f"{tls_server.url('mysql')}?ssl-ca={other / 'ca.pem'}")


def test_a_server_without_tls_is_not_spoken_to_in_the_open(
    server_db: None, authority: Path
) -> None:
    with mortal_server(options=["--skip-ssl"]) as mortal:
        assert cipher_of(mortal.server.url("mysql")) == ""
        with pytest.raises(OperationalError, match=r"(?i)ssl|tls"):
            cipher_of(f"{mortal.server.url('mysql')}?ssl-ca={authority / 'ca.pem'}")


@pytest.mark.parametrize("option", ["charset=latin1", "ssl-mode=REQUIRED", "sslmode=require"])
def test_an_option_that_would_be_ignored_is_refused(option: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="ssl-ca"):
        database(f"mysql://ann:hunter2@db/bailing?{option}", default_path=Path("unused"))
