"""The production profile as it starts: Django's own deployment check, cookies, headers, TLS."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEY = "Zm9yIHRoZSB0ZXN0cywgMTkyIGJpdHM="  # as long as openssl makes it
PRODUCTION = {
    "DJANGO_SECRET_KEY": KEY,
    "BAILING_BEHIND_TLS": "1",
    "BAILING_ALLOWED_HOSTS": "bailing.example.org",
    "BAILING_READ_ENV_FILE": "0",
}
SHOW = """
import json, django
django.setup()
from django.conf import settings as s
from django.core.checks import run_checks, registry
names = '''DEBUG SECURE_SSL_REDIRECT SECURE_HSTS_SECONDS SESSION_COOKIE_SECURE CSRF_COOKIE_SECURE
SESSION_COOKIE_HTTPONLY CSRF_COOKIE_HTTPONLY SESSION_COOKIE_SAMESITE X_FRAME_OPTIONS
SECURE_PROXY_SSL_HEADER USE_X_FORWARDED_HOST'''.split()
found = run_checks(include_deployment_checks=True)
print(json.dumps({
    **{name: getattr(s, name) for name in names},
    'proxies': [str(one) for one in s.TRUSTED_PROXIES],
    'warnings': [one.id for one in found if not one.is_silenced()],
    'silenced': sorted(one.id for one in found if one.is_silenced()),
}))
"""


def started(tmp_path: Path, **environ: str) -> dict:
    """The settings of a process with this environment, and what the check finds in it."""
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "BAILING_VAR_DIR": str(tmp_path),
            **PRODUCTION,
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_deployment_check_is_clean_and_what_is_silenced_has_its_reason(tmp_path):
    found = started(tmp_path)
    assert found["warnings"] == []
    # Key length (32 random characters), HSTS for hosts that are not ours, HSTS preload.
    assert found["silenced"] == ["security.W005", "security.W009", "security.W021"]
    assert found["DEBUG"] is False
    for name in (
        "SECURE_SSL_REDIRECT",
        "SESSION_COOKIE_SECURE",
        "CSRF_COOKIE_SECURE",
        "SESSION_COOKIE_HTTPONLY",
        "CSRF_COOKIE_HTTPONLY",
    ):
        assert found[name] is True, name
    assert found["SECURE_HSTS_SECONDS"] >= 31_536_000
    assert (found["SESSION_COOKIE_SAMESITE"], found["X_FRAME_OPTIONS"]) == ("Lax", "DENY")
    # No header of anybody is believed by Django itself.
    assert found["SECURE_PROXY_SSL_HEADER"] is None
    assert found["USE_X_FORWARDED_HOST"] is False
    assert found["proxies"] == ["127.0.0.1/32", "::1/128"]


@pytest.mark.parametrize("name", ["BAILING_TRUSTED_PROXIES"])
def test_a_wrong_setting_stops_the_start(tmp_path, name):
    with pytest.raises(AssertionError, match=name):
        started(tmp_path, **{name: "2"})
