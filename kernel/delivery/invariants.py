"""The invariants of notifications, dead letters, replays and operations. kernel/invariants.py asks.

They hold for what was published since migration 0069; older rows have no attempts to count.
"""

import json

from kernel import schema
from kernel.checks import Find, Invariant, Offender, either, select, since
from kernel.conf import conf
from kernel.delivery.dead_letters import EXECUTOR, IDENTITY
from kernel.errors import Unavailable
from kernel.models import DeadLetterReplay, JobMarkers
from kernel.schema import DELIVERY, REPLAY, RETENTION

# Published when attempts had no rows yet.
_SINCE_0069 = (
    f"n.created_at >= (SELECT applied FROM django_migrations"
    f" WHERE app = 'kernel' AND name = '{DELIVERY}')"
)
_ATTEMPTS = (
    "(SELECT notification_id, COUNT(*) AS n, MIN(number) AS low, MAX(number) AS top,"
    " SUM(CASE WHEN outcome = 'delivered' THEN 1 ELSE 0 END) AS delivered,"
    " SUM(CASE WHEN outcome = 'unknown' THEN 1 ELSE 0 END) AS unknown_n"
    " FROM bz_delivery_attempts GROUP BY notification_id)"
)
_LETTERS = "(SELECT notification_id, COUNT(*) AS n FROM bz_delivery_dlq GROUP BY notification_id)"
_ADMISSIONS = (
    "(SELECT replay_of_id, COUNT(*) AS n FROM bz_notifications"
    " WHERE replay_of_id <> '' GROUP BY replay_of_id)"
)
# How often a dead letter's admission is in its audit ('dead_letter:' has twelve characters).
_AUDITED = (
    "(SELECT SUBSTR(subject, 13) AS id, COUNT(*) AS n FROM bz_audit"
    " WHERE action = 'dead_letter.replay' AND subject LIKE 'dead_letter:%' GROUP BY subject)"
)
# Rows from before 0067 have no kind, and no group counts them.
_COUNTED = (
    "(SELECT error_fingerprint AS print, COUNT(*) AS n,"
    " SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END) AS open_n"
    " FROM bz_delivery_dlq WHERE kind IS NOT NULL GROUP BY error_fingerprint)"
)
_ITEMS = (
    "(SELECT operation_id, COUNT(*) AS n,"
    + ",".join(
        f" SUM(CASE WHEN state = '{state}' THEN 1 ELSE 0 END) AS {state}_n"
        for state in ("done", "skipped", "failed", "planned")
    )
    + " FROM bz_operation_items GROUP BY operation_id)"
)


def _of_delivery(text: str) -> Find:
    return since((REPLAY, DELIVERY), select(text))


def _of_attempts(text: str) -> Find:
    """`text` ends with its conditions; what retention has purged has no attempts to count."""
    whole, kept = _of_delivery(text), _of_delivery(f"{text} AND n.attempts_purged_at IS NULL")

    def find(limit: int) -> list[Offender]:
        try:
            schema.require(RETENTION)
        except Unavailable:
            return whole(limit)
        return kept(limit)

    return find


def _foreign_markers(limit: int) -> list[Offender]:
    """Newest jobs with a replay's marker that is there twice, or is not of this job's own death."""
    marked = JobMarkers.objects.exclude(delivery_replay_keys=None).order_by("-id")
    rows = marked.values_list("id", "delivery_replay_keys")[: conf.check_sample_rows]
    faults = ((job_id, _marker_fault(job_id, text or "[]")) for job_id, text in rows)
    return [Offender(job_id, what) for job_id, what in faults if what][:limit]


def _marker_fault(job_id: str, text: str) -> str:
    try:
        markers = [str(each) for each in json.loads(text)]
    except (ValueError, TypeError):
        return "the markers cannot be read"
    if len(set(markers)) != len(markers):
        return f"a marker is there twice: {text}"
    named = [each.removeprefix(IDENTITY) for each in markers]
    known = DeadLetterReplay.objects.filter(id__in=named, original_child_id=job_id)
    foreign = set(named) - set(known.values_list("id", flat=True))
    return f"no dead letter of this job: {', '.join(sorted(foreign))}" if foreign else ""


