"""The crash report says what the runs came to, and a run that proves nothing does not pass."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.support import crash_report, crash_run
from tests.support.crash_report import Row, Section
from tests.support.faults import FaultRecord
from tests.support.mariadb_server import Server
from tests.support.suites import Outcome, Suite

GOOD = Row(
    "crash",
    cases=9,
    planned=1_200,
    fired=1_200,
    kills=7,
    seeded=2,
    killed=2,
    seconds=61,
    commit="ab12",
)


def a_section(server: str, *rows: Row) -> Section:
    return Section(server, "2026-01-31", list(rows), ["blind_save", "no_fence"])


def a_record(path: Path, **fields: object) -> Path:
    record = FaultRecord(cases=3, planned=2, fired=2, kills=1)
    for name, value in fields.items():
        setattr(record, name, value)
    record.write(path)
    return path


def test_a_section_replaces_that_of_its_engine_and_keeps_the_others(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    crash_report.put(report, a_section("MySQL 9.5.0", GOOD))
    crash_report.put(report, a_section("SQLite 3.40.1", GOOD))
    crash_report.put(report, a_section("MySQL 9.6.0", dataclasses.replace(GOOD, cases=10)))
    text = report.read_text()
    assert "MySQL 9.5.0" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## SQLite 3.40.1",
        "## MySQL 9.6.0",
    ]
    assert "| crash | 10 | 1,200 | 1,200 | 7 | 0 | 2 | 2 | 61 | ab12 |" in text
    assert "| MySQL total | 10 | 1,200 | 1,200 | 7 | 0 | 2 | 2 | 61 |  |" in text
    assert (
        "Total: 2 engines, 19 cases, 2,400 faults planned, 2,400 fired, 14 processes killed,"
        " **0 violations**, 2 mutants seeded, 2 killed, 122 seconds."
    ) in text


def test_a_mutant_of_two_suites_and_two_engines_counts_once(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    for server, survivors in (("SQLite 3.40.1", []), ("MySQL 9.6.0", ["no_fence"])):
        section = a_section(server, GOOD, dataclasses.replace(GOOD, suite="sweep"))
        section.survivors.extend(survivors)
        assert (section.total.seeded, section.total.killed) == (2, 2 - len(survivors))
        crash_report.put(report, section)
    assert "2 mutants seeded, 1 killed" in report.read_text()


def test_what_is_counted_beside_the_faults_is_added_up_and_said(tmp_path: Path) -> None:
    records = [a_record(tmp_path / name, beside={"not reached": 3}) for name in ("a", "b")]
    beside = crash_report.beside_in([*records, tmp_path / "none"])
    section = dataclasses.replace(a_section("SQLite 3.40.1", GOOD), beside=beside)
    assert "Beside these: 6 not reached." in section.text()


def test_a_report_written_twice_is_the_same_report(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    crash_report.put(report, a_section("MariaDB 10.11.19", GOOD))
    before = report.read_text()
    crash_report.put(report, a_section("MariaDB 10.11.19", GOOD))
    assert report.read_text() == before


@pytest.mark.parametrize(
    "fields",
    [{"cases": 0}, {"fired": 1_199}, {"violations": 1}, {"killed": 1}],
    ids=["nothing ran", "a fault did not fire", "a violation", "a survivor"],
)
def test_what_does_not_hold(fields: dict[str, int]) -> None:
    assert a_section("MariaDB 10.11.19", GOOD).holds
    assert not a_section("MariaDB 10.11.19", GOOD, dataclasses.replace(GOOD, **fields)).holds


def test_a_run_without_a_suite_does_not_hold() -> None:
    assert not a_section("MariaDB 10.11.19").holds


def test_a_record_becomes_a_row(tmp_path: Path) -> None:
    record = a_record(tmp_path / "r.json", seeded=["a", "a", "b"], killed=["a", "b"])
    row = crash_report.row_of("crash", record=record, failed=0, seconds=1.6)
    assert row == Row("crash", cases=3, planned=2, fired=2, kills=1, seeded=2, killed=1, seconds=2)
    assert crash_report.mutants_in([record, tmp_path / "none"]) == (["a", "b"], ["a"])


def test_a_failed_case_is_a_violation_and_so_is_a_run_without_a_record(tmp_path: Path) -> None:
    record = a_record(tmp_path / "r.json", violations=["charged twice"])
    assert crash_report.row_of("one", record=record, failed=0, seconds=1).violations == 1
    assert crash_report.row_of("one", record=record, failed=3, seconds=1).violations == 3
    gone = tmp_path / "none.json"
    assert crash_report.row_of("one", record=gone, failed=0, seconds=1).violations == 1


def test_the_record_of_a_run_is_plain_json(tmp_path: Path) -> None:
    found = json.loads(a_record(tmp_path / "r.json").read_text())
    assert (found["cases"], found["violations"], found["survivors"]) == (3, [], [])


@pytest.mark.parametrize(("exit_code", "code"), [(0, 0), (1, 1)])
def test_the_exit_code_and_the_report_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int, code: int
) -> None:
    seen: list[Suite] = []

    def run_all(
        chosen: list[Suite], server: Server | None, _: Path, *, lanes: int
    ) -> dict[str, Outcome]:
        assert server is None, "SQLite needs no server"
        assert lanes > 1
        seen.extend(chosen)
        for suite in chosen:
            a_record(Path(suite.environment["BAILING_PROOF_RECORD"]))
        return {suite.name: Outcome(passed=1, exit_code=exit_code) for suite in chosen}

    monkeypatch.setattr(crash_run.suites, "run_all", run_all)
    report = tmp_path / "report.md"
    kept = tmp_path / "kept"
    assert crash_run.main(["sqlite"], report=report, kept=kept) == code
    assert {suite.environment["BAILING_PROOF_SIZE"] for suite in seen} == {"full"}
    assert {suite.database for suite in seen} == {"sqlite"}
    assert f"**{len(seen) * exit_code} violations**" in report.read_text()


def test_a_suite_that_runs_again_stands_beside_the_last_run_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"histories"}

    def run_all(chosen: list[Suite], *_: object, lanes: int) -> dict[str, Outcome]:
        for suite in chosen:
            a_record(Path(suite.environment["BAILING_PROOF_RECORD"]))
        return {suite.name: Outcome(failed=int(suite.name in failing)) for suite in chosen}

    monkeypatch.setattr(crash_run.suites, "run_all", run_all)
    places = {"report": tmp_path / "report.md", "kept": tmp_path / "kept"}
    monkeypatch.setattr(crash_run, "_commit", lambda: "first")
    assert crash_run.main(["sqlite"], **places) == 1
    failing.clear()
    monkeypatch.setattr(crash_run, "_commit", lambda: "second")
    assert crash_run.main(["sqlite", "histories"], **places) == 0
    rows = [line for line in places["report"].read_text().splitlines() if line.startswith("| ")]
    commits = {row.split(" | ")[0].strip("| "): row.split(" | ")[-1].strip(" |") for row in rows}
    assert commits["histories"] == "second" and commits["sweep-jobs"] == "first"


def test_one_suite_alone_is_no_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_all(chosen: list[Suite], *_: object, lanes: int) -> dict[str, Outcome]:
        a_record(Path(chosen[0].environment["BAILING_PROOF_RECORD"]))
        return {chosen[0].name: Outcome()}

    monkeypatch.setattr(crash_run.suites, "run_all", run_all)
    places = {"report": tmp_path / "report.md", "kept": tmp_path / "kept"}
    assert crash_run.main(["sqlite", "histories"], **places) == 1
    assert crash_run.main(["sqlite", "juggling"], **places) == 2


def test_an_unknown_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert crash_run.main(["oracle"]) == 2
    assert "oracle" in capsys.readouterr().err
