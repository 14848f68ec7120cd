"""`make test`: the suites, two at a time where there are two cores, on one private server.

python -m tests.support.suites            all of them
python -m tests.support.suites crash      only those named

A suite alone shows its progress as it goes; side by side, each is printed whole when it ends.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.support.mariadb_server import Server, ServerUnavailable, the_server

# Every suite runs under all of them, so nothing is skipped for want of a flag (K4).
FLAGS = {
    "BAILING_USAGE_PROCESS_CRASH_TEST": "1",
    "BAILING_USAGE_TEST_MYSQL": "1",
    "BAILING_APPROVAL_CONTINUATION_TEST_MYSQL": "1",
    "BAILING_NOTIFICATION_TEST_MYSQL": "1",
}
SIDE_BY_SIDE_MAX = 2
SIGN_OF_LIFE_SECONDS = 60.0
OWN_SUITES = ("crash", "races", "histories", "scaleout", "browser", "bench")
EVERYTHING_ELSE = ["tests", *(f"--ignore=tests/{name}" for name in OWN_SUITES)]
NOT_THE_CONSOLE = "--ignore=tests/console"

HISTORIES = [f"tests/histories/test_{name}.py" for name in ("random_histories", "history_mutants")]


@dataclass(frozen=True, slots=True)
class Suite:
    """One pytest run: its name, what it runs on, pytest's arguments, what its environment adds."""

    name: str
    title: str
    database: str
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)


# The longest first: what is short fills the gap at the end, so that both lanes end together.
SUITES = (
    Suite("crash", "Crashes, races, scale-out", "mysql", [f"tests/{s}" for s in OWN_SUITES[:4]]),
    Suite(
        "mysql", "What touches the database, again", "mysql", [*EVERYTHING_ELSE, "-m", "database"]
    ),
    Suite(
        "sqlite", "All but the console, on SQLite", "sqlite", [*EVERYTHING_ELSE, NOT_THE_CONSOLE]
    ),
    Suite("browser", "The console in Chromium", "sqlite", ["tests/browser"]),
    Suite("histories", "Random histories, on SQLite too", "sqlite", HISTORIES),
    Suite("console", "The console's own tests, on SQLite", "sqlite", ["tests/console"]),
)


@dataclass(slots=True)
class Outcome:
    """What one suite came to: tests by result, exit code, seconds."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    exit_code: int = 0
    seconds: float = 0.0


def run(suite: Suite, server: Server | None, directory: Path, *, alone: bool) -> Outcome:
    """Run one suite in its own pytest process; counts come from its report."""
    heading = f"\n== {suite.title} ({suite.name})"
    print(heading if alone else f"{suite.name} begins", flush=True)
    report = directory / f"{suite.name}.xml"
    environment = {
        # Compiled files are kept: the suites start hundreds of processes.
        **{name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"},
        **FLAGS,
        "BAILING_TEST_DATABASE": suite.database,
        **({"BAILING_TEST_MYSQL_URL": server.url()} if server else {}),
        **suite.environment,
    }
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *suite.arguments]
    if alone:
        ended = subprocess.run(command, env=environment, check=False)
    else:
        log = directory / f"{suite.name}.log"
        with log.open("wb") as output:
            ended = subprocess.run(
                command, env=environment, check=False, stdout=output, stderr=subprocess.STDOUT
            )
        print(f"{heading}\n{log.read_text(errors='replace')}", flush=True)
    outcome = count(report)
    outcome.exit_code = ended.returncode
    outcome.seconds = time.monotonic() - started
    return outcome


def run_all(
    chosen: list[Suite], server: Server | None, directory: Path, *, lanes: int = SIDE_BY_SIDE_MAX
) -> dict[str, Outcome]:
    """Every chosen suite, `lanes` of them side by side; one after another on a single core."""
    at_once = min(len(chosen), lanes) if (os.cpu_count() or 1) > 1 else 1
    alone = at_once == 1
    finished = threading.Event()
    with ThreadPoolExecutor(max_workers=at_once + 1) as pool:
        if not alone:
            pool.submit(_show_life, finished)
        running = {
            pool.submit(run, suite, server, directory, alone=alone): suite for suite in chosen
        }
        try:
            outcomes = {running[one].name: one.result() for one in as_completed(running)}
        finally:
            finished.set()
    return {suite.name: outcomes[suite.name] for suite in chosen}


def _show_life(finished: threading.Event) -> None:
    """A line a minute: some that watch a build end it when it is silent."""
    started = time.monotonic()
    while not finished.wait(SIGN_OF_LIFE_SECONDS):
        print(f"{time.monotonic() - started:.0f} s", flush=True)


def count(report: Path) -> Outcome:
    """Counts of a JUnit report. A run that ended without one has failed as a whole."""
    if not report.exists():
        return Outcome(failed=1)
    outcome = Outcome()
    for suite in ElementTree.parse(report).iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        outcome.failed += bad
        outcome.skipped += skipped
        outcome.passed += int(suite.get("tests", 0)) - bad - skipped
    return outcome


def main(names: list[str]) -> int:
    """Run the named suites (all without names). 0 only when every one ran tests and none failed."""
    unknown = set(names) - {suite.name for suite in SUITES}
    if unknown:
        print(f"no such suite: {' '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [suite for suite in SUITES if not names or suite.name in names]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bz-reports-")))
        try:
            server = stack.enter_context(the_server())
        except ServerUnavailable as error:
            print(f"No database server for the suites: {error}", file=sys.stderr)
            return 1
        print(f"database server: {server}", flush=True)
        started = time.monotonic()
        outcomes = run_all(chosen, server, directory)
        print(f"\n{time.monotonic() - started:.1f} s in all")
    return report_all(outcomes)


def report_all(outcomes: dict[str, Outcome]) -> int:
    """Print one line per suite and the closing line; the exit code of the whole."""
    print()
    for name, one in outcomes.items():
        state = "ok" if one.exit_code == 0 else f"exit code {one.exit_code}"
        counts = f"{one.passed:5} passed {one.failed:3} failed {one.skipped:3} skipped"
        print(f"{name:10} {counts} {one.seconds:7.1f} s  {state}")
    passed = sum(one.passed for one in outcomes.values())
    skipped = sum(one.skipped for one in outcomes.values())
    # A suite that ended badly without a failed test (no tests, a broken import) counts as one.
    failed = sum(one.failed or int(one.exit_code != 0) for one in outcomes.values())
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
