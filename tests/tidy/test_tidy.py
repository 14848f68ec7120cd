"""The habits of docs/architecture.md as tests: layers, sizes, compare-and-set, one door."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.tree import (
    PRODUCT,
    ROOT,
    at,
    calls,
    files,
    functions,
    imported,
    module_name,
    text_of,
    tree_of,
)

# Imports point downwards only: each module may know those of the rows before its own.
LAYERS = (
    "kernel.errors kernel.conf kernel.clock kernel.ids kernel.money kernel.states kernel.metrics"
    " kernel.tables kernel.ddl kernel.install kernel.apps kernel.csv_cells kernel.visible",
    "kernel.transactions",
    "kernel.models",
    "kernel.sql kernel.shapes kernel.session kernel.versions",
    "kernel.audit kernel.outbox kernel.http kernel.runtime kernel.schema kernel.checks",
    "kernel.usage kernel.state kernel.access",
    "kernel.approvals",
    "kernel.jobs kernel.delivery",
    "kernel.operations kernel.invariants kernel.startup kernel.retention kernel.doctor",
    "kernel.kernel",
    "kernel.api kernel.tasks kernel.demo",
    "console",
    "kernel.management",
)
# The leaves know each other in one order: errors and conf first.
WITHIN_A_LAYER = {
    ("kernel.ids", "kernel.errors"),
    ("kernel.clock", "kernel.errors"),
    ("kernel.metrics", "kernel.clock"),
    ("kernel.ddl", "kernel.tables"),
    ("kernel.runtime", "kernel.audit"),
    ("kernel.outbox", "kernel.schema"),
    ("kernel.outbox", "kernel.runtime"),
}
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row.split()}
STATEFUL = {"Request", "Job", "Approval", "Continuation", "Notification", "DeadLetter", "ToolCall"}
STATE_COLUMNS = ("result_state", "billing_state", "state")
WRITES = {"save", "create", "bulk_create", "bulk_update", "update", "delete"}
WRITES |= {"get_or_create", "update_or_create"}
FILE_LINES_MAX, FUNCTION_LINES_MAX = 400, 70


def layer_of(name: str) -> str:
    parts = name.split(".")
    return "console" if parts[0] == "console" else ".".join(parts[:2])


def test_imports_point_downwards_only() -> None:
    wrong = []
    for path in files(*PRODUCT):
        mine = layer_of(module_name(path))
        for name, node in imported(path):
            other = layer_of(name)
            if not name.startswith(PRODUCT) or other in (mine, "kernel"):
                continue
            assert mine in LEVEL, f"{mine} has no place in the layers"
            assert other in LEVEL, f"{other} has no place in the layers"
            if LEVEL[other] >= LEVEL[mine] and (mine, other) not in WITHIN_A_LAYER:
                wrong.append(f"{at(path, node)} {mine} -> {other}")
    assert wrong == []


def test_files_and_functions_stay_small() -> None:
    large = [
        f"{path}: {count} lines"
        for path in files(*PRODUCT, "tests")
        if (count := text_of(path).count("\n")) > FILE_LINES_MAX
    ]
    large += [
        f"{at(path, node)} {node.name}: {lines} lines"
        for path in files(*PRODUCT, "tests")
        for node in functions(path)
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert large == []


def test_every_module_says_what_it_is_in_its_first_line() -> None:
    silent = [
        str(path)
        for path in files(*PRODUCT, "tests")
        if text_of(path).strip() and not ast.get_docstring(tree_of(path))
    ]
    assert silent == []


def test_modules_are_named_after_what_they_are() -> None:
    vague = {"utils", "services", "managers", "helpers", "common", "misc"}
    assert [str(path) for path in files(*PRODUCT) if set(path.with_suffix("").parts) & vague] == []


def test_a_transaction_has_keyword_arguments_only() -> None:
    wrong = [
        at(path, node)
        for path in files(*PRODUCT)
        for node in functions(path)
        for decorator in node.decorator_list
        if ast.unparse(decorator) == "transaction" and (node.args.args or node.args.posonlyargs)
    ]
    assert wrong == []


def chain_of(call: ast.Call, function: ast.AST) -> str:
    """The text of what a method is called on; a local name stands for what it was assigned."""
    assert isinstance(call.func, ast.Attribute)
    texts = [ast.unparse(call.func.value)]
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if re.match(rf"{name}\b", texts[0]):
                texts.append(ast.unparse(node.value))
    return " ".join(texts)


def sets_state(call: ast.Call) -> bool:
    return any(k.arg is None or k.arg in STATE_COLUMNS for k in call.keywords)


def test_state_moves_only_by_compare_and_set() -> None:
    wrong = []
    for path in files(*PRODUCT):
        for function in functions(path):
            for name, call in calls(function):
                if name == "update" and isinstance(call.func, ast.Attribute) and sets_state(call):
                    chain = chain_of(call, function)
                    is_ours = any(f"{model}.objects" in chain for model in STATEFUL)
                    if is_ours and not re.search(r"\b(result_|billing_)?state(__in)?=", chain):
                        wrong.append(at(path, call))
                if name == "update_where_in_tx" and "state" not in ast.unparse(call.args[2]):
                    wrong.append(at(path, call))
                if name == "bulk_update":
                    wrong.append(at(path, call))
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and str(node.value).startswith("UPDATE bz_"):
                changes, _, where = str(node.value).partition(" WHERE ")
                if re.search(r"\bstate = ", changes) and not re.search(r"\bstate\b", where):
                    wrong.append(at(path, node))
    assert wrong == []


def test_rows_are_saved_only_when_they_are_new() -> None:
    people = Path("kernel/access/people.py")  # Django's users have no state of ours
    wrong = [
        at(path, call)
        for path in files(*PRODUCT)
        if path != people
        for name, call in calls(tree_of(path))
        if name == "save" and not any(k.arg == "force_insert" for k in call.keywords)
    ]
    assert wrong == []


ONLY_IN = {
    "atomic": ({"kernel/transactions.py"}, r"\.atomic\(|import atomic|on_commit\("),
    "httpx": ({"kernel/http"}, r"^\s*(import|from) (httpx|httpcore|requests|urllib3|aiohttp)"),
    "the time of day": (
        {"kernel/clock.py", "kernel/demo/provider.py"},  # the demo provider is another process
        r"timezone\.now\(|datetime\.(now|utcnow|today)\(|date\.today\(|[^_]time\.time\(",
    ),
}


@pytest.mark.parametrize("what", ONLY_IN)
def test_one_place_only(what: str) -> None:
    places, pattern = ONLY_IN[what]
    wrong = [
        f"{path}:{number}"
        for path in files(*PRODUCT)
        if not any(path.is_relative_to(place) for place in places)
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert wrong == []


def test_no_door_writes_rows() -> None:
    wrong = [
        at(path, call)
        for path in files("console", "kernel/api")
        for name, call in calls(tree_of(path))
        if name in WRITES and isinstance(call.func, ast.Attribute)
        if ".objects" in ast.unparse(call.func.value) or name in ("save", "bulk_create")
    ]
    assert wrong == []


def test_nothing_is_imported_inside_a_function() -> None:
    wrong = [
        at(path, node)
        for path in files(*PRODUCT)
        for function in functions(path)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert wrong == []


def test_a_type_ignore_says_why() -> None:
    wrong = [
        f"{path}:{number}"
        for path in files(*PRODUCT)
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if "# type: ignore" in line and not re.search(r"# type: ignore\[[\w-]+\]  # \w", line)
    ]
    assert wrong == []


def test_no_signals_and_no_rules_in_save() -> None:
    wrong = [
        at(path, node)
        for path in files(*PRODUCT)
        for node in functions(path)
        if (node.name == "save" and node.args.args and node.args.args[0].arg == "self")
        or any("receiver(" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    assert wrong == []


def test_the_rules_would_bite() -> None:
    source = (
        "def verb():\n"
        "    rows = Request.objects.filter(id=1)\n"
        "    rows.update(result_state='x')\n"
        "    Request.objects.filter(id=1, result_state='y').update(result_state='x')\n"
    )
    function = ast.parse(source).body[0]
    chains = [chain_of(call, function) for name, call in calls(function) if name == "update"]
    assert sorted("result_state" in chain for chain in chains) == [False, True]
    assert (ROOT / "kernel").is_dir()
