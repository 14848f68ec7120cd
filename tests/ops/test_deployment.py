"""Image, compose and proxy files: no secret, pinned, not root, and no setting that nobody reads."""

import re
from functools import cache

import pytest
import yaml

from kernel.conf import SETTINGS
from kernel.install import CREDENTIALS
from tests.tidy.tree import ROOT

DOCKERFILE, COMPOSE = (ROOT / "Dockerfile").read_text(), (ROOT / "compose.yaml").read_text()
NGINX = (ROOT / "ops" / "nginx.conf").read_text()
SERVICES = yaml.safe_load(COMPOSE)["services"]
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("bailing:")}
NAME = re.compile(r"\bBAILING_[A-Z0-9_]*[A-Z0-9]\b")
IN_SOURCE = re.compile(r"""["'](BAILING_[A-Z0-9_]*[A-Z0-9])["']""")


@cache
def settings_that_are_read() -> set[str]:
    """Rows of kernel/conf.py, and names that the product's source looks up."""
    sources = [
        path.read_text() for top in ("kernel", "console") for path in (ROOT / top).rglob("*.py")
    ]
    return {f"BAILING_{name.upper()}" for name in SETTINGS} | {
        name for text in sources for name in IN_SOURCE.findall(text)
    }


@pytest.mark.parametrize("text", [DOCKERFILE, COMPOSE, NGINX], ids=["image", "compose", "proxy"])
def test_every_setting_that_is_named_is_read_by_the_product(text: str) -> None:
    assert set(NAME.findall(text)) - settings_that_are_read() == set()
    assert "BAILING_NO_SUCH_THING" not in settings_that_are_read()


def test_no_file_holds_a_secret() -> None:
    names = "|".join(name for name, _ in CREDENTIALS)
    for text in (DOCKERFILE, COMPOSE):
        for value in re.findall(rf"(?:{names})\s*[:=]\s*(\S+)", text):
            assert value.startswith("${"), value
        assert not re.search(r"[A-Za-z0-9+/]{32}", text.replace("/", " "))
        assert not re.search(r"://[^\s/@]*:[^\s/@]+@", text)
    assert "ARG" not in DOCKERFILE, "build arguments stay in the image's history"
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*", "an allow-list"


def test_every_image_is_pinned_to_a_version() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    images = bases + [service["image"] for service in SERVICES.values()]
    assert len(images) == 2 + len(SERVICES)
    for image in images:
        assert re.search(r":\d+\.\d+", image), image
        assert "latest" not in image


def test_the_image_runs_as_nobody_in_particular_and_is_looked_after() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    (user,) = re.findall(r"^USER (\d+):", last, re.MULTILINE)
    assert int(user) >= 1000
    assert "HEALTHCHECK" in last and "/livez" in last
    assert "collectstatic" in DOCKERFILE and "--require-hashes" in DOCKERFILE
    assert "gcc" not in last, "the compiler stays in the first stage"
    for folder in re.findall(r"^COPY (\S+) /srv/bailing/", DOCKERFILE, re.MULTILINE):
        assert (ROOT / folder).exists(), folder


def test_compose_starts_web_worker_and_beat_after_the_migration_and_nothing_is_public() -> None:
    assert {"migrate", "web", "worker", "beat"} == OURS
    assert SERVICES["migrate"]["command"][-1] == "db_init"
    for name in OURS:
        service = SERVICES[name]
        assert service["environment"]["BAILING_ENGINE"] == "celery"
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        if name != "migrate":
            waits = service["depends_on"]["migrate"]["condition"]
            assert waits == "service_completed_successfully"
    assert SERVICES["worker"]["command"][1:6] == ["-m", "celery", "-A", "console.celery", "worker"]
    assert SERVICES["beat"]["command"][1:6] == ["-m", "celery", "-A", "console.celery", "beat"]
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    assert SERVICES["mysql"]["image"] == "mysql:8.4"


def test_the_database_of_compose_is_durable_and_the_grace_covers_the_close() -> None:
    flags = SERVICES["mysql"]["command"]
    assert "--innodb-flush-log-at-trx-commit=1" in flags and "--sync-binlog=1" in flags
    assert "--max-allowed-packet=16M" in flags
    for name in OURS:
        grace = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
        assert grace > SETTINGS["close_budget_seconds"].default


def test_the_proxy_overwrites_what_clients_say_and_repeats_nothing() -> None:
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in NGINX
    assert "$proxy_add_x_forwarded_for" not in NGINX
    assert "proxy_next_upstream off;" in NGINX and "proxy_buffering off;" in NGINX
