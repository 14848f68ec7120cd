"""Probes: alive without the database, ready with it, metrics from memory alone (H2, H3, J1)."""

import asyncio
import logging
import threading
from unittest import mock

import httpx
import pytest
from django.db import OperationalError

from console.asgi import create_application
from kernel import clock, schema
from kernel.api import probes
from kernel.conf import override
from kernel.runtime import Database
from kernel.schema import SchemaState
from tests.api.conftest import Api
from tests.support.product import ask, client_of, generate

KINDS = "callback delivery approval_webhook alert dead_letter settlement generation maintenance"


def state(**values: tuple[str, ...]) -> mock._patch:
    found = SchemaState(**{"missing": (), "unknown": (), "changed": (), **values})
    return mock.patch.object(schema, "state", lambda: found)


async def test_alive_needs_no_database_and_no_token(api: Api) -> None:
    with mock.patch.object(Database, "in_tx", side_effect=AssertionError("the database is asked")):
        async with client_of(api.kernel) as nobody:
            response = await nobody.get("/livez")
    assert (response.status_code, response.json()) == (200, {"status": "alive"})


async def test_ready_asks_the_database(api: Api) -> None:
    response = await api.client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"status": "ready", "engine": "in_process", "last_pass_seconds": None}
    await api.kernel.run_pass("receipts")
    with override(readiness_cache_seconds=0):
        told = (await api.client.get("/readyz")).json()
    assert 0 <= told["last_pass_seconds"] < 60


async def test_many_probes_share_one_look_at_the_database_and_its_answer_ages(api: Api) -> None:
    looks: list[str] = []

    def look() -> SchemaState:
        looks.append("schema")
        return SchemaState(missing=(f"00{len(looks)}",), unknown=(), changed=())

    with mock.patch.object(schema, "state", look), override(readiness_cache_seconds=60):
        answers = await asyncio.gather(*(api.client.get("/readyz") for _ in range(20)))
        assert looks == ["schema"]
        assert {one.json()["schema"]["missing"][0] for one in answers} == {"001"}
        later = clock.monotonic() + 61
        with mock.patch.object(clock, "monotonic", lambda: later):
            answer = await api.client.get("/readyz")
    assert (answer.status_code, answer.json()["schema"]["missing"]) == (503, ["002"])


async def test_a_probe_that_leaves_takes_the_answer_from_nobody(api: Api) -> None:
    reached, gate = threading.Event(), threading.Event()

    def look() -> SchemaState:
        reached.set()
        assert gate.wait(timeout=30)
        return SchemaState(missing=(), unknown=(), changed=())

    with mock.patch.object(schema, "state", look):
        first, second = (asyncio.create_task(api.client.get("/readyz")) for _ in range(2))
        await asyncio.to_thread(reached.wait, 30)
        first.cancel()
        gate.set()
        assert (await second).status_code == 200


def test_migration_files_are_hashed_once_per_process() -> None:
    schema.checksums()
    with mock.patch.object(schema, "_file_sha256", side_effect=AssertionError("read again")):
        assert len(schema.checksums()) > 4


@pytest.mark.parametrize("field", ["missing", "unknown", "changed", "gone"])
async def test_a_schema_that_does_not_fit_is_not_ready_and_says_what_to_run(
    api: Api, field: str
) -> None:
    with state(**{field: ("0064_baseline",)}):
        response = await api.client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["schema"][field] == ["0064_baseline"]
    ways = {"missing": "Run manage.py db_init.", "gone": "Somebody changed the database by hand"}
    way_out = ways.get(field, "Run the version that wrote it")
    assert response.json()["schema"]["next_action"].startswith(way_out)


async def test_without_an_optional_migration_it_is_ready_and_says_what_is_missing(
    api: Api,
) -> None:
    with state(missing=("0066_approval_continuations",)):
        response = await api.client.get("/readyz")
    assert response.status_code == 200
    assert response.json()["schema"]["missing"] == ["0066_approval_continuations"]


async def test_a_database_that_is_away_or_a_closing_kernel_is_not_ready(api: Api) -> None:
    with mock.patch.object(schema, "state", side_effect=OperationalError(2006, "gone")):
        response = await api.client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (503, "not ready")
    assert "gone" not in response.text
    api.kernel.background.stop_intake()
    response = await api.client.get("/readyz")
    assert (response.status_code, response.json()["closing"]) == (503, True)


# --- metrics ----------------------------------------------------------------------------------


def lines(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if line.startswith("bailing_"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


async def scrape(api: Api) -> dict[str, float]:
    response = await api.client.get("/metrics")
    assert response.status_code == 200
    return lines(response.text)


async def test_a_scrape_reads_memory_only(api: Api) -> None:
    with mock.patch.object(Database, "in_tx", side_effect=AssertionError("the database is asked")):
        await scrape(api)
    assert api.provider.count() == 0


async def test_metrics_tell_pending_work_by_kind_failures_and_drain_timeouts(api: Api) -> None:
    api.provider.next("hold", marker="op-1")
    flight = await api.kernel.gateway.submit(ask("op-1"))
    await api.wait_for_call()
    found = await scrape(api)
    for kind in KINDS.split():
        assert f'bailing_background_pending{{kind="{kind}"}}' in found
        assert f'bailing_background_failures_total{{kind="{kind}"}}' in found
    assert found['bailing_background_pending{kind="generation"}'] == 1
    assert found["bailing_provider_calls_running"] == 1
    assert found["bailing_drain_timeouts_total"] == 0
    api.provider.release("op-1")
    await flight.wait_ended()
    await api.settled()
    assert (await scrape(api))["bailing_provider_calls_running"] == 0


async def test_metrics_tell_the_latest_settlement_and_continuation_page(api: Api) -> None:
    await generate(api.kernel, ask("op-1"))
    await api.kernel.run_pass("settlement")
    found = await scrape(api)
    for page in ("settlement", "continuation"):
        for counter in ("scanned", "settled", "deferred", "failed", "has_more"):
            assert f'bailing_{page}_page{{counter="{counter}"}}' in found


async def test_labels_are_fixed_and_hold_no_ids(api: Api) -> None:
    await generate(api.kernel, ask("op-secret"))
    text = (await api.client.get("/metrics")).text
    assert "op-secret" not in text
    assert "acme" not in text
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert not [line for line in samples if "django_migrations" in line], "that export is off"


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.7", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "203.0.113.9"}, 401),
        ("127.0.0.1", {"Forwarded": "for=203.0.113.9"}, 401),
        ("10.0.0.7", {"Authorization": "Bearer wrong"}, 401),
        ("10.0.0.7", {"Authorization": "Bearer synthetic-api-token"}, 200),
    ],
    ids=str,
)
async def test_metrics_are_for_loopback_or_a_token(
    api: Api, peer: str, headers: dict[str, str], status: int
) -> None:
    transport = httpx.ASGITransport(create_application(api.kernel), client=(peer, 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://product.test") as client:
        assert (await client.get("/metrics", headers=headers)).status_code == status


async def test_a_scrape_never_logs(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await scrape(api)
    assert caplog.records == []
    assert probes.metrics is not None
