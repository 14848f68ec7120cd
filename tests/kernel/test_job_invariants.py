"""The invariants of approvals and jobs: clean on what the verbs write, biting on broken rows."""

from collections.abc import Callable

import pytest

from kernel import jobs
from kernel.invariants import INVARIANTS, check_all
from kernel.jobs.resolution import resolve_call
from kernel.schema import AGENT_JOBS, CONTINUATIONS
from kernel.state import DatabaseStore
from kernel.states import Waiting
from tests.kernel.test_invariants import EARLIER, broken, on, run
from tests.support import lives, work_data
from tests.support.unmigrated import without_migration

APPROVALS, JOBS, CALLS = "bz_approvals", "bz_jobs", "bz_tool_calls"
OWED = "bz_approval_continuations"
NUMBERS = range(26, 36)


@pytest.fixture
def rows(db: None) -> dict[str, str]:
    """A job of each fate as the verbs leave it: `<fate>` is its approval, `<fate>_job` the job."""
    return _one_of_each()


def _one_of_each() -> dict[str, str]:
    lives.open_account(work_data.ACCOUNT, cap_nano=None)
    lives.add_service("gpt-main")
    work_data.tools_and_routes()
    fates = ("open", "approved", "denied", "expired", "cancelled", "sent", "done", "uncertain")
    asked = {fate: work_data.refund(f"order-{fate}") for fate in (*fates, "not_done", "given_up")}
    for fate in ("approved", "sent", "done", "uncertain", "not_done", "given_up"):
        work_data.decide(asked[fate].approval_ids[0], "approved")
    work_data.decide(asked["denied"].approval_ids[0], "denied", reason="no")
    work_data.late(asked["expired"].approval_ids[0])
    _expire()
    for fate in ("cancelled", "given_up"):
        jobs.cancel_job(
            store=work_data.STORE, job_id=asked[fate].job_id, actor=work_data.OLGA, reason="no"
        )
    work_data.send(asked["sent"].job_id)
    work_data.answer(work_data.send(asked["done"].job_id))
    for fate in ("uncertain", "not_done"):
        work_data.lose_worker(work_data.send(asked[fate].job_id))
    resolve_call(
        call_id=f"{asked['not_done'].job_id}.1.0",
        outcome="not_done",
        note="not in the shop",
        actor=work_data.OLGA,
        store=work_data.STORE,
    )
    made = {fate: one.approval_ids[0] for fate, one in asked.items()}
    made |= {f"{fate}_job": one.job_id for fate, one in asked.items()}
    made |= {f"{fate}_call": f"{one.job_id}.1.0" for fate, one in asked.items()}
    return made | {"unknown_job": _waiting_for_an_unknown_step()}


def _expire() -> None:
    from_expiry = work_data.approvals.decisions.expire_page(limit=50)
    assert from_expiry.settled == 1
    work_data.approvals.continuation_page(store=work_data.STORE)(limit=50)


def _waiting_for_an_unknown_step() -> str:
    job = work_data.submit("order-unknown")
    record = work_data.claim(job.id)
    fence = lives.dispatched("op-unknown", service="gpt-main", account=work_data.ACCOUNT)
    lives.save(lives.lost_answer_of(fence))
    as_step = f"operation_id = 'job:{job.id}:1'"
    run(f"UPDATE bz_usage_requests SET {as_step} WHERE id = '{fence.request_id}'")
    DatabaseStore().wait(fence=record.fence, reason=Waiting.MODEL_UNKNOWN, also=lambda: None)
    return job.id


def test_every_fate_of_a_job_that_asked_satisfies_every_invariant(rows: dict[str, str]) -> None:
    assert broken() == {}


Sabotage = Callable[[dict[str, str], str], list[str]]


def but(sabotage: Callable[[str], list[str]]) -> Sabotage:
    """Break the row that is then named."""
    return lambda rows, row_id: sabotage(row_id)


def of(fate: str, *statements: str) -> Sabotage:
    """Break other rows; `{0}` stands for the id of that fate."""
    return lambda rows, row_id: [each.format(rows[fate]) for each in statements]


def without_act(act: str) -> Sabotage:
    return lambda rows, row_id: [
        f"DELETE FROM bz_audit WHERE action = 'approval.{act}' AND subject = 'approval:{row_id}'"
    ]


