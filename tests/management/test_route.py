"""manage.py route and manage.py pause (D4, L4)."""

from pathlib import Path

import pytest

from kernel.models import AuditRow, Pause, Route
from tests.management.running import done, last_act, run
from tests.support.product import make_service


@pytest.fixture(autouse=True)
def service(kernel_db: None) -> None:
    make_service()


def test_an_added_route_says_who_runs_it_within_which_limits(tmp_path: Path) -> None:
    done("tool", "add", "find", "--url", "https://shop.example/")
    text = tmp_path / "refunds.txt"
    text.write_text("Be brief.\nBe kind.")
    answer = done(
        *("route", "add", "refunds", "--service", "gpt", "--tool", "find"),
        *("--instructions", f"@{text}", "--cost-max", "0.50", "--tokens-max", "9000"),
    )
    row = Route.objects.get(id="refunds")
    assert (row.instructions, row.cost_nano_max, row.tokens_max) == (
        "Be brief.\nBe kind.",
        500_000_000,
        9000,
    )
    assert "run by our agent with the service gpt; tools: find" in answer.out
    assert "at most 20 steps, 900 seconds of work, 9000 tokens, cost $0.5" in answer.out
    assert last_act().action == "route.create"


def test_an_executor_route_has_no_service() -> None:
    answer = done("route", "add", "work", "--target", "executor")
    assert "run by an executor; tools: none" in answer.out
    assert "any number of tokens, cost no limit" in answer.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "an agent route needs one"),
        (["--service", "ghost"], "no service 'ghost'"),
        (["--service", "gpt", "--tool", "ghost"], "no tool 'ghost'"),
        (["--service", "gpt", "--steps-max", "0"], "from 1 to 1000"),
        (["--service", "gpt", "--tokens-max", "many"], "not a whole number"),
        (["--service", "gpt", "--cost-max", "-1"], "cost_nano_max is a whole number"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_leaves_nothing(
    words: list[str], says: str
) -> None:
    answer = run("route", "add", "refunds", *words)
    assert answer.code != 0
    assert says in answer.error
    assert not Route.objects.exists()


def test_a_change_touches_what_was_named_and_makes_a_version() -> None:
    done("route", "add", "refunds", "--service", "gpt", "--cost-max", "1", "--steps-max", "3")
    answer = done(
        *("route", "change", "refunds", "--cost-max", "none", "--active", "no"),
        *("--tool", "", "--reason", "calm"),
    )
    row = Route.objects.get(id="refunds")
    assert "it is at version 2" in answer.out
    assert (row.cost_nano_max, row.active, row.steps_max, row.service_id) == (None, False, 3, "gpt")
    assert AuditRow.objects.get(action="route.change").reason == "calm"
    assert "Say what to change" in run("route", "change", "refunds").error


def test_routes_are_listed_and_shown_for_people_and_scripts() -> None:
    assert "No routes. Add one" in done("route", "list").out
    done("route", "add", "refunds", "--service", "gpt", "--cost-max", "0.5")
    assert "refunds" in done("route", "list").out
    (listed,) = done("route", "list", "--json").document
    assert listed == done("route", "show", "refunds", "--json").document
    assert (listed["route_id"], listed["tools"], listed["cost_usd_max"]) == ("refunds", [], "0.5")
    assert "Route refunds, version 1 (active)" in done("route", "show", "refunds").out


def test_a_pause_is_set_listed_and_lifted() -> None:
    assert "Nothing is paused." in done("pause", "list").out
    done("route", "add", "refunds", "--service", "gpt")
    assert "manage.py pause lift" in done("pause", "set", "global", "--reason", "incident").out
    done("pause", "set", "route:refunds", "--reason", "audit")
    listed = done("pause", "list", "--json").document
    assert [(row["scope"], row["reason"]) for row in listed] == [
        ("global", "incident"),
        ("route:refunds", "audit"),
    ]
    assert "incident" in done("pause", "list").out
    again = run("pause", "set", "global", "--reason", "incident")
    assert again.code == 1
    assert "is paused already" in again.error
    done("pause", "lift", "global", "--reason", "over")
    assert list(Pause.objects.values_list("scope", flat=True)) == ["route:refunds"]
    assert last_act().action == "pause.lift"
    assert "is not paused" in run("pause", "lift", "global").error
    assert "no route ghost" in run("pause", "set", "route:ghost", "--reason", "x").error.lower()
