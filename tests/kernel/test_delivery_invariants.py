"""The invariants of delivery and operations: clean on what the verbs write, biting when broken."""

from collections.abc import Callable

import pytest

from kernel.delivery import dead_letters, replay
from kernel.invariants import INVARIANTS, check_all
from kernel.models import DeadLetter, Notification
from kernel.operations import Filter, apply, plan_replay
from kernel.schema import DELIVERY, REPLAY
from tests.delivery.letters import run_child
from tests.kernel.test_invariants import broken, on, run
from tests.support import delivery_data, lives
from tests.support.delivery_data import OLGA, STORE, End, attempt, publish
from tests.support.unmigrated import without_migration

NOTIFICATIONS, ATTEMPTS, LETTERS = "bz_notifications", "bz_delivery_attempts", "bz_delivery_dlq"
GROUPS, OPERATIONS, ITEMS, JOBS = "bz_dlq_groups", "bz_operations", "bz_operation_items", "bz_jobs"
NUMBERS = range(36, 44)
GONE = End("refused", "HTTP 410: gone", 410, is_final=True)


@pytest.fixture
def rows(db: None) -> dict[str, str]:
    """A notification of each fate by name, with its dead letter (`_letter`) and job (`_job`)."""
    lives.open_account(delivery_data.ACCOUNT, cap_nano=None)
    delivery_data.make_destinations()
    made = _natives() | _children() | _one_operation()
    letter = DeadLetter.objects.get(id=made["dead_letter"])
    return made | {"group": letter.error_fingerprint}


def _natives() -> dict[str, str]:
    made = {name: publish(n=name) for name in ("queued", "delivered", "dead", "replayed", "aside")}
    attempt(made["delivered"], End("unknown", "no answer"))
    attempt(made["delivered"], End("delivered", "", 204))
    for name in ("dead", "replayed", "aside"):
        made[f"{name}_letter"] = attempt(made[name], GONE).dead_letter_id
    dead_letters.archive(dead_letter_id=made["aside_letter"], actor=OLGA, reason="by hand")
    made["replay"] = _replay(made["replayed_letter"])
    return made


def _replay(letter_id: str) -> str:
    told = replay.replay(dead_letter_id=letter_id, actor=OLGA, store=STORE)
    return str(told.notification_id)


def _children() -> dict[str, str]:
    """Children of an executor: one waits, one died and was replayed, one died twice."""
    made: dict[str, str] = {}
    for name in ("child_again", "child_twice"):
        made |= _child(name)
        run_child(made[f"{name}_job"])
        made[f"{name}_letter"] = DeadLetter.objects.get(notification_id=made[name]).id
        _replay(made[f"{name}_letter"])
    run_child(made["child_twice_job"], error="still no")
    return made | _child("child")


def _child(name: str) -> dict[str, str]:
    notification_id = publish(delivery_data.RELAY, "message", n=name)
    row = Notification.objects.get(id=notification_id)
    return {name: row.id, f"{name}_job": row.child_job_id}


def _one_operation() -> dict[str, str]:
    """Two dead letters, one archived meanwhile: one item done, one skipped."""
    letters = [attempt(publish(n=n), End("refused", "bulk", 410, is_final=True)) for n in range(2)]
    first, second = (one.dead_letter_id for one in letters)
    print_ = DeadLetter.objects.get(id=first).error_fingerprint
    row = plan_replay(filter=Filter(fingerprint=print_), actor=OLGA, reason="it is back")
    dead_letters.archive(dead_letter_id=second, actor=OLGA, reason="by hand")
    apply(operation_id=row.id, actor=OLGA, seen_digest=row.digest)
    done = delivery_data.work_off(row.id)
    assert (done.done_count, done.skipped_count, done.state) == (1, 1, "done")
    return {"operation": row.id, "bulk_letter": first}


def test_every_fate_of_a_notification_satisfies_every_invariant(rows: dict[str, str]) -> None:
    assert broken() == {}


