"""A scrape reads memory; every name that rules and dashboard use is really exported (J1)."""

import io
import json
import os
import re
import socket
import threading
import urllib.request
from unittest import mock
from urllib.error import HTTPError

import pytest
import yaml
from django.conf import settings
from django.core.management import call_command
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import AsyncClient
from prometheus_client.parser import text_string_to_metric_families

from kernel import metrics
from kernel.metrics import serve_metrics
from kernel.runtime import Database
from tests.api.conftest import Api
from tests.support.environment import SYNTHETIC
from tests.support.product import ask, generate
from tests.tidy.tree import ROOT

RULES, DASHBOARD = ROOT / "ops" / "prometheus-rules.yml", ROOT / "ops" / "grafana-dashboard.json"
NAME = re.compile(r"\b(?:bailing|django)_\w+")
SELECTOR = re.compile(r"\b((?:bailing|django)_\w+)\{([^}]*)\}")
GROUPING = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"instance", "job", "le"}


def expressions() -> list[str]:
    rules = yaml.safe_load(RULES.read_text())["groups"]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [rule["expr"] for group in rules for rule in group["rules"]]
    return found + [target["expr"] for panel in panels for target in panel["targets"]]


async def exported(api: Api) -> dict[str, set[tuple[tuple[str, str], ...]]]:
    """Sample names with the label sets they came with."""
    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    text = (await api.client.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).add(tuple(sorted(sample.labels.items())))
    return found


async def test_every_metric_and_label_of_rules_and_dashboard_is_exported(api: Api) -> None:
    await generate(api.kernel, ask("op-1"))
    for each in api.kernel.passes:
        await api.kernel.run_pass(each.name)
    await api.client.get("/usage/v1/requests/op-1")
    await AsyncClient().get("/sign-in/")  # the console's own numbers begin with its first page
    found = await exported(api)
    used = {name for text in expressions() for name in NAME.findall(text)}
    assert len(used) >= 12
    assert used - set(found) == set()
    for text in expressions():
        for name, selector in SELECTOR.findall(text):
            pairs = set(re.findall(r'(\w+)="([^"]*)"', selector))
            assert any(pairs <= set(labels) for labels in found[name]), (name, selector)
        labels = {label for name in NAME.findall(text) for one in found[name] for label, _ in one}
        grouped = {one.strip() for group in GROUPING.findall(text) for one in group.split(",")}
        assert grouped <= labels | OF_PROMETHEUS, text


def test_every_alert_says_what_is_wrong_and_where_to_read() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["annotations"]["summary"]
        assert (ROOT / rule["annotations"]["runbook"]).is_file(), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "warn")


async def test_a_scrape_touches_no_database_and_no_network(api: Api) -> None:
    await generate(api.kernel, ask("op-1"))
    calls = api.provider.count()
    refuse = AssertionError("a scrape left the memory of its process")
    with (
        mock.patch.object(BaseDatabaseWrapper, "cursor", side_effect=refuse),
        mock.patch.object(BaseDatabaseWrapper, "connect", side_effect=refuse),
        mock.patch.object(BaseDatabaseWrapper, "ensure_connection", side_effect=refuse),
        mock.patch.object(Database, "in_tx", side_effect=refuse),
        mock.patch.object(socket.socket, "connect", side_effect=refuse),
        mock.patch.object(socket, "getaddrinfo", side_effect=refuse),
    ):
        response = await api.client.get("/metrics")
    assert response.status_code == 200
    assert "bailing_settlement_page" in response.text
    assert api.provider.count() == calls


def test_a_command_exports_nothing_and_leaves_nothing_behind(kernel_db: None) -> None:
    """A gauge of a command that has ended would stay in every later scrape."""
    before = {thread.name for thread in threading.enumerate()}
    call_command("db_init", stdout=io.StringIO())
    call_command("account", "list", stdout=io.StringIO())
    assert "bailing-metrics" not in {thread.name for thread in threading.enumerate()} - before
    assert settings.PROMETHEUS_EXPORT_MIGRATIONS is False
    assert getattr(settings, "PROMETHEUS_METRICS_EXPORT_PORT", None) is None
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


async def test_passes_tell_when_they_last_ended_and_how_often_they_failed(api: Api) -> None:
    key = (("name", "settlement"),)
    assert key not in (await exported(api)).get("bailing_pass_age_seconds", set())
    await api.kernel.run_pass("settlement")
    assert key in (await exported(api))["bailing_pass_age_seconds"]
    with mock.patch.object(api.kernel.settlement, "page", side_effect=ValueError("a defect")):
        await api.kernel.run_pass("settlement")
    text = (await api.client.get("/metrics")).text
    assert 'bailing_pass_failures_total{name="settlement"} 1.0' in text
    (left,) = re.findall(r'bailing_pass_backoff_seconds\{name="settlement"\} ([\d.]+)', text)
    assert float(left) > 0


async def test_answers_of_the_api_are_counted_by_class_and_probes_are_not(api: Api) -> None:
    def count(status: str) -> float:
        return metrics.ANSWERS.labels(status)._value.get()

    before = count("2xx"), count("4xx")
    await api.client.get("/livez")
    await api.client.get("/metrics")
    assert (count("2xx"), count("4xx")) == before
    await api.client.get("/usage/v1/requests/none-of-these")
    assert (count("2xx"), count("4xx")) == (before[0], before[1] + 1)


def scraped(
    port: int, path: str = "/metrics", *, host: str = "127.0.0.1", **headers: str
) -> tuple[int, str]:
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, ""


async def test_a_worker_serves_its_metrics_on_loopback_or_to_the_token(api: Api) -> None:
    port = serve_metrics(api.kernel, address="127.0.0.1:0")
    status, text = scraped(port)
    assert status == 200 and "bailing_background_pending" in text
    assert scraped(port, "/")[0] == 404
    assert serve_metrics(api.kernel, address="") == 0
    assert serve_metrics(api.kernel, address=f"127.0.0.1:{port}") == 0, "in use: it only says so"
    with pytest.raises(ValueError, match="BAILING_METRICS_ADDRESS"):
        serve_metrics(api.kernel, address="9464")
    elsewhere = serve_metrics(api.kernel, address="127.0.0.2:0")
    assert scraped(elsewhere, host="127.0.0.2")[0] == 401
    token = f"Bearer {SYNTHETIC['BAILING_API_TOKEN']}"
    assert scraped(elsewhere, host="127.0.0.2", Authorization=token)[0] == 200
    assert settings.METRICS_ADDRESS == ""
