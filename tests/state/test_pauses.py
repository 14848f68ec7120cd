"""Pauses: set and lifted once, by somebody, for a reason (D4)."""

from typing import Any

import pytest

from kernel import clock, schema, state
from kernel.audit import Actor
from kernel.errors import Conflict, InvalidInput, NotFound, Unavailable
from kernel.models import AuditRow, Pause, Route
from kernel.state import pause_of_in_tx, paused_scopes
from kernel.transactions import transaction
from tests.usage.flow import at_once

pytestmark = pytest.mark.usefixtures("kernel_db")
OLGA = Actor("user", "olga")


def pause(scope: str = "global", reason: str = "incident 7") -> Pause:
    return state.pause(scope=scope, reason=reason, actor=OLGA)


def make_route(route_id: str) -> None:
    now = clock.db_now()
    Route.objects.create(id=route_id, created_at=now, updated_at=now)


@transaction
def stopper(*, route_id: str) -> str:
    row = pause_of_in_tx(route_id=route_id)
    return "" if row is None else row.scope


def test_a_pause_says_who_and_why_until_it_is_lifted() -> None:
    row = pause()
    assert (row.scope, row.reason, row.paused_by) == ("global", "incident 7", "user:olga")
    assert list(paused_scopes()) == ["global"]
    state.unpause(scope="global", actor=OLGA, reason="over")
    assert paused_scopes() == {}
    rows = AuditRow.objects.filter(subject="pause:global").order_by("sequence")
    assert list(rows.values_list("action", "reason")) == [
        ("pause.set", "incident 7"),
        ("pause.lift", "over"),
    ]


def test_the_pause_of_a_route_stops_that_route_and_the_global_one_all() -> None:
    make_route("refunds")
    make_route("x" * 128)
    pause("route:refunds")
    pause("route:" + "x" * 128)
    assert stopper(route_id="refunds") == "route:refunds"
    assert stopper(route_id="other") == ""
    pause()
    assert stopper(route_id="refunds") == stopper(route_id="other") == "global"


def test_of_two_who_pause_at_once_one_is_told_who_did() -> None:
    found = at_once(pause, pause)
    assert sorted(type(one).__name__ for one in found) == ["Conflict", "Pause"]
    (refusal,) = [one for one in found if isinstance(one, Conflict)]
    assert (refusal.error_code, refusal.details["paused_by"]) == ("already_paused", "user:olga")
    assert AuditRow.objects.count() == 1


def test_what_is_not_paused_cannot_be_lifted() -> None:
    with pytest.raises(Conflict) as refusal:
        state.unpause(scope="global", actor=OLGA)
    assert refusal.value.error_code == "not_paused"
    assert not AuditRow.objects.exists()


@pytest.mark.parametrize("scope", ["", "all", "GLOBAL", "route:", "route:ä", "route:a b", None, 5])
def test_a_scope_is_global_or_one_route(scope: Any) -> None:
    for act in (lambda: pause(scope), lambda: state.unpause(scope=scope, actor=OLGA)):
        with pytest.raises(InvalidInput) as refusal:
            act()
        assert refusal.value.field == "scope"
    assert not Pause.objects.exists()


def test_an_unknown_route_and_a_missing_reason_are_refused() -> None:
    with pytest.raises(NotFound):
        pause("route:ghost")
    for reason in ("", "  ", "two\nlines", "x" * 1001):
        with pytest.raises(InvalidInput) as refusal:
            pause(reason=reason)
        assert refusal.value.field == "reason"


def test_without_its_migration_pauses_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise Unavailable("missing", code="migration_missing", migration=name)

    monkeypatch.setattr(schema, "require", missing)
    for act in (pause, paused_scopes, lambda: state.unpause(scope="global", actor=OLGA)):
        with pytest.raises(Unavailable):
            act()
