"""The audit trail on screen: filters, one act, files, exports as operations (M2, L1, F9)."""

import csv
import hashlib
import io
import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.places import LISTS, PAGES
from console.queries.audit import KINDS, REFUSED
from console.words import ACTS
from kernel import audit, operations
from kernel.audit.trail import append_in_tx
from kernel.conf import override
from kernel.models import AuditRow, Operation
from kernel.retention import purge_exports
from kernel.transactions import transaction
from tests.console.views.conftest import send
from tests.support import delivery_data
from tests.support.pages import form_to

EVIL = '=HYPERLINK("http://evil")<script>'


@transaction
def act(
    *, action: str = "account.change", object_id: str = "acme", who: str = "olga", **more: Any
) -> AuditRow:
    return append_in_tx(
        actor=audit.Actor("user", who, request_id="http_9"),
        action=action,
        kind=action.split(".", maxsplit=1)[0],
        object_id=object_id,
        **more,
    )


@pytest.fixture
def trail(acme: None) -> None:
    for number in range(5):
        act(before={"cap_nano": number}, after={"cap_nano": number + 1}, reason=EVIL)
    act(action="job.cancel", object_id="job_1", who="petra")
    act(action="person.refused", object_id="petra", who="petra", after={"permission": "operate"})


def found(client: Any, **query: str) -> list[tuple[str, str]]:
    rows = client.get(reverse("audit"), query).context["rows"]
    return [(one["row"].action, one["row"].actor_id) for one in rows]


def body_of(answer: Any) -> bytes:
    return b"".join(answer)


def test_who_what_and_refused_acts_can_be_asked_for(trail: None, operator: Any) -> None:
    assert set(found(operator, who="petra")) == {
        ("job.cancel", "petra"),
        ("person.refused", "petra"),
    }
    assert found(operator, kind="job") == [("job.cancel", "petra")]
    assert found(operator, act="account.change", who="olga") == [("account.change", "olga")] * 5
    assert found(operator, only="refused") == [("person.refused", "petra")]
    assert found(operator, kind="job", only="refused") == []
    assert len(found(operator, subject="account:acme", kind="account")) == 6
    assert found(operator, since="2100-01-01") == []
    for bad in ({"kind": "tea"}, {"act": "x.y"}, {"who": "w" * 161}, {"what": "x"}):
        assert operator.get(reverse("audit"), bad).status_code == 400
    empty = operator.get(reverse("audit"), {"who": "nobody"}).text
    assert "No act matches these filters" in empty


def test_every_act_has_a_kind_and_every_kind_a_page() -> None:
    assert {code.split(".")[0] for code in ACTS} <= set(KINDS)
    assert set(REFUSED) <= set(ACTS)
    assert set(PAGES) | set(LISTS) | {"invocation", "sign_in"} == set(KINDS)
    for name in LISTS.values():
        assert reverse(name)


def test_one_act_says_before_after_why_and_where_it_stands(trail: None, operator: Any) -> None:
    rows = list(AuditRow.objects.filter(subject="account:acme").order_by("sequence"))
    page = operator.get(reverse("act", args=[rows[2].id]))
    assert page.status_code == 200
    assert "http_9" in page.text and reverse("account", args=["acme"]) in page.text
    assert reverse("act", args=[rows[1].id]) in page.text
    assert reverse("act", args=[rows[3].id]) in page.text
    assert "<script>" in page.context["row"].reason and ")<script>" not in page.text
    assert [change.name for change in page.context["changes"]] == ["cap"]
    assert operator.get(reverse("act", args=["aud_none"])).status_code == 404
    assert operator.get(reverse("act", args=["ä"])).status_code == 404
    led = operator.get(reverse("go-to"), {"q": rows[2].id})
    assert led.status_code == 303 and led["Location"] == reverse("act", args=[rows[2].id])


def test_the_trail_costs_the_same_for_few_and_for_many(acme: None, operator: Any) -> None:
    for _number in range(3):
        act()
    operator.get(reverse("audit"))  # the first page of a session asks once more
    counts = []
    for _ in range(2):
        for query in ({}, {"who": "olga"}, {"act": "account.change"}, {"subject": "account:acme"}):
            with (
                CaptureQueriesContext(
                    connection,
                ) as seen,
                override(list_page_rows=5),
            ):
                operator.get(reverse("audit"), query)
            counts.append(len(seen))
        for _number in range(12):
            act()
    assert counts[:4] == counts[4:]
    with override(list_page_rows=5):
        first = operator.get(reverse("audit"), {"who": "olga"})
        older = first.context["page"].older
        second = operator.get(reverse("audit"), {"who": "olga", "after": older})
    rows = [one["row"] for page in (first, second) for one in page.context["rows"]]
    places = [(row.at, row.id) for row in rows]
    assert len(set(places)) == 10 and places == sorted(places, reverse=True)


