"""manage.py price: the operator's prices and the bundled data (A12, G77)."""

import json
from datetime import UTC, datetime

import pytest

from kernel.models import Price
from tests.management.running import done, last_act, run

pytestmark = pytest.mark.usefixtures("kernel_db")

ADD = ("price", "add", "openai/gpt-4o")


def test_an_added_price_shows_what_a_request_costs_beside_the_bundled_figure() -> None:
    answer = done(*ADD, "input=2.00", "output=8", "input_cached=0.5")
    assert "a request of 1,000 input and 500 output tokens costs $0.006\n" in answer.out
    assert "by the bundled data a request of 1,000 input and 500 output tokens costs $0.0075" in (
        answer.out
    )
    row = Price.objects.get()
    assert json.loads(row.rates_text) == {"input": "2", "output": "8", "input_cached": "0.5"}
    assert (row.version, row.created_by) == (1, f"command:{last_act().actor_id}")
    assert last_act().action == "price.add"


def test_a_model_may_hold_slashes() -> None:
    done("price", "add", "openrouter/openai/gpt-4o", "input=1", "output=1")
    row = Price.objects.get()
    assert (row.provider, row.model) == ("openrouter", "openai/gpt-4o")


def test_steps_and_tiers_are_typed_as_they_are_shown() -> None:
    words = ["input=1.25,200000:2.5", "output=10", "input@priority=5", "output@priority=20"]
    out = done("price", "add", "google/g", *words).out
    assert json.loads(Price.objects.get().rates_text)["input"] == [[0, "1.25"], [200000, "2.5"]]
    assert "  input=1.25,200000:2.5 output=10\n  input@priority=5 output@priority=20\n" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["input=1"], "needs an output rate"),
        (["input=1", "output=x"], "a rate is a decimal text"),
        (["input=1", "output=-2"], "a rate is a decimal text"),
        (["input=1", "output"], "write a rate as unit=number"),
        (["input=1", "output=2", "input=3"], "input is given twice"),
        (["input=1", "output=2", "speech=3"], "no such unit: speech"),
        (["input=1,many:2", "output=2"], "write a step as tokens:rate"),
        (["input=1,5:2,5:3", "output=2"], "each border once"),
        (["input=1", "output=2", "--from", "soon"], "write a time such as"),
        (["input=1", "output=2", "--until", "2001-01-01"], "the end must lie after the start"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_adds_nothing(words: list[str], says: str) -> None:
    answer = run(*ADD, *words)
    assert answer.code == 1
    assert says in answer.error
    assert not Price.objects.exists()


@pytest.mark.parametrize("name", ["gpt-4o", "/gpt-4o", "openai/", "a\nb/c", "x" * 121 + "/m"])
def test_a_price_needs_provider_and_model(name: str) -> None:
    assert run("price", "add", name, "input=1", "output=2").code == 1
    assert not Price.objects.exists()


def test_a_rate_that_was_meant_per_token_needs_a_confirmation() -> None:
    per_token = (*ADD, "input=0.0000025", "output=0.00001")
    refused = run(*per_token)
    assert "is not plausible; was it meant per one?" in refused.error
    assert "--confirm" in refused.error
    assert not Price.objects.exists()
    done(*per_token, "--confirm")
    assert Price.objects.count() == 1


def test_versions_count_up_and_the_later_start_is_in_force() -> None:
    done(*ADD, "input=1", "output=1", "--from", "2025-01-01")
    done(*ADD, "input=3", "output=3", "--from", "2025-06-01T00:00:00+02:00")
    versions = done("price", "list", "--json").document
    assert [each["version"] for each in versions] == ["2", "1"]
    before = done("price", "show", "openai/gpt-4o", "--at", "2025-03-01", "--json").document
    assert (before["in_force"]["version"], len(before["operator_versions"])) == ("1", 2)
    now = done("price", "show", "openai/gpt-4o").out
    assert "openai/gpt-4o, operator version 2" in now
    assert "costs $0.0045" in now
    starts = Price.objects.order_by("version").values_list("valid_from_at", flat=True)
    assert list(starts) == [datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 5, 31, 22, tzinfo=UTC)]


def test_the_tenth_version_wins_over_the_ninth_of_the_same_start() -> None:
    for rate in range(1, 11):
        done(*ADD, f"input={rate}", "output=1", "--from", "2025-01-01")
    document = done("price", "show", "openai/gpt-4o", "--json").document
    assert document["in_force"]["version"] == "10"


def test_an_ended_price_leaves_the_bundled_one_in_force() -> None:
    done(*ADD, "input=1", "output=1", "--from", "2025-01-01", "--until", "2025-02-01")
    out = done("price", "show", "openai/gpt-4o").out
    assert "openai/gpt-4o, genai-prices version" in out
    assert "until 2025-02-01" in out


def test_without_any_price_show_says_so() -> None:
    assert "there is no price for cx/gpt-5.5" in done("price", "show", "cx/gpt-5.5").out
    assert done("price", "show", "cx/gpt-5.5", "--json").document["in_force"] is None
    assert "the bundled data applies" in done("price", "list").out


def test_lookup_shows_the_bundled_data_alone() -> None:
    done(*ADD, "input=99", "output=99")
    out = done("price", "lookup", "openai/gpt-4o").out
    assert "genai-prices version" in out
    assert "input=2.5" in out
    document = done("price", "lookup", "openai/gpt-4o", "--json").document
    assert document["usd_per_million"]["output"] == "10"


def test_lookup_offers_names_that_look_alike_and_guesses_none() -> None:
    answer = run("price", "lookup", "openai/gpt4o")
    assert answer.code == 1
    assert "has no openai/gpt4o" in answer.error
    assert "gpt-4o" in answer.error
    assert "no provider cx" in run("price", "lookup", "cx/gpt-5.5").error
    assert "write provider/model" in run("price", "lookup", "gpt-4o").error
