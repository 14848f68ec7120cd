"""Identities of a single sign-on provider, linked with people by their exact subject."""

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User

from kernel import audit
from kernel.access.people import note_in_tx
from kernel.errors import Conflict
from kernel.transactions import insert_new_in_tx, reading, transaction


@transaction
def link_identity(*, user: User, provider: str, uid: str, actor: audit.Actor) -> None:
    """Link the identity `uid` with this person. Conflict when either is linked otherwise."""
    User.objects.select_for_update().get(pk=user.pk)
    taken = SocialAccount.objects.filter(provider=provider, uid=uid).first()
    if taken is not None:
        if taken.user_id == user.pk and taken.uid == uid:
            return
        raise Conflict("this identity is linked with another person")
    if SocialAccount.objects.filter(provider=provider, user_id=user.pk).exists():
        raise Conflict("you have linked an identity already; unlink it first")
    insert_new_in_tx(SocialAccount(user=user, provider=provider, uid=uid))
    note_in_tx(actor=actor, action="person.identity_link", user=user, after={"identity": uid})


@transaction
def unlink_identity(*, user: User, actor: audit.Actor) -> bool:
    """Remove what the person linked; False when there was nothing."""
    rows = SocialAccount.objects.filter(user_id=user.pk)
    uids = ", ".join(sorted(rows.values_list("uid", flat=True)))
    if not uids:
        return False
    rows.delete()
    note_in_tx(actor=actor, action="person.identity_unlink", user=user, after={"unlinked": uids})
    return True


@reading
def identity_of(*, user: User) -> str:
    """The subject that the person linked, '' when none."""
    return SocialAccount.objects.filter(user_id=user.pk).values_list("uid", flat=True).first() or ""
