"""The doctor on host and environment: secrets, disk, doors, targets; no secret is ever shown."""

import ipaddress
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel import clock
from kernel.conf import override
from kernel.doctor.host import SECRETS, check_host, check_targets
from kernel.models import Destination, Service
from tests.doctor.conftest import WELL

ALL = [ipaddress.ip_network("0.0.0.0/0")]


@pytest.fixture(autouse=True)
def place(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = settings.BASE_DIR = tmp_path
    settings.ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
    settings.BEHIND_TLS, settings.TRUSTED_PROXIES = False, ()


def found(**values: Any) -> dict[str, tuple[str, str]]:
    values.setdefault("environ", WELL)
    return {each.check: (each.level, each.seen) for each in check_host(**values)}


def test_where_all_is_well_every_check_is_ok_and_no_finding_holds_a_secret() -> None:
    everything = check_host(environ=WELL, headers={})
    assert [each for each in everything if each.level != "ok"] == []
    assert [each for each in everything if each.todo] == []
    text = repr(everything)
    assert [name for name, value in WELL.items() if value in text] == []


def test_secrets_that_are_missing_short_or_twice_the_same_are_found() -> None:
    first, second, *_ = SECRETS
    assert found(environ={**WELL, first: ""})[f"secrets.{first}"] == ("warning", "not set")
    short = found(environ={**WELL, first: "short"})
    assert short[f"secrets.{first}"][0] == "failure"
    assert "short" not in short[f"secrets.{first}"][1].split()
    assert found(environ={**WELL, first: WELL[second]})["secrets.distinct"][0] == "warning"


@pytest.mark.parametrize(("mode", "level"), [(0o600, "ok"), (0o640, "failure"), (0o604, "failure")])
def test_a_secrets_file_that_others_can_read_is_a_failure(
    tmp_path: Path, mode: int, level: str
) -> None:
    (tmp_path / ".env").write_text("X=1")
    (tmp_path / ".env").chmod(mode)
    assert found()["secrets.env_file"][0] == level


@pytest.mark.parametrize(
    ("free_mib", "level"), [(2048, "ok"), (2047, "warning"), (256, "warning"), (255, "failure")]
)
def test_little_room_for_var_is_found(
    monkeypatch: pytest.MonkeyPatch, free_mib: int, level: str
) -> None:
    usage = SimpleNamespace(free=free_mib * 1024 * 1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert found()["host.disk"][0] == level


@pytest.mark.parametrize(
    ("check", "level", "values"),
    [
        ("door.debug", "failure", {"DEBUG": True}),
        ("door.hosts", "failure", {"ALLOWED_HOSTS": ["*"]}),
        ("door.https", "warning", {"ALLOWED_HOSTS": ["bailing.example"]}),
        ("door.https", "ok", {"ALLOWED_HOSTS": ["bailing.example"], "BEHIND_TLS": True}),
        ("door.trusted_proxies", "failure", {"TRUSTED_PROXIES": ALL}),
        ("door.trusted_proxies", "failure", {"TRUSTED_PROXIES": [ipaddress.ip_network("::/0")]}),
        ("door.trusted_proxies", "ok", {"TRUSTED_PROXIES": [ipaddress.ip_network("10.0.0.5")]}),
    ],
    ids=str,
)
def test_doors_that_stand_open_are_found(
    settings: Any, check: str, level: str, values: dict[str, Any]
) -> None:
    for name, value in values.items():
        setattr(settings, name, value)
    assert found()[check][0] == level


def test_a_proxy_that_the_settings_do_not_know_and_one_that_says_nothing_are_found(
    settings: Any,
) -> None:
    told = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    assert "door.forwarded" not in found(), "the command line has no request"
    assert found(headers={})["door.forwarded"][0] == "ok"
    assert found(headers=told)["door.forwarded"][0] == "warning"
    settings.BEHIND_TLS, settings.TRUSTED_PROXIES = True, [ipaddress.ip_network("10.0.0.5")]
    assert found(headers=told)["door.forwarded"][0] == "ok"
    assert found(headers={})["door.forwarded"][0] == "warning"


def test_an_outgoing_proxy_in_the_environment_is_said_to_be_ignored() -> None:
    level, seen = found(environ={**WELL, "HTTPS_PROXY": "http://user:hunter2@proxy"})["calls.proxy"]
    assert (level, seen) == ("warning", "HTTPS_PROXY")


def test_a_broker_that_is_away_is_a_failure(settings: Any) -> None:
    assert found()["engine"][0] == "ok"
    settings.ENGINE = SimpleNamespace(is_celery=True, broker="redis://127.0.0.1:9")
    assert found()["engine"] == ("failure", "celery; redis://127.0.0.1:9 does not answer")


def test_targets_without_tls_private_ones_and_missing_secrets_are_named(kernel_db: None) -> None:
    now = clock.now()
    for name, url, env, private in (
        ("one", "https://api.example/v1", "ONE_KEY", False),
        ("two", "http://api.example/v1", "", False),
        ("three", "http://10.0.0.7/v1", "", True),
    ):
        Service.objects.create(
            id=name,
            base_url=url,
            api_key_env=env,
            allow_private=private,
            created_at=now,
            updated_at=now,
        )
    seen = {each.check: each for each in check_targets(environ=WELL)}
    assert "service three" in seen["calls.private"].seen and "two" not in seen["calls.private"].seen
    assert (seen["calls.tls"].level, seen["calls.tls"].seen.endswith("service two")) == (
        "warning",
        True,
    )
    assert seen["calls.secrets"].level == "failure"
    assert "ONE_KEY of service one" in seen["calls.secrets"].seen
    whole = check_targets(environ={**WELL, "ONE_KEY": "x"})
    assert {each.check: each.level for each in whole}["calls.secrets"] == "ok"


def test_keys_are_read_as_those_who_send_read_them(kernel_db: None) -> None:
    now = clock.now()
    Destination.objects.create(
        id="hook",
        account_id="acme",
        channel="webhook",
        address="https://hook.example/",
        secret_env="NEW_HOOK_SECRET,OLD_HOOK_SECRET",  # while they rotate
        created_at=now,
        updated_at=now,
    )
    both = {"NEW_HOOK_SECRET": "n" * 16, "OLD_HOOK_SECRET": "o" * 16}

    def seen(environ: dict[str, str]) -> tuple[str, list[str]]:
        (one,) = (each for each in check_targets(environ=environ) if each.check == "calls.secrets")
        return one.level, [name for name in both if name in one.seen]

    assert seen(both) == ("ok", [])
    assert seen({**both, "OLD_HOOK_SECRET": ""}) == ("failure", ["OLD_HOOK_SECRET"])
    declared = {**both, "BAILING_KEY_NAMES": "NEW_*"}
    assert seen(declared) == ("failure", ["OLD_HOOK_SECRET"]), "it is set, and nobody may read it"


def test_every_limit_of_the_doctor_is_a_setting() -> None:
    with override(disk_free_mib_warn=10**7, disk_free_mib_min=1):
        assert found()["host.disk"][0] == "warning"
