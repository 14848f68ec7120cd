"""Accounts: who pays, up to which cap, at which multiplier (A11, A15)."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Subquery, Sum

from kernel import audit, clock
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.ids import check_id, check_text
from kernel.models import Account, Request
from kernel.money import MULTIPLIER_ONE, NANO_MAX
from kernel.states import Billing
from kernel.transactions import insert_new_in_tx, reading, transaction
from kernel.versions import change_at_version_in_tx

FIELDS = ("name", "cap_nano", "multiplier_millionths", "allow_unpriced", "active")
LISTED_MAX = 1_000


@transaction
def create_account(
    *,
    account_id: str,
    name: str,
    actor: audit.Actor,
    cap_nano: int | None = None,
    multiplier_millionths: int = MULTIPLIER_ONE,
    allow_unpriced: bool = False,
) -> Account:
    """Create an account. Conflict when the id is taken; InvalidInput names a wrong field."""
    check_id(account_id, field="account_id")
    values = _checked(
        {
            "name": name,
            "cap_nano": cap_nano,
            "multiplier_millionths": multiplier_millionths,
            "allow_unpriced": allow_unpriced,
            "active": True,
        }
    )
    if Account.objects.filter(id=account_id).exists():
        raise Conflict(f"an account named {account_id} exists", field="account_id")
    now = clock.db_now()
    row = Account(id=account_id, created_at=now, updated_at=now, **values)
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor, action="account.create", kind="account", object_id=account_id, after=values
    )
    return row


@transaction
def change_account(
    *, account_id: str, version: int, actor: audit.Actor, reason: str = "", **fields: Any
) -> Account:
    """Change an account at `version`; LostRace when somebody changed it meanwhile.

    A later multiplier never touches admitted requests (A11). A cap above what is consumed clears
    the overrun.
    """
    row = Account.objects.filter(id=account_id).first()
    if row is None:
        raise NotFound(f"no account {account_id}")
    before = {name: getattr(row, name) for name in FIELDS}
    values = _checked({**before, **fields})
    change_at_version_in_tx(row, version, values)
    changed = Account.objects.filter(id=account_id)
    if values["cap_nano"] is None:
        changed.update(overrun_at=None)
    else:
        changed.filter(consumed_nano__lte=values["cap_nano"]).update(overrun_at=None)
        changed.filter(consumed_nano__gt=values["cap_nano"], overrun_at=None).update(
            overrun_at=row.updated_at
        )
    audit.append_in_tx(
        actor=actor,
        action="account.change",
        kind="account",
        object_id=account_id,
        before=before,
        after=values,
        reason=reason,
    )
    return changed.get()


@dataclass(frozen=True, slots=True)
class AccountSummary:
    """What an account stands at, in nano-USD. `pending_nano_max`: the sum of the holds that wait.

    `unknown_pending`: something waits that has no hold, so that there is no such bound.
    """

    account: Account
    consumed_nano: int
    held_nano: int
    pending_nano_max: int
    unknown_pending: bool


@reading
def account_summary(*, account_id: str) -> AccountSummary:
    """Settled, held and pending of one account. NotFound.

    One statement, hence one snapshot: what settles meanwhile is never seen twice or not at all.
    """
    pending = Request.objects.filter(account_id=OuterRef("id"), billing_state=Billing.PENDING)
    total = pending.values("account_id").annotate(total=Sum("hold_nano")).values("total")
    row = (
        Account.objects.filter(id=account_id)
        .annotate(pending_nano=Subquery(total), unbounded=Exists(pending.filter(hold_nano=0)))
        .first()
    )
    if row is None:
        raise NotFound(f"no account {account_id}")
    return AccountSummary(
        row, row.consumed_nano, row.held_nano, int(row.pending_nano or 0), row.unbounded
    )


@reading
def list_accounts(*, after: str = "") -> tuple[list[Account], bool]:
    """At most LISTED_MAX accounts by id, behind `after`; and whether more follow. InvalidId."""
    rows = list(Account.objects.filter(id__gt=after).order_by("id")[: LISTED_MAX + 1])
    return rows[:LISTED_MAX], len(rows) > LISTED_MAX


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    unknown = set(values) - set(FIELDS)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(f"an account has no field {name}", field=name)
    name = check_text(values["name"], field="name", chars_max=120)
    cap, multiplier = values["cap_nano"], values["multiplier_millionths"]
    if cap is not None and (type(cap) is not int or not 0 <= cap <= NANO_MAX):
        raise InvalidInput("a cap is zero or more", field="cap_nano")
    if type(multiplier) is not int or not 0 <= multiplier <= 1000 * MULTIPLIER_ONE:
        raise InvalidInput("a multiplier lies between 0 and 1000", field="multiplier")
    for flag in ("allow_unpriced", "active"):
        if type(values[flag]) is not bool:
            raise InvalidInput(f"{flag} is true or false", field=flag)
    return {**values, "name": name}