def second_act(rows: dict[str, str], row_id: str) -> list[str]:
    """A second row `decided` of one approval."""
    columns = "actor_kind, actor_id, action, before_text, after_text, reason, request_id"
    columns += ", previous_sha256, sha256, at"
    return [
        f"INSERT INTO bz_audit (id, subject, sequence, {columns}) SELECT 'aud_second', subject, 99,"
        f" {columns} FROM bz_audit WHERE action = 'approval.decided'"
        f" AND subject = 'approval:{row_id}'"
    ]


def continuation(change: str) -> Sabotage:
    return lambda rows, row_id: [f"UPDATE {OWED} SET {change} WHERE approval_id = '{row_id}'"]


def no_continuation(rows: dict[str, str], row_id: str) -> list[str]:
    return [f"DELETE FROM {OWED} WHERE approval_id = '{row_id}'"]


def neither(rows: dict[str, str], row_id: str) -> list[str]:
    """A decision that nobody recorded and nobody carries through."""
    return [*no_continuation(rows, row_id), *without_act("decided")(rows, row_id)]


def marker_twice(rows: dict[str, str], row_id: str) -> list[str]:
    """What an admission that does not look at the marker would leave behind."""
    marker = f"{rows['done']}.dec_{rows['done'][4:]}"
    return [
        f'UPDATE {JOBS} SET approval_continuation_keys = \'["{marker}", "{marker}"]\''
        f" WHERE id = '{row_id}'"
    ]


def marker_of_another(rows: dict[str, str], row_id: str) -> list[str]:
    marker = f"{rows['done']}.dec_{rows['done'][4:]}"
    return [
        f"UPDATE {JOBS} SET approval_continuation_keys = '[\"{marker}\"]' WHERE id = '{row_id}'"
    ]


NO_MARKER = f"UPDATE {JOBS} SET approval_continuation_keys = NULL WHERE id = '{{0}}'"
RESOLVED_LONG_AGO = (
    "UPDATE bz_usage_requests SET result_state = 'failed', updated_at = "
    f"{EARLIER} WHERE operation_id = 'job:{{0}}:1'"
)
CALL_ENDED_LONG_AGO = (
    f"UPDATE {CALLS} SET state = 'done', updated_at = {EARLIER} WHERE id = '{{0}}'"
)
QUESTION_GONE = f"UPDATE {APPROVALS} SET state = 'cancelled' WHERE id = '{{0}}'"
SABOTAGE: list[tuple[str, str, Sabotage]] = [
    ("one_decision_per_approval", "approved", second_act),
    ("one_decision_per_approval", "approved", but(on(APPROVALS, "decided_by_id = ''"))),
    ("one_decision_per_approval", "approved", but(on(APPROVALS, "state = 'open'"))),
    ("one_decision_per_approval", "denied", but(on(APPROVALS, "state = 'approved'"))),
    ("one_decision_per_approval", "expired", but(on(APPROVALS, "decision = 'denied'"))),
    ("one_decision_per_approval", "cancelled", but(on(APPROVALS, "decision = 'expired'"))),
    ("one_decision_per_approval", "sent", but(on(APPROVALS, "decided_at = NULL"))),
    ("decision_audit_and_continuation_are_one", "approved", no_continuation),
    ("decision_audit_and_continuation_are_one", "denied", without_act("decided")),
    (
        "decision_audit_and_continuation_are_one",
        "expired",
        lambda rows, row_id: [
            *no_continuation(rows, row_id),
            *without_act("decided")(rows, row_id),
        ],
    ),
    (
        "decision_audit_and_continuation_are_one",
        "denied",
        but(on(APPROVALS, "decision = '', state = 'open'")),
    ),
    ("continuations_fit_their_approval", "approved", continuation("decision_id = 'other'")),
    ("continuations_fit_their_approval", "approved", continuation("decision = 'denied'")),
    ("continuations_fit_their_approval", "denied", continuation("job_id = 'job_other'")),
    ("continuations_fit_their_approval", "done", continuation("request_id = 'other'")),
    ("continuations_fit_their_approval", "done", continuation("arguments_sha256 = 'x'")),
    (
        "continuations_fit_their_approval",
        "done",
        lambda rows, row_id: [f"DELETE FROM {APPROVALS} WHERE id = '{row_id}'"],
    ),
    ("what_was_carried_through_was_observed", "approved", without_act("carried_through")),
    ("what_was_carried_through_was_observed", "denied", continuation("finished_at = NULL")),
    ("what_was_carried_through_was_observed", "denied", continuation("state = 'owed'")),
    ("what_was_executed_is_what_was_approved", "done_call", but(on(CALLS, "tool_version = 7"))),
    ("what_was_executed_is_what_was_approved", "sent_call", but(on(CALLS, "tool = 'find_order'"))),
    (
        "what_was_executed_is_what_was_approved",
        "uncertain_call",
        but(on(CALLS, "arguments_sha256 = 'x'")),
    ),
    (
        "what_was_executed_is_what_was_approved",
        "done_call",
        but(on(CALLS, "arguments_text = '{}'")),
    ),
    (
        "what_was_executed_is_what_was_approved",
        "sent_call",
        of("sent", f"DELETE FROM {APPROVALS} WHERE id = '{{0}}'"),
    ),
    ("what_was_refused_was_not_made", "denied_call", but(on(CALLS, "state = 'dispatching'"))),
    ("what_was_refused_was_not_made", "expired_call", but(on(CALLS, "state = 'done'"))),
    ("what_was_refused_was_not_made", "cancelled_call", but(on(CALLS, "state = 'done'"))),
    ("what_was_refused_was_not_made", "open_call", but(on(CALLS, "state = 'dispatching'"))),
    ("a_grant_is_used_by_one_call", "approved", but(on(APPROVALS, "state = 'consumed'"))),
    ("a_grant_is_used_by_one_call", "done", but(on(APPROVALS, "state = 'approved'"))),
    ("a_grant_is_used_by_one_call", "sent", but(on(APPROVALS, "consumed_at = NULL"))),
    (
        "a_grant_is_used_by_one_call",
        "sent",
        of("sent_call", f"UPDATE {CALLS} SET state = 'proposed' WHERE id = '{{0}}'"),
    ),
    ("a_decision_admits_once", "done_job", marker_twice),
    ("a_decision_admits_once", "sent_job", marker_of_another),
    ("a_decision_admits_once", "sent_job", of("sent_job", NO_MARKER)),
    (
        "a_decision_admits_once",
        "done_job",
        but(on(JOBS, "approval_continuation_keys = 'nonsense'")),
    ),
    (
        "waiting_jobs_wait_for_something",
        "open_job",
        of("open", QUESTION_GONE),
    ),
    ("waiting_jobs_wait_for_something", "unknown_job", of("unknown_job", RESOLVED_LONG_AGO)),
    ("waiting_jobs_wait_for_something", "uncertain_job", of("uncertain_call", CALL_ENDED_LONG_AGO)),
    (
        "ended_jobs_ask_nothing",
        "open",
        of("open_job", f"UPDATE {JOBS} SET state = 'failed' WHERE id = '{{0}}'"),
    ),
    (
        "ended_jobs_ask_nothing",
        "approved",
        of("approved_job", f"UPDATE {JOBS} SET state = 'done' WHERE id = '{{0}}'"),
    ),
]


