"""Destinations and alert rules: what they may hold, changes, audit (F1, F7, L4)."""

from typing import Any

import pytest

from kernel.audit import AlreadyDone
from kernel.audit.trail import Actor
from kernel.delivery import alerts, chat, destinations
from kernel.errors import Conflict, InvalidId, InvalidInput, LostRace, NotFound
from kernel.models import AuditRow, Destination
from tests.delivery import post
from tests.support.product import make_account

pytestmark = pytest.mark.usefixtures("kernel_db")


def acts(kind: str, object_id: str) -> list[str]:
    rows = AuditRow.objects.filter(subject=f"{kind}:{object_id}").order_by("sequence")
    return list(rows.values_list("action", flat=True))


def test_a_destination_is_added_changed_closed_and_opened_with_an_audit_row_each() -> None:
    row = post.destination()
    changed = destinations.change_destination(
        destination_id="ops", seen_version=1, actor=post.ANN, events=["job", "approval"]
    )
    assert (row.version, changed.version) == (1, 2)
    assert changed.events_text == '["approval", "job"]' and changed.address == row.address
    closed = destinations.close_destination(
        destination_id="ops", actor=post.ANN, reason="they asked", seconds=60
    )
    assert closed.closed_until_at is not None
    opened = destinations.open_destination(destination_id="ops", actor=post.ANN)
    assert (opened.closed_until_at, opened.failures) == (None, 0)
    destinations.send_test(destination_id="ops", actor=post.ANN)
    assert acts("destination", "ops") == [
        f"destination.{each}" for each in ("create", "change", "close", "open", "test")
    ]


def test_a_change_of_what_somebody_else_changed_is_lost() -> None:
    post.destination()
    change: dict[str, Any] = {"destination_id": "ops", "seen_version": 1, "actor": post.ANN}
    destinations.change_destination(**change, active=False)
    with pytest.raises(LostRace):
        destinations.change_destination(**change, active=True)


def test_one_form_makes_one_destination_and_one_test() -> None:
    make_account()
    form = Actor("user", "ann", act_key="form-1")
    values: dict[str, Any] = {
        "account_id": "acme",
        "channel": "email",
        "address": "ops@example.org",
        "events": ["job"],
    }
    row = destinations.create_destination(actor=form, **values)
    with pytest.raises(AlreadyDone):
        destinations.create_destination(actor=form, **values)
    again = Actor("user", "ann", act_key="form-2")
    destinations.send_test(destination_id=row.id, actor=again)
    with pytest.raises(AlreadyDone):
        destinations.send_test(destination_id=row.id, actor=again)
    assert Destination.objects.count() == 1


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("channel", {"channel": "pigeon"}),
        ("address", {"address": ""}),
        ("address", {"address": "ftp://x"}),
        ("address", {"address": "https://user:secret@hooks.example/"}),
        ("address", {"address": "http://127.0.0.1/", "allow_private": False}),
        ("address", {"address": "http://169.254.169.254/"}),
        ("address", {"address": "https://hooks.example/\nx"}),
        ("address", {"channel": "email", "address": "ops@example.org, evil@example.org"}),
        ("address", {"channel": "email", "address": "no address"}),
        ("events", {"events": []}),
        ("events", {"events": ["jo"]}),
        ("events", {"events": ["nothing"]}),
        ("events", {"events": ["job."]}),
        ("events", {"events": "job"}),
        ("secret_env", {"secret_env": ""}),
        ("secret_env", {"secret_env": "whsec_c2VjcmV0"}),
        ("secret_env", {"secret_env": "A,B,C"}),
        ("secret_env", {"secret_env": "BAILING_WEBHOOK_SECRET"}),
        ("allow_private", {"allow_private": "yes"}),
        ("sender", {"channel": "email", "address": "a@b.example", "sender": "x\r\nBcc: y"}),
    ],
)
def test_what_a_destination_may_not_hold_is_named(field: str, values: dict[str, Any]) -> None:
    make_account()
    with pytest.raises(InvalidInput) as refusal:
        post.destination(**values)
    assert refusal.value.field == field
    assert not Destination.objects.exists()


def test_a_chat_destination_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "is_installed", lambda: False)
    with pytest.raises(InvalidInput, match="apprise is not installed"):
        post.destination(channel="apprise", address="slack://a/b/c")


def test_names_are_unique_and_accounts_must_exist() -> None:
    post.destination()
    with pytest.raises(Conflict):
        post.destination()
    with pytest.raises(InvalidId):
        post.destination("né", address="https://hooks.example/")
    with pytest.raises(NotFound):
        destinations.create_destination(
            account_id="nobody",
            channel="executor",
            address="x",
            events=["job"],
            actor=post.ANN,
        )


def test_another_accounts_destination_does_not_exist() -> None:
    post.destination()
    assert destinations.get_destination(destination_id="ops", account_id="acme").id == "ops"
    with pytest.raises(NotFound):
        destinations.get_destination(destination_id="ops", account_id="beta")
    assert destinations.list_destinations(account_id="beta") == []


# --- rules -------------------------------------------------------------------------------------


def test_a_rule_is_added_and_changed_with_an_audit_row_each() -> None:
    post.destination()
    row = post.rule("job", rule_id="jobs", cooldown_seconds=60)
    assert (row.event_prefix, row.cooldown_seconds, row.active) == ("job", 60, True)
    changed = alerts.change_rule(rule_id="jobs", actor=post.ANN, active=False, cooldown_seconds=5)
    assert (changed.active, changed.cooldown_seconds) == (False, 5)
    assert acts("alert_rule", "jobs") == ["alert_rule.create", "alert_rule.change"]
    assert [each.id for each in alerts.list_rules()] == ["jobs"]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("event_prefix", {"prefix": "message"}),
        ("event_prefix", {"prefix": "alert"}),
        ("event_prefix", {"prefix": ""}),
        ("cooldown_seconds", {"cooldown_seconds": 0}),
        ("cooldown_seconds", {"cooldown_seconds": 10**9}),
        ("cooldown_seconds", {"cooldown_seconds": True}),
    ],
)
def test_what_a_rule_may_not_hold_is_named(field: str, values: dict[str, Any]) -> None:
    post.destination()
    with pytest.raises(InvalidInput) as refusal:
        post.rule(**values)
    assert refusal.value.field == field


def test_a_rule_needs_its_destination() -> None:
    with pytest.raises(NotFound):
        post.rule(destination_id="nowhere")