Sabotage = Callable[[dict[str, str], str], list[str]]


def but(sabotage: Callable[[str], list[str]]) -> Sabotage:
    """Break the row that is then named."""
    return lambda rows, row_id: sabotage(row_id)


def of(fate: str, *statements: str) -> Sabotage:
    """Break other rows; `{0}` stands for the id of that fate."""
    return lambda rows, row_id: [each.format(rows[fate]) for each in statements]


def on_attempts(change: str) -> Sabotage:
    where = "WHERE notification_id = '{}'"
    verb = f"UPDATE {ATTEMPTS} SET {change}" if change else f"DELETE FROM {ATTEMPTS}"
    return lambda rows, row_id: [f"{verb} {where.format(row_id)}"]


def second_replay(rows: dict[str, str], row_id: str) -> list[str]:
    """What an admission without its key would leave: another notification for one dead letter."""
    return [
        f"UPDATE {NOTIFICATIONS} SET replay_of_id = '{row_id}' WHERE id = '{rows['queued']}'",
    ]


def second_audit(rows: dict[str, str], row_id: str) -> list[str]:
    columns = "actor_kind, actor_id, action, before_text, after_text, reason, request_id"
    columns += ", previous_sha256, sha256, at"
    return [
        f"INSERT INTO bz_audit (id, subject, sequence, {columns}) SELECT 'aud_second', subject, 99,"
        f" {columns} FROM bz_audit WHERE action = 'dead_letter.replay'"
        f" AND subject = 'dead_letter:{row_id}'"
    ]


def markers(text: str) -> Sabotage:
    """`{0}` in the text is the first dead letter of `child_again`."""
    return lambda rows, row_id: [
        f"UPDATE {JOBS} SET delivery_replay_keys = "
        f"'{text.format(rows['child_again_letter'])}' WHERE id = '{row_id}'"
    ]


def on_print(table: str, change: str) -> Sabotage:
    return lambda rows, row_id: [f"UPDATE {table} SET {change} WHERE fingerprint = '{row_id}'"]


