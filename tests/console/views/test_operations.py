"""Operations on screen: the plan, its confirmation, progress, results, the report (F9)."""

import csv
import io

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.csv_text import csv_lines, safe_cell
from kernel import operations
from kernel.access import ensure_roles
from kernel.models import AuditRow, DeadLetter, Notification, Operation, OperationItem
from tests.console.views.conftest import rendered, send
from tests.support import delivery_data, lives
from tests.support.pages import form_to

QUERIES_MAX = 20
HTMX = {"HX-Request": "true"}


@pytest.fixture
def post(db):
    """An account with its destinations."""
    ensure_roles()
    lives.open_account(delivery_data.ACCOUNT)
    delivery_data.make_destinations()


def planned(letters=4):
    ids = [delivery_data.dead_letter(f"HTTP 500 from shop-{number}") for number in range(letters)]
    return delivery_data.plan(fingerprint=DeadLetter.objects.get(id=ids[0]).error_fingerprint), ids


def started(letters=4):
    row, ids = planned(letters)
    operations.apply(operation_id=row.id, actor=delivery_data.OLGA, seen_digest=row.digest)
    return Operation.objects.get(id=row.id), ids


def apply_form(client, row):
    page = client.get(reverse("operation", args=[row.id])).text
    return form_to(page, reverse("operation-apply", args=[row.id]))


def report_of(client, row):
    answer = client.get(reverse("operation-report", args=[row.id]))
    data = b"".join(answer).decode("utf-8-sig")
    return answer, list(csv.reader(io.StringIO(data)))


def test_the_page_of_a_plan_says_what_will_happen_and_get_starts_nothing(post, operator):
    row, _ids = planned()
    page = operator.get(reverse("operation", args=[row.id])).text
    assert "Replay 4 dead letters" in page and row.digest in page
    assert delivery_data.HOOKS in page and "Start: 4 items" in page
    assert operator.get(reverse("operation-apply", args=[row.id])).status_code == 405
    assert Operation.objects.get(id=row.id).state == "planned"


def test_a_plan_is_started_once_with_a_reason_and_its_very_digest(post, operator):
    row, _ids = planned()
    form = apply_form(operator, row)
    assert send(operator, form, reason="").status_code == 422
    changed = send(operator, form, digest="0" * 64, reason="Go.")
    assert changed.status_code == 409 and "another one" in changed.text
    assert Operation.objects.get(id=row.id).state == "planned"
    assert send(operator, form, reason="Go.").status_code == 303
    assert send(operator, form, reason="Go.").status_code == 303, "a double click"
    assert AuditRow.objects.get(action="operation.apply").reason == "Go."
    late = send(operator, form, form_key="n" * 22, reason="Me too.")
    assert late.status_code == 409 and "operator" in late.text and "Me too." in late.text


def test_the_result_equals_the_preview_and_skipped_ones_say_why(post, operator):
    row, ids = started(5)
    for letter, what in ((ids[0], "archived"), (ids[1], "replayed")):
        DeadLetter.objects.filter(id=letter).update(
            state="archived" if what == "archived" else "resolved"
        )
    after = delivery_data.work_off(row.id)
    assert after.state == "done"
    assert after.done_count + after.skipped_count + after.failed_count == row.item_count == 5
    page = operator.get(reverse("operation", args=[row.id]))
    assert page.context["course"].is_whole and "5 / 5" in page.text
    skipped = operator.get(reverse("operation", args=[row.id]), {"item": "skipped"})
    assert {one.object_id for one in skipped.context["items"]} == set(ids[:2])
    assert "archived" in skipped.text
    assert Notification.objects.exclude(replay_of_id="").count() == 3


def test_a_result_that_does_not_add_up_is_said_loudly(post, operator):
    row, _ids = started(3)
    delivery_data.work_off(row.id)
    Operation.objects.filter(id=row.id).update(done_count=2)
    assert "does not add up" in operator.get(reverse("operation", args=[row.id])).text


def test_progress_is_polled_from_real_counts_and_stops_with_the_end(post, operator):
    row, _ids = started(4)
    address = reverse("operation", args=[row.id])
    page = operator.get(address)
    assert 'data-poll="2"' in page.text and "0 / 4" in page.text
    poll = {"poll": "1", "seen": page.context["version"]}
    assert operator.get(address, poll).status_code == 204
    delivery_data.work_off(row.id, items=2)
    part = operator.get(address, poll, headers=HTMX)
    assert part.status_code == 200 and "<html" not in part.text and "2 / 4" in part.text
    seen_at = operator.session["seen_at"]
    operator.get(address, poll, headers=HTMX | {"HX-Polling": "true"})
    assert operator.session["seen_at"] == seen_at
    delivery_data.work_off(row.id)
    assert "data-poll" not in operator.get(address, poll, headers=HTMX).text
    Operation.objects.filter(id=row.id).update(interruptions=2)
    assert "2 processes that worked on it were lost" in operator.get(address).text


