"""manage.py audit_verify: an edit, a gap, a changed order and a cut tail are found (M2)."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel import audit, usage
from kernel.audit import verification
from kernel.audit.export import AuditCopy
from kernel.audit.trail import digest
from kernel.conf import override
from kernel.errors import InvalidInput
from kernel.management.progress import ProgressBar
from kernel.models import Account, AuditRow
from tests.management.running import done, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture(autouse=True)
def acts(kernel_db: None) -> None:
    """Two chains: four acts on acme, one on zeta."""
    row = lives.open_account("acme")
    for number in range(3):
        row = usage.change_account(
            account_id="acme", version=row.version, actor=lives.ACTOR, name=f"Acme {number}"
        )
    lives.open_account("zeta")


def acme(sequence: int) -> AuditRow:
    return AuditRow.objects.get(subject="account:acme", sequence=sequence)


def change(row: int, **values: object) -> None:
    AuditRow.objects.filter(id=acme(row).id).update(**values)


def swap() -> None:
    change(2, sequence=99)
    change(3, sequence=2)
    change(99, sequence=3)


def test_untouched_chains_fit() -> None:
    assert "Every audit chain fits." in done("audit_verify").out
    assert done("audit_verify", "--json").document == []


@pytest.mark.parametrize(
    ("tamper", "sequence", "what"),
    [
        (lambda: change(2, reason="another reason"), 2, "was edited"),
        (lambda: change(1, actor_id="somebody"), 1, "was edited"),
        (lambda: acme(2).delete(), 3, "expected row 2"),
        (lambda: acme(1).delete(), 2, "expected row 1"),
        (swap, 2, "does not follow the row before it"),
    ],
    ids=["edit", "edited actor", "gap", "cut head", "reorder"],
)
def test_tampering_is_found_with_exit_code_1(
    tamper: Callable[[], object], sequence: int, what: str
) -> None:
    tamper()
    answer = run("audit_verify")
    assert answer.code == 1
    assert f"account:acme row {sequence}: {what}" in answer.out
    assert "in 1 audit chains" in answer.error
    assert "account:zeta" not in answer.out
    found = run("audit_verify", "--json").document
    finding = {"subject": "account:acme", "sequence": sequence, "what": what, "is_older": False}
    assert finding in found


def test_the_subjects_can_be_narrowed() -> None:
    change(2, reason="another reason")
    assert run("audit_verify", "--subject", "account:acme").code == 1
    done("audit_verify", "--subject", "account:zeta")


# --- against what is kept elsewhere ---------------------------------------------------------------


def test_a_cut_tail_shows_against_kept_heads_only(tmp_path: Path) -> None:
    heads = tmp_path / "heads.jsonl"
    assert "The heads of 2 audit chains" in done("audit_head", str(heads)).out
    assert "Every audit chain fits." in done("audit_verify", "--against", str(heads)).out
    acme(4).delete()
    done("audit_verify")
    answer = run("audit_verify", "--against", str(heads))
    assert answer.code == 1
    assert "account:acme row 4: is gone: the chain here is older, it ends at row 3" in answer.out
    assert "in 1 audit chains" in answer.error
    assert "this database is older than the kept lines" in answer.error
    assert "changed outside" not in answer.error
    assert run("audit_head", str(heads)).code == 1, "kept heads are not replaced"


def test_a_row_out_of_the_middle_is_tampering_or_work_after_a_restore(tmp_path: Path) -> None:
    heads = tmp_path / "heads.jsonl"
    done("audit_head", str(heads))
    head = acme(4)
    version = Account.objects.get(id="acme").version
    usage.change_account(account_id="acme", version=version, actor=lives.ACTOR, name="later")
    assert "fits" in done("audit_verify", "--against", str(heads)).out, "older lines fit"
    head.delete()
    answer = run("audit_verify", "--against", str(heads), "--json")
    found = {(each["sequence"], each["is_older"]) for each in answer.document}
    assert found == {(5, False), (4, False)}
    told = "changed outside the product, or restored to an earlier moment and worked on since"
    assert f"Rows were {told}; compare" in answer.error
    assert told in run("audit_verify", "--against", str(heads)).out


def test_a_chain_that_was_written_anew_shows_against_kept_lines(tmp_path: Path) -> None:
    kept = AuditCopy(tmp_path / "audit.jsonl")
    with override(audit_copy_lag_seconds=0):
        assert kept.copy_next(limit=100) == 5
    row = acme(4)
    row.reason = "forged"
    AuditRow.objects.filter(id=row.id).update(reason="forged", sha256=digest(row))
    done("audit_verify")
    answer = run("audit_verify", "--against", str(kept.path))
    assert answer.code == 1 and "account:acme row 4: is another row than was kept" in answer.out
    kept.path.write_bytes(kept.path.read_bytes() + b'{"torn')
    assert run("audit_verify", "--against", str(kept.path)).code == 1


@pytest.mark.parametrize("text", [b"{}\n", b"[1]\n", b"\xff\n"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x").write_bytes(text)
    for name in ("x", "none"):
        answer = run("audit_verify", "--against", str(tmp_path / name))
        assert answer.code == 1 and "Every audit chain fits." not in answer.out


@pytest.mark.parametrize(
    "wrong",
    [
        {"sequence": "5"},
        {"sequence": None},
        {"sequence": True},
        {"sequence": 1.5},
        {"sequence": -1},
        {"sequence": 0},
        {"id": None},
        {"id": ""},
        {"id": ["x"]},
        {"id": "aud é"},
        {"id": "\ud800"},
        {"id": "a" * 129},
        {"subject": None},
        {"subject": {}},
        {"subject": "account:é"},
        {"subject": "a" * 161},
        {"sha256": 1},
    ],
    ids=str,
)
def test_a_line_that_names_no_row_is_told_by_its_number(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    good = next(audit.heads())
    bad = json.dumps({**json.loads(good), "sequence": 99, "id": "aud_gone", **wrong}).encode()
    with pytest.raises(InvalidInput, match="line 2 names no audit row"):
        list(audit.compare([good, bad + b"\n"]))
    (tmp_path / "x").write_bytes(good + bad + b"\n")
    answer = run("audit_verify", "--against", str(tmp_path / "x"))
    assert answer.code == 1 and "line 2 names no audit row" in answer.error


def test_a_line_that_is_nested_too_deep_is_told_by_its_number() -> None:
    with pytest.raises(InvalidInput, match="line 1 names no audit row"):
        list(audit.compare([b"[" * 100_000 + b"\n"]))


def test_chains_longer_than_a_page_are_walked_with_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification, "PAGE_ROWS", 2)
    ticks: list[int] = []
    assert list(audit.verify(tick=ticks.append)) == []
    assert ticks == [2, 2, 1]
    assert len(list(audit.heads())) == 2
    stream = Terminal()
    with ProgressBar("Rows", 5, stream=stream) as bar:
        bar.add(5)
    assert "5 of 5 100%" in stream.getvalue()


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True
