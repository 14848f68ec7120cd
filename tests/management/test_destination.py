"""manage.py destination: add, list, show, change, test, close, open; no secret is printed (L4)."""

import pytest

from kernel.models import Destination, Notification
from tests.management.running import done, last_act, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")

ADD = (
    *("destination", "add", "ops", "--account", "acme", "--channel", "webhook"),
    *("--address", "https://hooks.example/1", "--secret-env", "OPS_SECRET"),
    *("--event", "job", "--event", "approval"),
)


@pytest.fixture(autouse=True)
def account(kernel_db: None) -> None:
    lives.open_account()


def test_a_destination_is_added_listed_shown_and_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    out = done(*ADD).out
    assert "Destination ops added" in out and "OPS_SECRET is not set here" in out
    assert last_act().action == "destination.create"
    monkeypatch.setenv("OPS_SECRET", "a secret of more than 16 bytes")
    assert "approval job" in done("destination", "list").out
    (document,) = done("destination", "list", "--account", "acme", "--json").document
    assert document["events"] == ["approval", "job"] and document["secret_env"] == "OPS_SECRET"
    changed = done("destination", "change", "ops", "--event", "message", "--reason", "why").out
    assert "version 2" in changed and "a secret of" not in changed
    assert last_act().reason == "why"
    assert "sends message of acme" in done("destination", "show", "ops").out
    assert done("destination", "change", "ops", "--active", "no").code == 0
    assert "inactive" in done("destination", "show", "ops").out


def test_a_test_message_is_queued_and_a_destination_closed_and_opened() -> None:
    done(*ADD)
    out = done("destination", "test", "ops").out
    row = Notification.objects.get()
    assert row.id in out and row.destination_id == "ops"
    closed = done("destination", "close", "ops", "--seconds", "60", "--reason", "they asked").out
    assert "closed until" in closed
    assert Destination.objects.get().closed_until_at is not None
    assert "is open" in done("destination", "open", "ops").out
    assert Destination.objects.get().closed_until_at is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["change", "ops"], "Say what to change"),
        (["change", "ghost", "--event", "job"], "No destination ghost"),
        (["change", "ops", "--event", "nothing"], "no event is named nothing"),
        (["change", "ops", "--address", "ftp://x"], "the URL is refused"),
        (["change", "ops", "--secret-env", "my secret"], "environment variable"),
        (["test", "ghost"], "No destination ghost"),
        (["close", "ops", "--reason", "x", "--seconds", "0"], "seconds"),
    ],
)
def test_nonsense_is_refused_with_the_reason(words: list[str], says: str) -> None:
    done(*ADD)
    answer = run("destination", *words)
    assert answer.code == 1
    assert says in answer.error
    assert Destination.objects.get().version == 1


def test_rules_are_added_listed_and_changed() -> None:
    done(*ADD)
    add = ("alert_rule", "add", "dead", "--event", "dead_letter", "--destination", "ops")
    assert "once per 300 s" in done(*add).out
    assert "dead_letter" in done("alert_rule", "list").out
    changed = ("alert_rule", "change", "dead", "--cooldown-seconds", "5", "--active", "no")
    assert "inactive" in done(*changed).out
    (document,) = done("alert_rule", "list", "--json").document
    assert (document["cooldown_seconds"], document["active"]) == (5, False)
    assert last_act().action == "alert_rule.change"
    assert "Say what to change" in run("alert_rule", "change", "dead").error
    refused = run("alert_rule", "add", "x", "--event", "message", "--destination", "ops")
    assert "no event is named message" in refused.error
    lost = run("alert_rule", "add", "x", "--event", "dead_letter", "--destination", "ghost")
    assert lost.error == "No destination ghost. Add it first: manage.py destination add --help"
