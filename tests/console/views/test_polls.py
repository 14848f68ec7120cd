"""A poll that finds nothing new reads no page, and each page names its request."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.support import lives, work_data


@pytest.fixture
def asked(db):
    lives.open_account()
    lives.add_service()
    work_data.tools_and_routes(service_id="gpt")
    return work_data.refund("order-1", account="acme")


@pytest.mark.parametrize("kind", ["job", "approval"])
def test_an_unchanged_poll_costs_less_than_the_page_and_reads_no_body(asked, signed_in, kind):
    client = signed_in("viewer")
    address = {"job": f"/jobs/{asked.job_id}/", "approval": f"/approvals/{asked.approval_ids[0]}/"}
    with CaptureQueriesContext(
        connection,
    ) as whole:
        page = client.get(address[kind])
    seen = page.context["version"]
    with CaptureQueriesContext(connection) as polled:
        answer = client.get(address[kind], {"poll": "1", "seen": seen})
    assert answer.status_code == 204
    assert len(polled) < len(whole) - 3, (len(polled), len(whole))
    if kind == "job":
        assert not any("input_text" in one["sql"] for one in polled.captured_queries)
    assert client.get(address[kind], {"poll": "1", "seen": "1-0"}).status_code == 200


def test_each_page_names_its_request(asked, signed_in):
    page = signed_in("viewer").get("/jobs/")
    assert page.headers["X-Request-Id"] in page.text
