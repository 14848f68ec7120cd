"""manage.py tool: add, list, show, change (D4, L4)."""

import json
from pathlib import Path

import pytest

from kernel.models import AuditRow, Tool
from tests.management.running import done, last_act, run

pytestmark = pytest.mark.usefixtures("kernel_db")

SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
ADD = ("tool", "add", "refund", "--url", "https://shop.example/{order}", "--parameters")


def added(*words: str) -> Tool:
    done(*ADD, json.dumps(SCHEMA), *words)
    return Tool.objects.get(id="refund")


def test_an_added_tool_says_where_it_goes_and_when_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    answer = done(*ADD, json.dumps(SCHEMA), "--secret-env", "SHOP_KEY", "--effect", "Do {order}.")
    row = Tool.objects.get(id="refund")
    assert (row.method, row.side_effect, row.effect_text) == ("POST", True, "Do {order}.")
    assert "calls POST https://shop.example/{order}, at most 30 seconds" in answer.out
    assert "has side effects; policy: approval, high risk, 0 rules" in answer.out
    assert "SHOP_KEY is not set here" in answer.out
    assert last_act().action == "tool.create"


def test_schema_and_policy_are_read_from_files(tmp_path: Path) -> None:
    schema, policy = tmp_path / "schema.json", tmp_path / "policy.json"
    schema.write_text(json.dumps(SCHEMA, indent=2))
    policy.write_text('{"default": "auto", "risk": "low"}')
    done(*ADD, f"@{schema}", "--policy", f"@{policy}")
    row = Tool.objects.get(id="refund")
    assert json.loads(row.parameters_text) == SCHEMA
    assert json.loads(row.policy_text)["default"] == "auto"
    missing = run(*ADD, f"@{tmp_path}/none.json")
    assert missing.code != 0
    assert "none.json cannot be read" in missing.error


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--url", "https://{order}/"], "no {name} in its scheme or host"),
        (["--url", "http://127.0.0.1:9/{order}"], "needs --allow-private"),
        (["--parameters", '{"type":"object","anyOf":[]}'], "anyOf"),
        (["--policy", '{"default":"maybe","risk":"low"}'], "auto approval forbidden"),
        (["--secret-env", "sk-abc"], "the name of an environment variable"),
        (["--deadline-seconds", "0"], "from 1 to 600"),
        (["--effect", "Refund {sum}"], "which is no argument"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_leaves_nothing(
    words: list[str], says: str
) -> None:
    answer = run(*ADD, json.dumps(SCHEMA), *words)
    assert answer.code == 1
    assert says in answer.error
    assert not Tool.objects.exists()


def test_a_change_touches_what_was_named_and_makes_a_version() -> None:
    before = added("--calls-per-minute-max", "5", "--body-bytes-max", "1000")
    answer = done(
        *("tool", "change", "refund", "--side-effect", "no", "--active", "no"),
        *("--calls-per-minute-max", "0", "--reason", "season is over"),
    )
    row = Tool.objects.get(id="refund")
    assert "it is at version 2" in answer.out
    assert (row.side_effect, row.active, row.calls_per_minute_max) == (False, False, None)
    assert (row.url, row.body_bytes_max) == (before.url, 1000)
    assert AuditRow.objects.get(action="tool.change").reason == "season is over"
    nothing = run("tool", "change", "refund")
    assert "Say what to change" in nothing.error
    assert "no such tool" in run("tool", "change", "ghost", "--active", "no").error.lower()


def test_tools_are_listed_and_shown_for_people_and_scripts() -> None:
    assert "No tools. Add one" in done("tool", "list").out
    added()
    assert "https://shop.example/{order}" in done("tool", "list").out
    (listed,) = done("tool", "list", "--json").document
    shown = done("tool", "show", "refund", "--json").document
    assert listed == shown
    assert (shown["tool_id"], shown["parameters"], shown["version"]) == ("refund", SCHEMA, 1)
    text = done("tool", "show", "refund").out
    assert "Tool refund, version 1 (active)" in text
    assert '"required":["order"]' in text
