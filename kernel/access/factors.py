"""Second factors of people: an authenticator app, passkeys, recovery codes (rows of allauth)."""

from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import User

from kernel import audit, clock, schema
from kernel.access.people import note_in_tx, role_of
from kernel.access.sign_ins import count_try, end_all_in_tx
from kernel.conf import conf
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.transactions import reading, requires_transaction, transaction

APP, PASSKEY, CODES = "totp", "webauthn", "recovery_codes"
NAME_CHARS_MAX = 60
CODE_SECONDS = 90  # a code of the app is right this long: its step, the one before, the one after


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor as a page shows it; never its secret. `left`: unused recovery codes."""

    id: int
    kind: str
    name: str
    created_at: datetime
    last_used_at: datetime | None
    left: int = 0


def _library(kind: str) -> Any:
    """allauth's module of a kind. Loaded when first used: passkeys alone cost 0.2 s of a start."""
    return import_module(f"allauth.mfa.{kind}.internal.auth")


def must_have_factor(*, user: User) -> bool:
    """Whether the person's role asks for a second factor (BAILING_MFA_ROLES)."""
    wanted: frozenset[str] = settings.MFA_ROLES
    if not wanted:
        return False
    roles = {group.name for group in user.groups.all()} | (
        {"admin"} if user.is_superuser else set()
    )
    return bool(roles & wanted)


@reading
def has_factor(*, user: User) -> bool:
    """Whether a second factor is set up; recovery codes alone are none."""
    if not schema.is_applied(schema.SIGN_IN):
        return False
    return Authenticator.objects.filter(user_id=user.pk, type__in=(APP, PASSKEY)).exists()


@reading
def kinds_of(*, user: User) -> frozenset[str]:
    """The kinds of factors the person has; none before 0070 is applied (H3)."""
    if not schema.is_applied(schema.SIGN_IN):
        return frozenset()
    return frozenset(Authenticator.objects.filter(user_id=user.pk).values_list("type", flat=True))


@reading
def list_factors(*, user: User) -> list[Factor]:
    """The person's factors, oldest first."""
    return [_plain(row) for row in Authenticator.objects.filter(user_id=user.pk).order_by("pk")]


@reading
def people_with_factors(*, user_ids: list[int]) -> frozenset[int]:
    """Which of these people have a second factor. One query."""
    if not schema.is_applied(schema.SIGN_IN):
        return frozenset()
    rows = Authenticator.objects.filter(user_id__in=user_ids, type__in=(APP, PASSKEY))
    return frozenset(rows.values_list("user_id", flat=True))


@transaction
def add_app(*, user: User, secret: str, actor: audit.Actor) -> list[str]:
    """Set up the authenticator app whose secret was proved by a code.

    Returns recovery codes when these are the first factors, else []. Conflict when there is one.
    """
    _lock_in_tx(user, APP)
    _library("totp").TOTP.activate(user, secret)
    return _added_in_tx(user, actor, {"factor": APP})


@transaction
def add_passkey(
    *, user: User, name: str, credential: dict[str, Any], actor: audit.Actor
) -> list[str]:
    """Keep a passkey whose registration was verified. Returns as `add_app`; InvalidInput."""
    name = " ".join(name.split())[:NAME_CHARS_MAX]
    if not name:
        raise InvalidInput("a passkey needs a name", field="name")
    _lock_in_tx(user, PASSKEY)
    _library("webauthn").WebAuthn.add(user, name, credential)
    return _added_in_tx(user, actor, {"factor": PASSKEY, "factor_name": name})


@transaction
def remove_factor(*, user: User, factor_id: int, actor: audit.Actor) -> None:
    """Remove one of the person's own factors; with the last one its recovery codes go, too.

    NotFound; InvalidInput when the role needs one and this is the last.
    """
    User.objects.select_for_update().get(pk=user.pk)
    rows = Authenticator.objects.filter(user_id=user.pk)
    row = rows.filter(pk=factor_id).exclude(type=CODES).first()
    if row is None:
        raise NotFound("this factor was removed already")
    is_last = not rows.exclude(pk=row.pk).exclude(type=CODES).exists()
    if is_last and must_have_factor(user=user):
        raise InvalidInput(
            f"the role {role_of(user)} needs a second factor: add another one first", field="factor"
        )
    after = {"removed": row.type, "factor_name": _plain(row).name}
    (rows if is_last else rows.filter(pk=row.pk)).delete()
    note_in_tx(actor=actor, action="person.factor_remove", user=user, after=after)