NO_MARKER = f"UPDATE {JOBS} SET delivery_replay_keys = NULL WHERE id = '{{0}}'"
NO_REPLAY = f"DELETE FROM {NOTIFICATIONS} WHERE id = '{{0}}'"
NO_LETTER = f"DELETE FROM {LETTERS} WHERE id = '{{0}}'"
NO_JOB = f"DELETE FROM {JOBS} WHERE id = '{{0}}'"
ONE_ITEM = f"UPDATE {ITEMS} SET state = 'planned' WHERE operation_id = '{{0}}' AND state = 'done'"
SABOTAGE: list[tuple[str, str, Sabotage]] = [
    ("a_dead_letter_is_admitted_once", "replayed_letter", second_replay),
    ("a_dead_letter_is_admitted_once", "replayed_letter", second_audit),
    ("a_dead_letter_is_admitted_once", "child_again_job", markers('["replay.{0}", "replay.{0}"]')),
    ("a_dead_letter_is_admitted_once", "child_job", markers('["replay.{0}"]')),
    ("a_dead_letter_is_admitted_once", "child_job", markers("nonsense")),
    ("what_is_resolved_was_admitted", "replayed_letter", of("replay", NO_REPLAY)),
    ("what_is_resolved_was_admitted", "dead_letter", but(on(LETTERS, "state = 'resolved'"))),
    ("what_is_resolved_was_admitted", "child_again_letter", of("child_again_job", NO_MARKER)),
    ("what_is_resolved_was_admitted", "child_again_letter", of("child_again_job", NO_JOB)),
    ("attempts_are_counted", "delivered", but(on(NOTIFICATIONS, "attempts = 3"))),
    ("attempts_are_counted", "delivered", but(on(NOTIFICATIONS, "unknown_attempts = 0"))),
    ("attempts_are_counted", "delivered", on_attempts("number = number + 10")),
    ("attempts_are_counted", "dead", on_attempts("")),
    ("what_is_delivered_arrived", "delivered", on_attempts("outcome = 'refused'")),
    ("what_is_delivered_arrived", "delivered", but(on(NOTIFICATIONS, "state = 'queued'"))),
    ("what_is_delivered_arrived", "queued", but(on(NOTIFICATIONS, "state = 'delivered'"))),
    ("each_death_left_one_dead_letter", "dead", of("dead_letter", NO_LETTER)),
    ("each_death_left_one_dead_letter", "queued", but(on(NOTIFICATIONS, "state = 'dead'"))),
    ("each_death_left_one_dead_letter", "dead", but(on(NOTIFICATIONS, "state = 'queued'"))),
    ("each_death_left_one_dead_letter", "child_twice", of("child_twice_letter", NO_LETTER)),
    ("executors_hold_their_own_child", "child", of("child_job", NO_JOB)),
    ("executors_hold_their_own_child", "child", but(on(NOTIFICATIONS, "child_job_id = 'job_x'"))),
    (
        "executors_hold_their_own_child",
        "child_again",
        of("child_again_job", f"UPDATE {JOBS} SET target = 'agent' WHERE id = '{{0}}'"),
    ),
    ("groups_count_their_dead_letters", "group", on_print(GROUPS, "total_count = 1")),
    ("groups_count_their_dead_letters", "group", on_print(GROUPS, "open_count = open_count + 1")),
    ("groups_count_their_dead_letters", "group", of("dead_letter", NO_LETTER)),
    (
        "groups_count_their_dead_letters",
        "dead_letter",
        of("group", f"DELETE FROM {GROUPS} WHERE fingerprint = '{{0}}'"),
    ),
    ("operations_count_their_items", "operation", of("operation", ONE_ITEM)),
    ("operations_count_their_items", "operation", but(on(OPERATIONS, "item_count = 3"))),
    ("operations_count_their_items", "operation", but(on(OPERATIONS, "skipped_count = 0"))),
    ("operations_count_their_items", "operation", but(on(OPERATIONS, "failed_count = 1"))),
]


@pytest.mark.parametrize(
    ("name", "victim", "sabotage"),
    SABOTAGE,
    ids=[f"{n}-{v}-{i}" for i, (n, v, _) in enumerate(SABOTAGE)],
)
def test_an_invariant_of_delivery_bites(
    rows: dict[str, str], name: str, victim: str, sabotage: Sabotage
) -> None:
    offender = rows[victim]
    (invariant,) = [each for each in INVARIANTS if each.name == name]
    assert invariant.find(10) == []
    for statement in sabotage(rows, offender):
        run(statement)
    assert offender in [each.id for each in invariant.find(10)]


def test_every_invariant_of_delivery_is_shown_to_bite() -> None:
    named = {each.name for each in INVARIANTS if each.number in NUMBERS}
    assert {name for name, _, _ in SABOTAGE} == named


@pytest.mark.parametrize("missing", [REPLAY, DELIVERY])
def test_before_their_migrations_they_ask_for_no_table(rows: dict[str, str], missing: str) -> None:
    run(f"DELETE FROM {ATTEMPTS}")
    with without_migration(missing):
        found = {r.invariant.number for r in check_all() if not r.holds}
    assert found.isdisjoint(NUMBERS)


def test_what_was_sent_before_attempts_had_rows_is_not_asked(rows: dict[str, str]) -> None:
    run(f"DELETE FROM {ATTEMPTS}")
    run(f"DELETE FROM {LETTERS}")
    run(f"DELETE FROM {GROUPS}")
    run(f"UPDATE {JOBS} SET delivery_replay_keys = NULL")
    run(f"UPDATE {NOTIFICATIONS} SET created_at = '2001-01-01 00:00:00'")
    assert broken() == {}
