"""`make crash`: the whole proof at full size, engine by engine, into docs/crash-report.md.

python -m tests.support.crash_run             SQLite, then the server
python -m tests.support.crash_run sqlite      only that
python -m tests.support.crash_run server      the one of BAILING_TEST_MYSQL_URL, or a private one

The exit code is 0 only when on each engine every suite ran, every planned fault fired, nothing was
violated and every mutant was killed.
"""

import sqlite3
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from tests.support import crash_report, suites
from tests.support.crash_report import Row, Section
from tests.support.faults import RECORD_VARIABLE
from tests.support.mariadb_server import Server, ServerUnavailable, the_server
from tests.support.sizes import FULL, SIZE_VARIABLE
from tests.support.suites import Outcome, Suite

REPORT = Path(__file__).resolve().parents[2] / "docs" / "crash-report.md"
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


def _sweeps(database: str, *more: str) -> list[Suite]:
    return [
        Suite(name, f"Every boundary: {what}", database, [*files, *more])
        for name, (what, files) in SWEEPS.items()
    ]


# The longest first. What has no server of its own to kill runs on SQLite as well.
SUITES = {
    "server": [
        Suite("races", "Races", "mysql", ["tests/races"]),
        *_sweeps("mysql"),
        Suite("histories", "Random histories", "mysql", ["tests/histories"]),
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
        Suite("histories", "Random histories", "sqlite", ["tests/histories", *NO_SERVER]),
        *_sweeps("sqlite", *NO_SERVER),
        # That the sweep bites is shown once, on the engine where it takes the least.
        Suite("sweep-bites", "Sweep of mutants", "sqlite", [BITES, *NO_SERVER]),
    ],
}


def run_on(engine: str, directory: Path) -> Section:
    """Every suite of an engine at full size; the section of the report."""
    with ExitStack() as stack:
        server = stack.enter_context(the_server()) if engine == "server" else None
        name = server.version if server else f"SQLite {sqlite3.sqlite_version}"
        print(f"\n=== {name}", flush=True)
        return _section(SUITES[engine], server, name, directory)


def _section(chosen: list[Suite], server: Server | None, name: str, directory: Path) -> Section:
    """Run them and read the records that they leave."""
    records = {suite.name: directory / f"{suite.name}.json" for suite in chosen}
    sized = [_at_full_size(suite, records[suite.name]) for suite in chosen]
    started = time.monotonic()
    outcomes = suites.run_all(sized, server, directory, lanes=LANES)
    seconds = time.monotonic() - started
    rows = [_row(suite.name, records[suite.name], outcomes[suite.name]) for suite in chosen]
    mutants, survivors = crash_report.mutants_in(records.values())
    date = crash_report.today(datetime.now(UTC))
    beside = crash_report.beside_in(records.values())
    return Section(name, date, rows, round(seconds), mutants, survivors, beside)


def _at_full_size(suite: Suite, record: Path) -> Suite:
    environment = {
        SIZE_VARIABLE: FULL,
        RECORD_VARIABLE: str(record),
        **suite.environment,
    }
    return Suite(suite.name, suite.title, suite.database, suite.arguments, environment)


def _row(name: str, record: Path, outcome: Outcome) -> Row:
    """A suite that ended badly without a failed test (a broken import, no tests) has failed too."""
    failed = outcome.failed or int(outcome.exit_code != 0)
    return crash_report.row_of(name, record=record, failed=failed, seconds=outcome.seconds)


def main(engines: list[str], *, report: Path = REPORT) -> int:
    """Run on the named engines (all without names) and write the report."""
    if unknown := set(engines) - set(SUITES):
        print(f"no such engine: {' '.join(sorted(unknown))}; {__doc__}", file=sys.stderr)
        return 2
    holds = True
    for engine in engines or ["sqlite", "server"]:
        with tempfile.TemporaryDirectory(prefix="bz-proof-") as directory:
            try:
                section = run_on(engine, Path(directory))
            except ServerUnavailable as error:
                print(f"No database server for the proof: {error}", file=sys.stderr)
                return 1
        crash_report.put(report, section)
        print(f"\n{section.text()}", flush=True)
        holds = holds and section.holds
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
