"""The environment of tests: nothing of an installation, no provider key, no other database (K5)."""

import os
from collections.abc import Mapping

# What a child process needs to find its interpreter, its home and its words.
PLAIN = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
# Names of ours that tests may be steered with; every other BAILING_* name is an installation's.
STEERING = (
    "BAILING_TEST_DATABASE",
    "BAILING_TEST_DATABASE_URL",
    "BAILING_TEST_MYSQL_URL",
    "BAILING_USAGE_PROCESS_CRASH_TEST",
    "BAILING_USAGE_TEST_MYSQL",
    "BAILING_APPROVAL_CONTINUATION_TEST_MYSQL",
    "BAILING_NOTIFICATION_TEST_MYSQL",
    "BAILING_NOTIFICATION_TEST_MYSQL_PORT",
    "BAILING_SCALEOUT_JOBS",
    "BAILING_SCALEOUT_BROKER",
    "BAILING_PROOF_SIZE",
    "BAILING_PROOF_RECORD",
)
# Synthetic credentials, so that nothing in a test depends on an installed `.env`.
SYNTHETIC = {
    "DJANGO_SECRET_KEY": "synthetic-secret-key-of-the-tests",
    "BAILING_ADMIN_PASSWORD": "synthetic-admin-password",
    "BAILING_API_TOKEN": "synthetic-api-token",
    "BAILING_EXECUTOR_TOKEN": "synthetic-executor-token",
    "BAILING_WEBHOOK_SECRET": "synthetic-webhook-secret",
    "BAILING_READ_ENV_FILE": "0",
    "BAILING_LOG_LEVEL": "WARNING",
}


def is_foreign(name: str) -> bool:
    """Whether a variable belongs to an installation or a provider and must not reach a test."""
    if name in STEERING:
        return False
    return name.startswith(("BAILING_", "MYSQL_", "DJANGO_SECRET")) or name.endswith(
        ("_API_KEY", "_API_TOKEN", "_SECRET_KEY", "_ACCESS_KEY", "_ACCESS_KEY_ID")
    )


def strip_environment() -> None:
    """Make this process's environment synthetic, once and for all. Called by tests/settings.py.

    A child process whose environment was built by child_environment() keeps it as it is.
    """
    if "BAILING_TEST_DATABASE_URL" in os.environ:
        return
    for name in [name for name in os.environ if is_foreign(name)]:
        del os.environ[name]
    os.environ.update(SYNTHETIC)


def child_environment(*, database_url: str, **more: str) -> dict[str, str]:
    """The whole environment of a child process that works on the database at `database_url`.

    The child uses tests.settings; `more` adds or replaces names, e.g. a smaller lease.
    """
    return {
        **{name: os.environ[name] for name in PLAIN if name in os.environ},
        **SYNTHETIC,
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "BAILING_TEST_DATABASE_URL": database_url,
        **more,
    }


def flag_is_set(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether one of the suite flags (K4) is set to something that means yes."""
    return environ.get(name, "") not in ("", "0")
