"""manage.py service: add, list, change, retire (A12, L4)."""

import pytest

from kernel.models import AuditRow, Service
from tests.management.running import done, last_act, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")

ADD = ("service", "add", "gpt", "--base-url", "https://api.openai.com/v1", "--model", "gpt-4o")


def test_an_added_service_says_where_it_sends_and_what_a_request_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    answer = done(*ADD, "--api-key-env", "OPENAI_API_KEY", "--price", "openai/gpt-4o")
    row = Service.objects.get(id="gpt")
    assert (row.price_provider, row.price_model) == ("openai", "gpt-4o")
    assert row.api_key_env == "OPENAI_API_KEY"
    assert not row.allow_private
    assert "https://api.openai.com/v1/chat/completions" in answer.out
    assert "a request of 1,000 input and 500 output tokens costs $0.0075" in answer.out
    assert "OPENAI_API_KEY is not set here" in answer.out
    assert last_act().action == "service.add"


def test_the_keys_value_is_never_stored_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-value")
    answer = done(*ADD, "--api-key-env", "OPENAI_API_KEY", "--price", "openai/gpt-4o")
    stored = repr(list(Service.objects.values())) + repr(list(AuditRow.objects.values()))
    assert "sk-canary-value" not in stored + answer.out
    assert "is not set here" not in answer.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--base-url", "http://127.0.0.1:9/v1"], "needs --allow-private"),
        (["--base-url", "http://169.254.169.254/v1", "--allow-private"], "is not allowed"),
        (["--base-url", "ftp://x.example"], "only http:// and https://"),
        (["--base-url", "https://me:pw@x.example/v1"], "no user name or password"),
        (["--base-url", "https://x.example/v1?key=1"], "without ? and #"),
        (["--base-url", "https://x.example/" + "y" * 600], "500 characters"),
        (["--model", " "], "model must have 1-200 characters"),
        (["--api-key-env", "sk-abc"], "the name of an environment variable"),
        (["--price", "gpt-4o"], "write provider/model"),
        (["--max-output-tokens", "ten"], "not a whole number"),
        (["--max-output-tokens", "10000001"], "max_output_tokens: between 1 and 10,000,000"),
        (["--account", "ghost"], "no account ghost"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_leaves_nothing(
    words: list[str], says: str
) -> None:
    answer = run(*ADD, *words)
    assert answer.code == 1
    assert says in answer.error
    assert not Service.objects.exists()


def test_a_refused_address_is_not_repeated_because_it_may_hold_a_password() -> None:
    assert "s3cret" not in run(*ADD, "--base-url", "https://me:s3cret@x.example").error


def test_a_service_without_a_known_price_says_what_will_happen() -> None:
    out = done(*ADD, "--price", "cx/gpt-5.5").out
    assert "nothing is known for cx/gpt-5.5" in out
    assert "manage.py price add cx/gpt-5.5" in out
    assert "price: none" in done(*ADD[:2], "bare", *ADD[3:]).out


def test_the_list_names_every_service_and_filters_by_account() -> None:
    assert "service add" in done("service", "list").out
    lives.open_account("acme")
    lives.open_account("zeta")
    done(*ADD, "--price", "openai/gpt-4o", "--account", "acme", "--max-output-tokens", "500")
    lines = done("service", "list").out.splitlines()
    assert lines[1].split() == [
        "gpt",
        "acme",
        "https://api.openai.com/v1",
        "gpt-4o",
        "openai/gpt-4o",
        "-",
        "500",
        "active",
    ]
    (document,) = done("service", "list", "--account", "acme", "--json").document
    assert (document["service_id"], document["price"]) == ("gpt", "openai/gpt-4o")
    assert done("service", "list", "--account", "zeta", "--json").document == []


def test_a_change_touches_only_what_was_named_and_an_empty_text_clears() -> None:
    done(
        *ADD,
        "--price",
        "openai/gpt-4o",
        "--max-output-tokens",
        "500",
        "--api-key-env",
        "OPENAI_API_KEY",
    )
    done(
        "service",
        "change",
        "gpt",
        "--price",
        "openai/gpt-4",
        "--max-output-tokens",
        "0",
        "--api-key-env",
        "",
        "--reason",
        "cheaper",
    )
    row = Service.objects.get(id="gpt")
    assert (row.price_model, row.max_output_tokens, row.api_key_env) == ("gpt-4", None, "")
    assert (row.model, row.version) == ("gpt-4o", 2)
    assert last_act().reason == "cheaper"
    done("service", "change", "gpt", "--price", "")
    assert Service.objects.get(id="gpt").price_provider == ""


def test_a_private_address_needs_its_permission_in_a_change_too() -> None:
    done(*ADD)
    local = ("service", "change", "gpt", "--base-url", "http://10.0.0.7/v1")
    assert "--allow-private" in run(*local).error
    done(*local, "--allow-private", "yes")
    assert "--allow-private" in run("service", "change", "gpt", "--allow-private", "no").error


def test_a_retired_service_takes_nothing_new_and_can_come_back() -> None:
    done(*ADD)
    assert "retired" in done("service", "retire", "gpt", "--reason", "old").out
    assert not Service.objects.get(id="gpt").active
    assert last_act().reason == "old"
    assert "was retired before" in done("service", "retire", "gpt").out
    assert AuditRow.objects.filter(action="service.change").count() == 1
    done("service", "change", "gpt", "--active", "yes")
    assert Service.objects.get(id="gpt").active


def test_what_is_not_there_is_said() -> None:
    assert "No service gpt." in run("service", "retire", "gpt").error
    assert "No service gpt." in run("service", "change", "gpt", "--model", "x").error
    assert "Say what to change" in run("service", "change", "gpt").error
    done(*ADD)
    assert "A service named gpt exists." in run(*ADD).error
