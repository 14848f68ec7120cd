"""Processes that start at once on a fresh database: one of everything, and nobody fails."""

from functools import partial

import pytest
from django.contrib.auth.models import Group, User

from kernel.access.people import ROLES
from kernel.models import Account, Token
from kernel.startup import apply_environment
from tests.support.environment import SYNTHETIC
from tests.support.house import House
from tests.support.together import race

pytestmark = pytest.mark.mysql("BAILING_USAGE_TEST_MYSQL")
PROCESSES = 8


def test_processes_that_start_at_once_make_one_of_everything(house: House) -> None:
    start = partial(apply_environment, environ=SYNTHETIC, demo=False)
    (accounts,) = race(house.url, [[start] * PROCESSES])
    assert accounts == ["main"] * PROCESSES
    with house.office():
        admin = User.objects.get()
        assert (admin.username, [group.name for group in admin.groups.all()]) == (
            "admin",
            ["admin"],
        )
        assert admin.check_password(SYNTHETIC["BAILING_ADMIN_PASSWORD"])
        assert Group.objects.count() == len(ROLES)
        assert Account.objects.filter(id="main").count() == 1
        live = Token.objects.filter(origin="environment", revoked_at=None)
        assert sorted(live.values_list("name", flat=True)) == [
            "BAILING_API_TOKEN",
            "BAILING_EXECUTOR_TOKEN",
        ]
    house.verify()