def test_the_filtered_acts_are_a_file_that_runs_nowhere(trail: None, operator: Any) -> None:
    with override(list_page_rows=2):
        answer = operator.get(reverse("audit-export"), {"who": "olga"})
        lines = list(csv.reader(io.StringIO(body_of(answer).decode("utf-8-sig"))))
    assert answer["Content-Disposition"] == 'attachment; filename="audit.csv"'
    assert len(lines) == 6 and {line[lines[0].index("reason")] for line in lines[1:]} == {
        f"'{EVIL}"
    }
    answer = operator.get(reverse("audit-export"), {"who": "olga", "format": "jsonl"})
    kept = body_of(answer).splitlines(keepends=True)
    assert [json.loads(line)["actor_id"] for line in kept] == ["olga"] * 5
    assert list(audit.compare(kept)) == []
    none = operator.get(reverse("audit-export"), {"who": "nobody"})
    assert len(body_of(none).splitlines()) == 1
    assert operator.get(reverse("audit-export"), {"format": "xml"}).status_code == 400


def test_more_than_a_page_can_hold_becomes_an_operation_with_a_file(
    trail: None, operator: Any, signed_in: Any
) -> None:
    with override(count_cap=3):
        answer = operator.get(reverse("audit-export"), {"who": "olga", "format": "jsonl"})
    assert answer.status_code == 303
    address = answer["Location"]
    page = operator.get(address)
    assert "olga" in page.text
    form = form_to(page.text, address)
    assert send(operator, form, reason="", format="jsonl").status_code == 422
    done = send(operator, form, reason="For the auditor.", format="jsonl")
    row = Operation.objects.get(kind="export_audit")
    assert done.status_code == 303 and done["Location"] == reverse("operation", args=[row.id])
    assert row.item_count == 5
    file = reverse("operation-file", args=[row.id])
    assert operator.get(file).status_code == 409
    operations.apply(operation_id=row.id, actor=delivery_data.OLGA, seen_digest=row.digest)
    delivery_data.work_off(row.id)
    page = operator.get(reverse("operation", args=[row.id]))
    assert file in page.text and page.context["file"].sha256 in page.text
    answer = operator.get(file)
    data = body_of(answer)
    assert hashlib.sha256(data).hexdigest() == page.context["file"].sha256
    assert len(data.splitlines()) == 5 == page.context["file"].row_count
    assert "sha-256=:" in answer["Repr-Digest"]
    for role in ("viewer", "approver"):
        assert signed_in(role).get(file).status_code == 403
    with override(export_retention_days=0):
        while purge_exports(limit=5).has_more:
            pass
    assert operator.get(file).status_code == 410
    assert "BAILING_EXPORT_RETENTION_DAYS" in operator.get(reverse("operation", args=[row.id])).text


def test_requests_are_exported_from_their_list(trail: None, operator: Any) -> None:
    address = f"{reverse('requests-export')}?account=acme"
    assert operator.get(address).status_code == 200
    refused = operator.get(reverse("requests-export"), {"reason": "no_usage"})
    assert refused.status_code == 400
    nothing = send(operator, form_to(operator.get(address).text, address), reason="x", format="csv")
    assert nothing.status_code == 409 and "No request matches" in nothing.text


def test_a_viewer_may_look_but_not_plan(trail: None, signed_in: Any) -> None:
    viewer = signed_in("viewer")
    assert viewer.get(reverse("audit-export"), {"who": "olga"}).status_code == 200
    assert viewer.get(reverse("audit-plan")).status_code == 403


def test_reconciliation_shows_the_policy_and_what_was_purged(acme: None, operator: Any) -> None:
    page = operator.get(reverse("reconciliation"))
    assert [one.days for one in page.context["kept"]] == [30, 90, 90, 90, 7]
    assert page.text.count("Nothing was removed yet.") == 5