def test_it_is_paused_resumed_and_cancelled_with_a_confirmation(post, operator):
    row, _ids = started(4)
    delivery_data.work_off(row.id, items=1)
    for name, state in (
        ("operation-pause", "paused"),
        ("operation-resume", "running"),
        ("operation-cancel", "cancelled"),
    ):
        form = rendered(operator, name, row.id)
        assert send(operator, form, reason="").status_code == 422
        assert send(operator, form, reason="Because.").status_code == 303
        assert Operation.objects.get(id=row.id).state == state
        again = send(operator, rendered(operator, name, row.id), reason="Again.")
        assert again.status_code == 409 and "Again." in again.text
    page = operator.get(reverse("operation", args=[row.id])).text
    assert "3 items were not touched" in page and "Because." in page


def test_a_plan_can_be_discarded(post, operator):
    row, ids = planned()
    form = rendered(operator, "operation-cancel", row.id)
    assert send(operator, form, reason="Not today.").status_code == 303
    assert DeadLetter.objects.filter(id__in=ids, state="open").count() == 4


def test_items_are_paged_by_number_and_filtered(post, operator):
    row, _ids = planned(2)
    OperationItem.objects.bulk_create(
        OperationItem(
            operation_id=row.id,
            sequence=number,
            object_id=f"dlq_{number}",
            state="failed" if number % 2 else "done",
            updated_at=row.created_at,
        )
        for number in range(3, 130)
    )
    seen, address = [], reverse("operation", args=[row.id])
    here = address
    while here:
        page = operator.get(here)
        seen += [one.sequence for one in page.context["items"]]
        here = address + page.context["items_next"] if page.context["items_next"] else ""
    assert seen == list(range(1, 130))
    failed = operator.get(address, {"item": "failed", "after": "100"})
    assert all(one.state == "failed" for one in failed.context["items"])
    assert failed.context["items"][0].sequence == 101
    for bad in ({"item": "maybe"}, {"after": "x"}, {"after": "9" * 30}, {"items": "all"}):
        assert operator.get(address, bad).status_code == 400


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous")
def test_the_report_is_csv_that_runs_nowhere(post, operator):
    row, ids = started(3)
    DeadLetter.objects.filter(id=ids[0]).update(state="archived")
    delivery_data.work_off(row.id)
    OperationItem.objects.filter(operation_id=row.id, sequence=2).update(
        outcome_text='=HYPERLINK("http://evil")'
    )
    answer, lines = report_of(operator, row)
    assert answer["Content-Type"].startswith("text/csv")
    assert answer["Content-Disposition"] == f'attachment; filename="{row.id}.csv"'
    assert lines[0] == ["number", "object_id", "result", "outcome", "at"]
    assert [line[0] for line in lines[1:]] == ["1", "2", "3"]
    assert lines[2][3] == '\'=HYPERLINK("http://evil")'
    assert ["skipped" in line for line in lines[1:]].count(True) == 1


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r", "＝", "＠", " =", "＋1"])
def test_a_cell_that_could_start_a_formula_is_quoted(start):
    assert safe_cell(f"{start}cmd").startswith("'")


def test_numbers_and_plain_texts_stay_as_they_are():
    assert csv_lines([(1, -2, "plain", None, "a=b")]) == "1,-2,plain,,a=b\r\n"


def test_the_pages_cost_the_same_for_few_and_for_many(post, operator):
    row, _ids = planned(1)
    address = reverse("operation", args=[row.id])
    operator.get(address)
    with CaptureQueriesContext(connection) as few:
        operator.get(address)
    other, _ids = started(12)
    delivery_data.work_off(other.id)
    fresh, _ids = planned(12)
    with CaptureQueriesContext(connection) as many:
        operator.get(reverse("operation", args=[fresh.id]))
    assert len(many) == len(few) <= QUERIES_MAX
    with CaptureQueriesContext(connection) as listed:
        page = operator.get(reverse("operations")).text
    assert len(listed) <= 10 and page.count("Replay of dead letters") == 3
    assert operator.get(reverse("operations"), {"state": "done"}).context["rows"][0]["row"] == other
    assert operator.get(reverse("operations"), {"state": "gone"}).status_code == 400


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_who_may_not_operate_cannot_act(post, signed_in, role):
    client = signed_in(role)
    row, _ids = planned()
    assert "Your role" in client.get(reverse("operation", args=[row.id])).text
    data = {"form_key": "k" * 22, "reason": "x", "digest": row.digest}
    for name in ("apply", "pause", "resume", "cancel"):
        assert client.post(reverse(f"operation-{name}", args=[row.id]), data).status_code == 403
    assert Operation.objects.get(id=row.id).state == "planned"


@pytest.mark.parametrize("path", ["op_nothing/", "op_nothing/report.csv", f"{'x' * 90}/"])
def test_what_does_not_exist_is_404(post, operator, path):
    assert operator.get(f"/operations/{path}").status_code == 404
