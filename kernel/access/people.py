"""People: Django's users, with roles as groups (L2)."""

from typing import Any

from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.utils.crypto import salted_hmac

from kernel import audit, clock, schema
from kernel.access.sign_ins import end_all_in_tx
from kernel.errors import Conflict, InvalidInput, LostRace, NotFound
from kernel.models import AppliedSecret
from kernel.transactions import insert_new_in_tx, reading, requires_transaction, transaction

ADMIN_SECRET = "BAILING_ADMIN_PASSWORD"
# Each role may do what the ones before it may, but for approver, who only adds decisions to
# viewing.
ROLES = {
    "viewer": "sees everything, changes nothing",
    "approver": "sees everything, decides approvals",
    "operator": "resolves, cancels, dispatches, replays, runs passes",
    "admin": "everything, with accounts, services, prices, tokens and people",
}
ADDRESS_CHARS_MAX = 200


@transaction
def ensure_roles() -> None:
    """Create the role groups that are missing."""
    for name in ROLES:
        _group(name)


@transaction
def ensure_admin(*, password: str) -> str:
    """The first administrator follows an *edited* BAILING_ADMIN_PASSWORD (I2).

    Created once, with the role admin. Later only a value that was not applied before is applied: a
    password or a role that was changed here stays so over a restart. Returns created, changed or
    unchanged. Sessions of a replaced password end.
    """
    if not password:
        return "unchanged"
    digest = salted_hmac("bailing.admin-password", password, algorithm="sha256").hexdigest()
    if AppliedSecret.objects.filter(name=ADMIN_SECRET, digest=digest).exists():
        return "unchanged"
    user = User.objects.select_for_update().filter(username="admin").first()
    created = user is None
    if user is None:
        user = User(username="admin", is_staff=True, is_superuser=True)
    user.set_password(password)
    if created:
        insert_new_in_tx(user)
        user.groups.add(_group("admin"))
    else:
        user.save()
    AppliedSecret.objects.update_or_create(
        name=ADMIN_SECRET, defaults={"digest": digest, "applied_at": clock.db_now()}
    )
    audit.append_in_tx(
        actor=audit.Actor("system", "start"),
        action="person.password_from_environment",
        kind="person",
        object_id=_subject(user),
    )
    return "created" if created else "changed"


@transaction
def add_person(*, name: str, role: str, password: str, actor: audit.Actor) -> User:
    """Add a person with a role.

    InvalidInput names a wrong field; Conflict when the name is taken.
    """
    _check_role(role)
    user = User(username=name.strip(), is_staff=role == "admin")
    try:
        user.full_clean(exclude=["password"], validate_unique=False)
    except ValidationError as error:
        field, texts = next(iter(error.message_dict.items()))
        raise InvalidInput(
            " ".join(texts), field="name" if field == "username" else field
        ) from None
    _check_password(password, user)
    # Compared here: whether a database folds case depends on the column's collation.
    taken = {name.casefold() for name in User.objects.values_list("username", flat=True)}
    if user.username.casefold() in taken:
        raise Conflict(f"a person named {user.username} exists", field="name")
    user.set_password(password)
    insert_new_in_tx(user)
    user.groups.set([_group(role)])
    _audit(actor, "person.add", user, {"role": role})
    return user


@transaction
def change_person(
    *,
    name: str,
    actor: audit.Actor,
    role: str | None = None,
    active: bool | None = None,
    password: str | None = None,
    reason: str = "",
    version: int | None = None,
) -> User:
    """Change a person's role, password or access.

    A new password, and the end of access, end their sign-ins.

    `version` is what person_version() said when the form was shown; LostRace when somebody acted
    meanwhile. Nobody changes themselves. NotFound, InvalidInput.
    """
    user = User.objects.select_for_update().filter(username=name).first()
    if user is None:
        raise NotFound(f"no person named {name}")
    if actor.kind == "user" and actor.id == user.get_username():
        raise InvalidInput("ask another administrator to change your own access", field="name")
    if version is not None and person_version(user=user) != version:
        raise LostRace(f"{name} was changed meanwhile")
    before = {"role": role_of(user), "active": user.is_active}
    if role is not None:
        _check_role(role)
        user.groups.set([_group(role)])
        user.is_superuser = user.is_superuser and role == "admin"
        user.is_staff = role == "admin"
    if active is not None:
        user.is_active = active
        if not active and schema.is_applied(schema.SIGN_IN):
            end_all_in_tx(user=user)  # else they would live again with the next change
    if password is not None:
        _check_password(password, user)
        user.set_password(password)
    user.save()
    audit.append_in_tx(
        actor=actor,
        action="person.change",
        kind="person",
        object_id=_subject(user),
        before=before,
        after={
            "role": role_of(user),
            "active": user.is_active,
            **({"password": "changed"} if password is not None else {}),
        },
        reason=reason,
    )
    return user


@transaction
def change_own_password(*, user: User, password: str, actor: audit.Actor) -> User:
    """A person's own new password; the old one was asked for and matched. InvalidInput.

    Their other sign-ins end with the old password.
    """
    row = User.objects.select_for_update().get(pk=user.pk)
    _check_password(password, row)
    row.set_password(password)
    row.save()
    _audit(actor, "person.own_password", row, {"password": "changed"})
    return row


@reading
def list_people() -> list[User]:
    """All people by name, with their groups loaded."""
    return list(User.objects.prefetch_related("groups").order_by("username")[:500])


def person_version(*, user: User) -> int:
    """Which state of the person a form shows: the number of acts on them. One query."""
    return audit.length(kind="person", object_id=_subject(user))


def role_of(user: User) -> str:
    """The role of a person; '' when they have none."""
    names = {group.name for group in user.groups.all()}
    return next((role for role in reversed(list(ROLES)) if role in names), "")


def _group(role: str) -> Group:
    return Group.objects.get_or_create(name=role)[0]


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise InvalidInput(f"a role is one of {', '.join(ROLES)}", field="role")


def _check_password(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise InvalidInput(" ".join(error.messages), field="password") from None


def _subject(user: User) -> str:
    return f"user-{user.pk}"


def _audit(actor: audit.Actor, action: str, user: User, after: dict[str, Any]) -> None:
    note_in_tx(actor=actor, action=action, user=user, after={"name": user.username, **after})


@requires_transaction
def note_in_tx(*, actor: audit.Actor, action: str, user: User, after: dict[str, Any]) -> None:
    """The audit row of an act on a person, in the act's own transaction (L2)."""
    audit.append_in_tx(
        actor=actor, action=action, kind="person", object_id=_subject(user), after=after
    )


@transaction
def record_refused_act(*, actor: audit.Actor, permission: str, address: str) -> None:
    """Note that somebody tried what their role does not allow; nothing was changed (L2)."""
    audit.append_in_tx(
        actor=actor,
        action="person.refused",
        kind="permission",
        object_id=permission,
        after={"address": address[:ADDRESS_CHARS_MAX]},
    )
