"""manage.py audit_verify: an edit, a gap and a changed order are found (M2)."""

from collections.abc import Callable

import pytest

from kernel import usage
from kernel.models import AuditRow
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
    assert {"subject": "account:acme", "sequence": sequence, "what": what} in found


def test_the_subjects_can_be_narrowed() -> None:
    change(2, reason="another reason")
    assert run("audit_verify", "--subject", "account:acme").code == 1
    done("audit_verify", "--subject", "account:zeta")