DELIVERIES: tuple[Invariant, ...] = (
    Invariant(
        36,
        "a_dead_letter_is_admitted_once",
        "A dead letter has one admission at most: one notification that replays it, one audit row;"
        " a marker of a replay is once on the child job that died, and on no other.",
        "F4, F5",
        either(
            _of_delivery(
                "SELECT d.id, a.n AS admissions, u.n AS audited FROM bz_delivery_dlq d"
                f" LEFT JOIN {_ADMISSIONS} a ON a.replay_of_id = d.id"
                f" LEFT JOIN {_AUDITED} u ON u.id = d.id WHERE a.n > 1 OR u.n > 1"
            ),
            since((REPLAY, DELIVERY), _foreign_markers),
        ),
    ),
    Invariant(
        37,
        "what_is_resolved_was_admitted",
        "A resolved dead letter has its admission: the notification that replays it, or the marker"
        " on its child job.",
        "F5",
        _of_delivery(
            "SELECT d.id, d.kind, d.original_child_id FROM bz_delivery_dlq d"
            f" LEFT JOIN {_ADMISSIONS} a ON a.replay_of_id = d.id"
            " LEFT JOIN bz_jobs j ON j.id = d.original_child_id"
            " WHERE d.state = 'resolved' AND d.replay_identity IS NOT NULL AND CASE"
            f" WHEN d.kind = '{EXECUTOR}'"
            " THEN COALESCE(INSTR(j.delivery_replay_keys, d.replay_identity), 0)"
            " ELSE COALESCE(a.n, 0) END = 0"
        ),
    ),
    Invariant(
        38,
        "attempts_are_counted",
        "The attempts at a notification are numbered 1 to n; it counts all of them, and those that"
        " may have arrived.",
        "F1, F2",
        _of_attempts(
            "SELECT n.id, n.attempts, n.unknown_attempts, a.n AS found, a.top, a.unknown_n"
            f" FROM bz_notifications n LEFT JOIN {_ATTEMPTS} a ON a.notification_id = n.id"
            f" WHERE {_SINCE_0069} AND (n.attempts <> COALESCE(a.n, 0)"
            " OR n.unknown_attempts <> COALESCE(a.unknown_n, 0)"
            " OR COALESCE(a.low, 1) <> 1 OR COALESCE(a.top, 0) <> COALESCE(a.n, 0))"
        ),
    ),
    Invariant(
        39,
        "what_is_delivered_arrived",
        "A notification is delivered when one of its attempts was, and only then.",
        "F2, F7",
        _of_attempts(
            "SELECT n.id, n.state, a.delivered FROM bz_notifications n"
            f" LEFT JOIN {_ATTEMPTS} a ON a.notification_id = n.id"
            f" WHERE {_SINCE_0069}"
            " AND COALESCE(a.delivered, 0) <> CASE WHEN n.state = 'delivered' THEN 1 ELSE 0 END"
        ),
    ),
    Invariant(
        40,
        "each_death_left_one_dead_letter",
        "A dead notification has one dead letter and a living one none; a child of an executor has"
        " one for each of its failures.",
        "F3, F6",
        _of_attempts(
            "SELECT n.id, n.state, n.attempts, d.n AS letters FROM bz_notifications n"
            f" LEFT JOIN {_LETTERS} d ON d.notification_id = n.id"
            f" LEFT JOIN {_ATTEMPTS} a ON a.notification_id = n.id"
            f" WHERE {_SINCE_0069} AND COALESCE(d.n, 0) <> CASE"
            f" WHEN n.channel = '{EXECUTOR}' THEN COALESCE(a.n - a.delivered, 0)"
            " WHEN n.state = 'dead' THEN 1 ELSE 0 END"
        ),
    ),
    Invariant(
        41,
        "executors_hold_their_own_child",
        "What is with an executor has its child job, made for this very notification.",
        "F4, F7",
        _of_delivery(
            "SELECT n.id, n.child_job_id, j.target, j.request_id FROM bz_notifications n"
            " LEFT JOIN bz_jobs j ON j.id = n.child_job_id"
            " WHERE n.state = 'with_executor' AND (j.id IS NULL OR j.request_id <> n.id"
            f" OR j.target <> '{EXECUTOR}')"
        ),
    ),
    Invariant(
        42,
        "groups_count_their_dead_letters",
        "A group counts the dead letters of its fingerprint, and those of them that are open.",
        "F9",
        either(
            _of_delivery(
                "SELECT g.fingerprint, g.total_count, g.open_count, c.n, c.open_n"
                f" FROM bz_dlq_groups g LEFT JOIN {_COUNTED} c ON c.print = g.fingerprint"
                " WHERE g.total_count <> COALESCE(c.n, 0) OR g.open_count <> COALESCE(c.open_n, 0)"
            ),
            _of_delivery(
                "SELECT d.id, d.error_fingerprint FROM bz_delivery_dlq d"
                " LEFT JOIN bz_dlq_groups g ON g.fingerprint = d.error_fingerprint"
                " WHERE d.kind IS NOT NULL AND g.fingerprint IS NULL"
            ),
        ),
    ),
    Invariant(
        43,
        "operations_count_their_items",
        "An operation counts its items by what became of them; done means that none is left.",
        "F9",
        _of_delivery(
            "SELECT o.id, o.state, o.item_count, o.done_count, o.skipped_count, o.failed_count,"
            f" i.n AS items, i.planned_n AS planned FROM bz_operations o"
            f" LEFT JOIN {_ITEMS} i ON i.operation_id = o.id"
            " WHERE o.item_count <> COALESCE(i.n, 0) OR o.done_count <> COALESCE(i.done_n, 0)"
            " OR o.skipped_count <> COALESCE(i.skipped_n, 0)"
            " OR o.failed_count <> COALESCE(i.failed_n, 0)"
            " OR (o.state = 'done' AND COALESCE(i.planned_n, 0) > 0)"
        ),
    ),
)
