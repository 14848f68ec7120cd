"""`make crash`: the whole proof at full size, engine by engine, into docs/crash-report.md.

python -m tests.support.crash_run               SQLite, then the server
python -m tests.support.crash_run sqlite        only that
python -m tests.support.crash_run server        the one of BAILING_TEST_MYSQL_URL, or a private one
python -m tests.support.crash_run server races  one suite again, beside what the others came to

The report names the commit that each suite ran on. The exit code is 0 only when on each engine
every suite ran, every planned fault fired, nothing was violated and every mutant was killed.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from tests.support import crash_report, suites
from tests.support.crash_report import Row, Section
from tests.support.faults import RECORD_VARIABLE
from tests.support.mariadb_server import Server, ServerUnavailable, the_server
from tests.support.sizes import FULL, SIZE_VARIABLE
from tests.support.suites import Suite

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "crash-report.md"
# What each suite came to, by engine: a suite that runs again stands beside the others' last run.
KEPT = ROOT / "var" / "proof"
# A killed or cut process is mostly waited for: more suites side by side than there are cores.
LANES = 4
NO_SERVER = ["-m", "not server"]
SWEEP = "tests/crash/sweep"
SWEEPS = {
    "sweep-model-requests": ("model requests", [f"{SWEEP}/test_model_requests.py"]),
    "sweep-jobs": ("jobs", [f"{SWEEP}/test_jobs.py"]),
    "sweep-delivery": ("delivery", [f"{SWEEP}/test_delivery.py"]),
}
BITES = f"{SWEEP}/test_bites.py"
RANDOM_HISTORIES = "tests/histories/test_random_histories.py"


def _sweeps(database: str, *more: str) -> list[Suite]:
    return [
        Suite(name, f"Every boundary: {what}", database, [*files, *more])
        for name, (what, files) in SWEEPS.items()
    ]


def _histories(database: str, *more: str) -> list[Suite]:
    """Two halves of 1,000, each with a seed of its own: one suite would run alone in the end."""
    return [
        Suite("histories", "Random histories", database, ["tests/histories", *more]),
        Suite("histories-more", "Random histories, more", database, [RANDOM_HISTORIES, *more]),
    ]


# The longest first. What has no server of its own to kill runs on SQLite as well.
SUITES = {
    "server": [
        *_histories("mysql"),
        Suite("races", "Races", "mysql", ["tests/races"]),
        *_sweeps("mysql"),
        Suite("windows", "Windows", "mysql", ["tests/crash", f"--ignore={SWEEP}"]),
        Suite("scale-out", "Scale-out, Redis", "mysql", ["tests/scaleout"]),
        Suite(
            "scale-out-rabbitmq",
            "Scale-out, RabbitMQ",
            "mysql",
            ["tests/scaleout/test_many_jobs.py"],
            {"BAILING_SCALEOUT_BROKER": "rabbitmq"},
        ),
    ],
    "sqlite": [
        *_histories("sqlite", *NO_SERVER),
        *_sweeps("sqlite", *NO_SERVER),
        # That the sweep bites is shown once, on the engine where it takes the least.
        Suite("sweep-bites", "Sweep of mutants", "sqlite", [BITES, *NO_SERVER]),
    ],
}


def run_on(engine: str, names: list[str], kept: Path) -> Section:
    """Suites of an engine at full size, all without names; the section of the report.

    `kept` holds what each came to. ValueError for a name that the engine has no suite of.
    """
    if unknown := set(names) - {suite.name for suite in SUITES[engine]}:
        raise ValueError(f"{engine} has no suite {' '.join(sorted(unknown))}")
    with ExitStack() as stack:
        server = stack.enter_context(the_server()) if engine == "server" else None
        name = server.version if server else f"SQLite {sqlite3.sqlite_version}"
        print(f"\n=== {name}", flush=True)
        folder = kept / name.split()[0]
        if not names:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = [suite for suite in SUITES[engine] if not names or suite.name in names]
        _run(chosen, server, folder)
    return _section([suite.name for suite in SUITES[engine]], name, folder)


def _run(chosen: list[Suite], server: Server | None, folder: Path) -> None:
    """Run them; each leaves its record and what became of it."""
    for suite in chosen:
        _record(folder, suite.name).unlink(missing_ok=True)
    sized = [_at_full_size(suite, _record(folder, suite.name)) for suite in chosen]
    commit = _commit()
    with tempfile.TemporaryDirectory(prefix="bz-proof-") as directory:
        outcomes = suites.run_all(sized, server, Path(directory), lanes=LANES)
    for name, outcome in outcomes.items():
        # A suite that ended badly without a failed test (a broken import, no tests) failed too.
        failed = outcome.failed or int(outcome.exit_code != 0)
        ended = {"failed": failed, "seconds": outcome.seconds, "commit": commit}
        _ended(folder, name).write_text(json.dumps(ended))


def _section(names: list[str], server: str, folder: Path) -> Section:
    """The section of an engine from what its suites left; one that never ran is a violation."""
    records = [_record(folder, name) for name in names]
    rows = [_row(name, folder) for name in names]
    mutants, survivors = crash_report.mutants_in(records)
    date = crash_report.today(datetime.now(UTC))
    return Section(server, date, rows, mutants, survivors, crash_report.beside_in(records))


def _row(name: str, folder: Path) -> Row:
    ended = {"failed": 1, "seconds": 0.0, "commit": ""}
    if _ended(folder, name).exists():
        ended = json.loads(_ended(folder, name).read_text())
    return crash_report.row_of(name, record=_record(folder, name), **ended)


def _record(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def _ended(folder: Path, name: str) -> Path:
    return folder / f"{name}.ended.json"


def _commit() -> str:
    """What is measured; a + says that files were changed since."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=8", "--dirty=+"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip()


def _at_full_size(suite: Suite, record: Path) -> Suite:
    environment = {
        SIZE_VARIABLE: FULL,
        RECORD_VARIABLE: str(record),
        **suite.environment,
    }
    return Suite(suite.name, suite.title, suite.database, suite.arguments, environment)


def main(words: list[str], *, report: Path = REPORT, kept: Path = KEPT) -> int:
    """Run the named suites (all without names) of the named engines, and write the report."""
    engines = [word for word in words if word in SUITES]
    names = [word for word in words if word not in SUITES]
    if names and len(engines) != 1:
        print(f"which engine is {' '.join(names)} of? {__doc__}", file=sys.stderr)
        return 2
    holds = True
    for engine in engines or ["sqlite", "server"]:
        try:
            section = run_on(engine, names, kept)
        except ServerUnavailable as error:
            print(f"No database server for the proof: {error}", file=sys.stderr)
            return 1
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        crash_report.put(report, section)
        print(f"\n{section.text()}", flush=True)
        holds = holds and section.holds
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
