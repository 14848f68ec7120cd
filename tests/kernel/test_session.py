"""A start over a session that something overrides is refused, and names what (architecture 3)."""

import threading
from typing import Any

import pytest
from django.db import connection, connections

from kernel.errors import Unavailable
from kernel.kernel import Kernel
from kernel.session import check_session
from tests.support.fixtures import server_db

__all__ = ["server_db"]


def test_a_session_as_each_connection_asks_for_it_is_fine(kernel_db: None) -> None:
    check_session()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("character_set_connection", "utf8mb3"),
        ("character_set_results", "latin1"),
        ("time_zone", "'+02:00'"),
        ("sql_mode", "''"),
        ("isolation", "'REPEATABLE-READ'"),
    ],
)
def test_what_overrides_a_session_is_named(server_db: None, name: str, value: str) -> None:
    if name == "isolation":
        is_mariadb = connection.mysql_is_mariadb  # type: ignore[attr-defined]  # mysql only
        name = "tx_isolation" if is_mariadb else "transaction_isolation"
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION {name} = {value}")
        with pytest.raises(Unavailable, match=name) as refusal:
            check_session()
    finally:
        connection.close()
    assert refusal.value.error_code == "database_session"
    assert "doctor" in refusal.value.way_out


async def test_a_kernel_refuses_to_start_over_sessions_of_three_byte_text(
    server_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = connections.settings["default"]["OPTIONS"]
    monkeypatch.setitem(options, "charset", "utf8mb3")
    before = threading.active_count()
    with pytest.raises(Unavailable, match="character_set_client=utf8mb3"):
        await Kernel().initialize()
    assert threading.active_count() == before, "nothing is left running"
