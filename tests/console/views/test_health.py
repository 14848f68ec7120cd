"""Health: shows the last results, checks nothing by itself; an operator's button examines."""

from unittest import mock

import pytest
from django.urls import reverse

from kernel import doctor
from kernel.audit import Actor
from kernel.models import AuditRow, CheckReport
from tests.console.views.conftest import SignIn, send
from tests.support.pages import form_to

pytestmark = pytest.mark.django_db
EXAMINE = "health-examine"


def test_looking_examines_nothing_and_says_so(signed_in: SignIn) -> None:
    viewer = signed_in("viewer")
    with mock.patch.object(doctor, "examine", side_effect=AssertionError("it was examined")):
        page = viewer.get(reverse("health")).text
    assert "Never examined" in page
    assert not CheckReport.objects.exists()
    assert viewer.post(reverse(EXAMINE)).status_code == 403


def test_an_operator_examines_with_this_requests_headers_and_sees_what_to_do(
    signed_in: SignIn,
) -> None:
    operator = signed_in("operator")
    page = operator.get(reverse("health")).text
    form = form_to(page, reverse(EXAMINE))
    answer = operator.post(
        form.action, form.fields, headers={"X-Forwarded-For": "203.0.113.9"}, follow=True
    )
    assert "Examined: " in answer.text
    assert "door.forwarded" in answer.text and "BAILING_TRUSTED_PROXIES" in answer.text
    assert "database.durability" in answer.text
    kept = {each.finding.check: each.finding for each in doctor.last_findings()}
    assert "X-Forwarded-For" in kept["door.forwarded"].seen
    assert "203.0.113.9" not in answer.text
    act = AuditRow.objects.get(action="doctor.run")
    assert act.actor_kind == "user"


def test_one_form_examines_once(signed_in: SignIn) -> None:
    operator = signed_in("operator")
    form = form_to(operator.get(reverse("health")).text, reverse(EXAMINE))
    assert [send(operator, form).status_code for _ in range(2)] == [303, 303]
    assert AuditRow.objects.filter(action="doctor.run").count() == 1


def test_a_finding_is_no_invariant_and_an_invariant_is_no_finding(signed_in: SignIn) -> None:
    viewer = signed_in("viewer")
    finding = doctor.Finding("host.disk", doctor.FAILURE, "<b>1 MiB</b> free", "Make room.")
    doctor.store_findings(findings=[finding], actor=Actor("user", "ann"))
    page = viewer.get(reverse("health")).text
    assert "Never checked" in page, "no invariant was"
    assert "host.disk" in page and "Make room." in page and "<b>1 MiB" not in page
    home = viewer.get(reverse("home")).text
    assert "1 check of the installation fails" in home
    assert "invariant of the database" not in home


def test_home_tells_checks_that_fail_from_those_that_only_warn(signed_in: SignIn) -> None:
    found = [
        doctor.Finding("host.disk", doctor.WARNING, "700 MiB free", "Make room."),
        doctor.Finding("host.clock", doctor.WARNING, "3 s", "Run a time service."),
        doctor.Finding("database.durability", doctor.FAILURE, "0", "Turn it on."),
        doctor.Finding("database.version", doctor.OK, "10.11"),
    ]
    doctor.store_findings(findings=found, actor=Actor("user", "ann"))
    home = signed_in("viewer").get(reverse("home")).text
    assert "1 check of the installation fails" in home
    assert "2 checks of the installation warn" in home
