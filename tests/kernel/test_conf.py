"""The one table of limits: defaults, bounds, units, environment."""

import re

import pytest
from django.core.exceptions import ImproperlyConfigured

from kernel.conf import SETTINGS, Conf, conf, override

UNITS = (
    r"(_seconds|_milliseconds|_days|_bytes|_rows|_count|_batch|_mib|_tries|_attempts|_threads|_lost)"
    r"(_max|_min|_warn)?$"
)
ODD_NAMES = {"count_cap", "rate_usd_per_million_max", "rate_microusd_per_million_min"}
PLURALS = {"check_offenders_max"}

# The figures the specification names.
PROMISED = {
    "settlement_interval_seconds": 60,
    "settlement_page_rows": 50,
    "backoff_first_seconds": 60,
    "backoff_max_seconds": 300,
    "continuation_interval_seconds": 5,
    "dispatch_lease_seconds": 60,
    "dispatch_renewal_seconds": 15,
    "provider_deadline_seconds": 600,
    "job_lease_seconds": 60,
    "job_heartbeat_seconds": 15,
    "worker_lost_max": 3,
    "tool_body_bytes_max": 5 * 1024**2,
    "model_view_bytes_max": 64 * 1024,
    "audit_view_bytes_max": 8 * 1024,
    "remote_file_bytes_max": 20 * 1024**2,
    "attachment_bytes_max": 20 * 1024**2,
    "request_body_bytes_max": 10 * 1024**2,
    "result_retention_days": 30,
    "notification_attempts_max": 8,
    "notification_deadline_seconds": 30,
    "retry_after_seconds_max": 3600,
    "close_budget_seconds": 30,
}


def test_the_defaults_are_the_promised_ones() -> None:
    fresh = Conf({})
    assert {name: getattr(fresh, name) for name in PROMISED} == PROMISED


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_each_setting_has_its_unit_its_bounds_and_its_purpose(name: str) -> None:
    row = SETTINGS[name]
    assert re.search(UNITS, name) or name in ODD_NAMES | PLURALS, "the unit is in the name"
    assert row.low <= row.default <= row.high
    assert row.about


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_value_out_of_bounds_stops_the_start_and_names_the_variable(name: str) -> None:
    variable, row = f"BAILING_{name.upper()}", SETTINGS[name]
    assert getattr(Conf({variable: str(row.low)}), name) == row.low
    assert getattr(Conf({variable: ""}), name) == row.default
    fraction = ["1.5"] if isinstance(row.default, int) else []
    for wrong in (str(row.low - 1), str(row.high + 1), "many", "nan", "inf", *fraction):
        with pytest.raises(ImproperlyConfigured, match=variable):
            getattr(Conf({variable: wrong}), name)


def test_the_environment_is_read_at_the_first_use_not_at_import() -> None:
    environ: dict[str, str] = {}
    fresh = Conf(environ)
    environ["BAILING_SETTLEMENT_PAGE_ROWS"] = "7"
    assert fresh.settlement_page_rows == 7


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no setting"):
        _ = conf.settlement_intervall
    with pytest.raises(ValueError, match="no such setting"), override(settlement_intervall=1):
        pass


def test_an_override_ends_with_its_block_also_after_an_error() -> None:
    with pytest.raises(RuntimeError), override(settlement_page_rows=3):
        assert conf.settlement_page_rows == 3
        raise RuntimeError
    assert conf.settlement_page_rows == 50
