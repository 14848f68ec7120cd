"""Signing in to the console: tries are counted for all processes, sign-ins are listed and ended."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from django.contrib.auth.models import User

from kernel import audit, clock, schema
from kernel.conf import conf
from kernel.errors import NotFound
from kernel.models import ConsoleSession, SignInTry
from kernel.transactions import insert_new_in_tx, reading, requires_transaction, transaction

LISTED_MAX = 50
OLD_ROWS_MAX = 100  # of ended windows and sessions, removed by one sign-in
TEXT_CHARS_MAX = 200
# What a session of the console holds, in seconds since the epoch, and where it came from.
STARTED_AT, SEEN_AT, ADDRESS, AGENT = "started_at", "seen_at", "address", "agent"


@dataclass(frozen=True, slots=True)
class SignIn:
    """One place where a person is signed in. `id` names it without giving the session away."""

    id: str
    address: str
    agent: str
    started_at: datetime | None
    seen_at: datetime | None
    is_current: bool


@transaction
def count_try(*, limits: Mapping[str, int], window_seconds: int) -> int:
    """Count one try against each limit, in order, up to the first that is reached.

    `limits`: what is tried (hashed before it is stored) -> tries in `window_seconds`, which begins
    with the first try. Returns 0, or after how many seconds another try counts. Shared by all
    processes, and counted before anything is checked: tries at the same time all count.
    """
    now = clock.db_now()
    _forget_old_in_tx(now)
    for what, most in limits.items():
        ends_at = _count_in_tx(what, most, now, window_seconds)
        if ends_at is not None:
            return max(ceil((ends_at - now).total_seconds()), 1)
    return 0


@requires_transaction
def _count_in_tx(what: str, most: int, now: datetime, window_seconds: int) -> datetime | None:
    """None when this try is within the limit, else when the window ends."""
    key = hashlib.sha256(what.encode("utf-8", "replace")).hexdigest()
    row = SignInTry.objects.select_for_update().filter(key_sha256=key).first()
    ends_at = now + timedelta(seconds=window_seconds)
    if row is None:
        insert_new_in_tx(SignInTry(key_sha256=key, count=1, ends_at=ends_at))
        return None
    if row.ends_at <= now:
        SignInTry.objects.filter(key_sha256=key).update(count=1, ends_at=ends_at)
        return None
    if row.count >= most:
        return row.ends_at
    SignInTry.objects.filter(key_sha256=key).update(count=row.count + 1)
    return None


@requires_transaction
def _forget_old_in_tx(now: datetime) -> None:
    old = SignInTry.objects.filter(ends_at__lt=now - timedelta(days=1)).order_by("ends_at")
    keys = list(old.values_list("key_sha256", flat=True)[:OLD_ROWS_MAX])
    if keys:
        SignInTry.objects.filter(key_sha256__in=keys).delete()


@transaction
def forget_tries(*, what: str) -> None:
    """A right answer: what was counted for this very thing is forgotten."""
    key = hashlib.sha256(what.encode("utf-8", "replace")).hexdigest()
    SignInTry.objects.filter(key_sha256=key).delete()


@transaction
def record_sign_in(*, user: User, actor: audit.Actor, how: str, address: str) -> None:
    """Note that somebody signed in, and how; removes some sessions that ended long ago (L2)."""
    now = clock.db_now()
    if schema.is_applied(schema.SIGN_IN):
        old = ConsoleSession.objects.filter(expire_date__lt=now).order_by("expire_date")
        keys = list(old.values_list("session_key", flat=True)[:OLD_ROWS_MAX])
        ConsoleSession.objects.filter(session_key__in=keys).delete()
    _note_in_tx(actor, "sign_in.done", user, {"how": how, "address": address[:TEXT_CHARS_MAX]})


@transaction
def record_throttled(*, name: str, address: str, request_id: str, wait_seconds: int) -> None:
    """Note that tries for a known person were stopped: once per window, not once per try."""
    user = User.objects.filter(username=name).first()
    if user is None:
        return
    subject = hashlib.sha256(f"noted:{name}:{address}".encode("utf-8", "replace")).hexdigest()
    now = clock.db_now()
    row = SignInTry.objects.filter(key_sha256=subject).first()
    if row is not None and row.ends_at > now:
        return
    ends_at = now + timedelta(seconds=wait_seconds)
    if row is None:
        insert_new_in_tx(SignInTry(key_sha256=subject, count=1, ends_at=ends_at))
    else:
        SignInTry.objects.filter(key_sha256=subject).update(ends_at=ends_at)
    actor = audit.Actor("system", "sign-in", request_id=request_id)
    _note_in_tx(actor, "sign_in.throttled", user, {"address": address[:TEXT_CHARS_MAX]})


@reading
def list_sign_ins(*, user: User, current_key: str | None) -> list[SignIn]:
    """Where this person is signed in now, the latest first; the current one is marked."""
    live = ConsoleSession.objects.filter(person_id=user.pk, expire_date__gt=clock.db_now())
    found = [_plain(row, current_key) for row in live.order_by("-expire_date")[:LISTED_MAX]]
    youngest = datetime.min.replace(tzinfo=UTC)
    limit = clock.now() - timedelta(seconds=conf.session_age_seconds_max)
    live_ones = [one for one in found if one.started_at is None or one.started_at > limit]
    return sorted(live_ones, key=lambda one: one.seen_at or youngest, reverse=True)


@transaction
def end_sign_in(*, user: User, sign_in_id: str, actor: audit.Actor) -> None:
    """End one of the person's own sign-ins. NotFound when it ended, or was never theirs."""
    rows = ConsoleSession.objects.filter(person_id=user.pk).values_list("session_key", flat=True)
    key = next((key for key in rows[:1000] if _id_of(key) == sign_in_id), None)
    if key is None or not ConsoleSession.objects.filter(session_key=key).delete()[0]:
        raise NotFound("this sign-in has ended already")
    _note_in_tx(actor, "sign_in.ended", user, {"ended": 1})


@transaction
def end_other_sign_ins(*, user: User, current_key: str | None, actor: audit.Actor) -> int:
    """End all of the person's sign-ins but the current one; returns how many."""
    ended = end_all_in_tx(user=user, but=current_key)
    if ended:
        _note_in_tx(actor, "sign_in.ended", user, {"ended": ended})
    return ended


@requires_transaction
def end_all_in_tx(*, user: User, but: str | None = None) -> int:
    """Remove the person's sessions, without an audit row of its own."""
    rows = ConsoleSession.objects.filter(person_id=user.pk)
    return int(rows.exclude(session_key=but or "").delete()[0])


def _plain(row: ConsoleSession, current_key: str | None) -> SignIn:
    held = row.get_decoded()
    return SignIn(
        id=_id_of(row.session_key),
        address=str(held.get(ADDRESS, "")),
        agent=str(held.get(AGENT, "")),
        started_at=_moment(held.get(STARTED_AT)),
        seen_at=_moment(held.get(SEEN_AT)),
        is_current=row.session_key == current_key,
    )


def _moment(seconds: object) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int) else None


def _id_of(session_key: str) -> str:
    return hashlib.sha256(session_key.encode()).hexdigest()[:32]


def _note_in_tx(
    actor: audit.Actor, action: str, user: User, after: Mapping[str, str | int]
) -> None:
    """On a chain of its own: a sign-in does not change the person that a form shows."""
    audit.append_in_tx(
        actor=actor, action=action, kind="sign_in", object_id=f"user-{user.pk}", after=after
    )