@transaction
def renew_recovery_codes(*, user: User, actor: audit.Actor) -> list[str]:
    """Fresh recovery codes; the old ones end. InvalidInput without a second factor."""
    User.objects.select_for_update().get(pk=user.pk)
    rows = Authenticator.objects.filter(user_id=user.pk)
    if not rows.exclude(type=CODES).exists():
        raise InvalidInput(
            "recovery codes stand in for a second factor: set one up first", field="factor"
        )
    rows.filter(type=CODES).delete()
    note_in_tx(
        actor=actor, action="person.recovery_codes", user=user, after={"recovery_codes": "renewed"}
    )
    return _fresh_codes(user)


@transaction
def reset_factors(*, name: str, actor: audit.Actor, reason: str = "") -> int:
    """Remove all factors of somebody who lost them and end their sign-ins; returns how many.

    Nobody does it for themselves. NotFound, InvalidInput; Unavailable before 0070 (H3).
    """
    schema.require(schema.SIGN_IN)
    user = User.objects.select_for_update().filter(username=name).first()
    if user is None:
        raise NotFound(f"no person named {name}")
    if actor.kind == "user" and actor.id == user.get_username():
        raise InvalidInput("remove your own factors under Your account", field="reason")
    rows = Authenticator.objects.filter(user_id=user.pk)
    kinds = sorted(rows.values_list("type", flat=True))
    rows.delete()
    end_all_in_tx(user=user)
    audit.append_in_tx(
        actor=actor,
        action="person.factors_reset",
        kind="person",
        object_id=f"user-{user.pk}",
        before={"factors": ", ".join(kinds)},
        after={"factors": ""},
        reason=reason,
    )
    return len(kinds)


def accept_code(*, user: User, code: str) -> str:
    """The kind of factor this code is right for, '' when for none.

    A recovery code is used up by it, and a code of the app counts once, whichever process sees it.
    """
    if not code.isascii() or not 0 < len(code) <= 40:
        return ""
    app = Authenticator.objects.filter(user_id=user.pk, type=APP).first()
    if app is not None and app.wrap().validate_code(code):
        is_new = not is_repeated(user=user, code=code)
        return APP if is_new and factor_used(factor_id=app.pk) else ""
    return CODES if _spend_recovery_code(user=user, code=code) else ""


@transaction
def _spend_recovery_code(*, user: User, code: str) -> bool:
    """Use up one recovery code.

    The person's row keeps two uses apart, and a use and a removal: the library writes back the
    whole row that it read.
    """
    User.objects.select_for_update().get(pk=user.pk)
    row = Authenticator.objects.filter(user_id=user.pk, type=CODES).first()
    if row is None or not row.wrap().validate_code(code):
        return False
    row.record_usage()
    return True


def is_repeated(*, user: User, code: str) -> bool:
    """Whether this code of the app was accepted before; asking counts it as used."""
    digits = "".join(filter(str.isdigit, code))
    limits = {f"code:{user.pk}:{digits}": 1}
    return bool(count_try(limits=limits, window_seconds=CODE_SECONDS))


@transaction
def factor_used(*, factor_id: int) -> bool:
    """Note when a factor was used last. False when it was removed meanwhile: it proves nothing."""
    found = Authenticator.objects.filter(pk=factor_id)
    return found.update(last_used_at=clock.db_now()) == 1


@requires_transaction
def _lock_in_tx(user: User, kind: str) -> None:
    """The person's row keeps two additions apart: MySQL has no conditional unique key."""
    User.objects.select_for_update().get(pk=user.pk)
    rows = Authenticator.objects.filter(user_id=user.pk)
    if kind == APP and rows.filter(type=APP).exists():
        raise Conflict("an authenticator app is set up already")
    if rows.count() >= conf.factors_count_max:
        raise InvalidInput(
            f"at most {conf.factors_count_max} factors: remove one first", field="name"
        )


@requires_transaction
def _added_in_tx(user: User, actor: audit.Actor, after: dict[str, str]) -> list[str]:
    note_in_tx(actor=actor, action="person.factor_add", user=user, after=after)
    if Authenticator.objects.filter(user_id=user.pk, type=CODES).exists():
        return []
    return _fresh_codes(user)


def _fresh_codes(user: User) -> list[str]:
    codes: list[str] = _library("recovery_codes").RecoveryCodes.activate(user).generate_codes()
    return codes


def _plain(row: Authenticator) -> Factor:
    left = len(row.wrap().get_unused_codes()) if row.type == CODES else 0
    name = str(row.data.get("name", "")) if row.type == PASSKEY else ""
    return Factor(row.pk, row.type, name, row.created_at, row.last_used_at, left)