@pytest.mark.parametrize(
    ("name", "victim", "sabotage"), SABOTAGE, ids=[f"{n}-{v}" for n, v, _ in SABOTAGE]
)
def test_an_invariant_of_jobs_bites(
    rows: dict[str, str], name: str, victim: str, sabotage: Sabotage
) -> None:
    offender = rows[victim]
    (invariant,) = [each for each in INVARIANTS if each.name == name]
    assert invariant.find(10) == []
    for statement in sabotage(rows, offender):
        run(statement)
    assert offender in [each.id for each in invariant.find(10)]


def test_every_invariant_of_approvals_and_jobs_is_shown_to_bite() -> None:
    named = {each.name for each in INVARIANTS if each.number in NUMBERS}
    assert {name for name, _, _ in SABOTAGE} == named


def test_a_decision_from_before_continuations_owes_nothing(rows: dict[str, str]) -> None:
    """C8: what an older version decided has no continuation, no audit row, perhaps no name."""
    for statement in [
        *no_continuation(rows, rows["approved"]),
        *without_act("decided")(rows, rows["approved"]),
        *without_act("carried_through")(rows, rows["approved"]),
        f"UPDATE {APPROVALS} SET decided_at = {EARLIER}, decision_id = NULL, decided_by_id = ''"
        f" WHERE id = '{rows['approved']}'",
        NO_MARKER.format(rows["approved_job"]),
    ]:
        run(statement)
    assert broken() == {}


@pytest.mark.parametrize("missing", [CONTINUATIONS, AGENT_JOBS])
def test_before_their_migrations_they_ask_for_no_table(rows: dict[str, str], missing: str) -> None:
    run(f"DELETE FROM {OWED}")
    with without_migration(missing):
        found = {r.invariant.number for r in check_all() if not r.holds}
    assert found.isdisjoint(NUMBERS)
