"""The order that a list says is the order it has, whatever filter is set (L1)."""

import re
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console.paging import ORDERS
from kernel.models import Approval, DeadLetter, Job, Notification, Operation, Request
from tests.support import console_data, delivery_data, work_data

WORDS = {str(words) for _head, words in ORDERS.values()}
LISTS = (
    ("requests", ""),
    ("requests", "billing=settled"),
    ("requests", "account=acme-prod"),
    ("jobs", ""),
    ("jobs", "state=waiting"),
    ("jobs", "account=acme-prod"),
    ("notifications", ""),
    ("notifications", "state=dead"),
    ("notifications", "destination=shop-hooks"),
    ("approvals", ""),
    ("approvals-decided", ""),
    ("approvals-expired", ""),
    ("operations", ""),
    ("operations", "state=paused"),
    ("dead-letters", ""),
    ("dead-letters-groups", ""),
    ("dead-letters-list", ""),
    ("dead-letters-list", "state=open"),
    ("audit", ""),
    ("audit", "kind=job"),
)


class Table(HTMLParser):
    """The times of the column that is said to order the first table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sorted_columns: list[int] = []
        self.times: list[datetime] = []
        self._column = -1
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        if tag == "tr":
            self._column = -1
        if tag in ("td", "th"):
            self._column += 1
        if tag == "th" and "aria-sort" in given:
            assert given["aria-sort"] == "descending"
            self.sorted_columns.append(self._column)
        if tag == "time" and self._column in self.sorted_columns:
            self.times.append(datetime.fromisoformat(given["datetime"]))


@pytest.fixture
def day(transactional_db: None, settings: Any) -> Iterator[None]:
    """A busy day whose rows changed in another order than they were made in."""
    console_data.busy_day(settled_rows=6)
    work_data.busy_desk()
    delivery_data.busy_post(letters=6)
    for model in (Request, Job, Notification, Approval, Operation, DeadLetter):
        rows = list(model.objects.order_by("id"))
        for row, other in zip(rows, reversed(rows), strict=True):
            model.objects.filter(pk=row.pk).update(updated_at=other.updated_at)
    yield


def test_each_list_has_the_order_it_says(day: None, operator: Client) -> None:
    for name, query in LISTS:
        page = operator.get(f"{reverse(name)}?{query}").text
        table = Table(re.findall(r"<table.*?</table>", page, re.DOTALL)[0])
        where = f"{name} {query}"
        assert len(table.sorted_columns) == 1, where
        assert table.times and table.times == sorted(table.times, reverse=True), where
        said = [words for words in WORDS if f'<p class="muted">{words}</p>' in page]
        assert len(said) == 1, (where, said)
