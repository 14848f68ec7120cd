"""Django's settings for tests: the production ones, on a throw-away database and synthetic secrets.

BAILING_TEST_DATABASE = sqlite (default) or mysql chooses the engine of a pytest run; the fixtures
find or start the server. A child process gets its database in BAILING_TEST_DATABASE_URL.
"""

import os
import secrets
import tempfile
from pathlib import Path

from tests.support.environment import strip_environment

strip_environment()

from console.settings import *  # noqa: E402, F403  - after the environment is clean
from console.settings import database  # noqa: E402

RUN_NAME = f"bz_test_{secrets.token_hex(8)}"
VAR_DIR = Path(tempfile.gettempdir()) / f"{RUN_NAME}.var"
TEST_DATABASE = os.environ.get("BAILING_TEST_DATABASE") or "sqlite"


def _test_database() -> dict[str, object]:
    sqlite_file = Path(tempfile.gettempdir()) / f"{RUN_NAME}.sqlite3"
    if url := os.environ.get("BAILING_TEST_DATABASE_URL"):
        return database(url, default_path=sqlite_file)
    if TEST_DATABASE == "sqlite":
        # The fixture that makes the run's directory fills in the file's name.
        return {**database("", default_path=sqlite_file), "TEST": {"NAME": str(sqlite_file)}}
    if TEST_DATABASE == "mysql":
        # Host and port are filled in by the fixture that starts or finds the server.
        entry = database(f"mysql://root@127.0.0.1:9/{RUN_NAME}", default_path=sqlite_file)
        return {**entry, "TEST": {**entry["TEST"], "NAME": RUN_NAME}}
    raise ValueError(f"BAILING_TEST_DATABASE must be sqlite or mysql, not {TEST_DATABASE!r}")


DATABASES = {"default": _test_database()}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOW_PLAIN_MIGRATE = True
# Each test client would scan every static file; looking a file up when asked for is enough here.
WHITENOISE_AUTOREFRESH = True
