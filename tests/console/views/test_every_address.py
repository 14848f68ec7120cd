"""Every address x every role x both methods: a new address without an entry fails (L2; case 32)."""

from dataclasses import dataclass
from unittest import mock

import pytest
from django.test import Client
from django.urls import get_resolver, reverse

from console import proofs
from console.access import ROLES
from kernel import access
from kernel.conf import override
from kernel.delivery import alerts
from kernel.models import AuditRow, Notification
from tests.support import delivery_data, lives, work_data

STRANGER, NOBODY = "stranger", "nobody"
PEOPLE = (STRANGER, NOBODY, *ROLES)
NEVER = ""  # as a permission: the method is not allowed


@dataclass(frozen=True, slots=True)
class Address:
    """What an allowed person gets: with GET, and with a POST that carries nothing.

    `post` names the permission of POST; NEVER means 405 for everybody who may look.
    """

    permission: str
    get: int = 200
    post: str = NEVER
    post_status: int = 405
    arguments: tuple[str, ...] = ()


REQUEST, ACCOUNT, SERVICE, TOKEN, PERSON = "{request}", "acme", "gpt", "{token}", "petra"
APPROVAL, JOB, CALL, TOOL, ROUTE = "{approval}", "{job}", "{call}", "refund_order", "refunds"
NOTIFICATION, LETTER, OPERATION = "{notification}", "{letter}", "{operation}"
DESTINATION, RULE = delivery_data.HOOKS, "tell-ops"
ADDRESSES = {
    "home": Address("view"),
    "go-to": Address("view", get=303),  # an empty box leads home
    "preferences": Address("view", post="view", post_status=400),
    "view-new": Address("view", get=400, post="view", post_status=400),  # it wants to know the list
    "view-change": Address("view", get=405, post="view", post_status=303),
    "requests": Address("view"),
    "requests-export": Address("operate", post="operate", post_status=422),
    "request": Address("view", arguments=(REQUEST,)),
    "request-resolve": Address("operate", post="operate", post_status=400, arguments=(REQUEST,)),
    "request-cancel": Address("operate", post="operate", post_status=422, arguments=(REQUEST,)),
    "request-dispatch": Address("operate", post="operate", post_status=422, arguments=(REQUEST,)),
    "request-correct": Address("operate", post="operate", post_status=422, arguments=(REQUEST,)),
    "request-body": Address("view", arguments=(REQUEST, "request")),
    "accounts": Address("view"),
    "account": Address("view", arguments=(ACCOUNT,)),
    "account-new": Address("configure", post="configure", post_status=422),
    "account-change": Address("configure", post="configure", post_status=422, arguments=(ACCOUNT,)),
    "reconciliation": Address("view"),
    "reconciliation-run": Address("operate", get=405, post="operate", post_status=400),
    "approvals": Address("view"),
    "approvals-decided": Address("view"),
    "approvals-expired": Address("view"),
    "approvals-bulk": Address("decide", get=400, post="decide", post_status=400),
    "approval": Address("view", arguments=(APPROVAL,)),
    "approval-approve": Address("decide", post="decide", post_status=400, arguments=(APPROVAL,)),
    "approval-deny": Address("decide", post="decide", post_status=400, arguments=(APPROVAL,)),
    "approval-retry": Address(
        "operate", get=405, post="operate", post_status=400, arguments=(APPROVAL,)
    ),
    "jobs": Address("view"),
    "pause": Address("operate", post="operate", post_status=422, arguments=("global",)),
    "unpause": Address("operate", post="operate", post_status=422, arguments=("global",)),
    "job": Address("view", arguments=(JOB,)),
    "job-cancel": Address("operate", post="operate", post_status=422, arguments=(JOB,)),
    "job-resume": Address("operate", post="operate", post_status=422, arguments=(JOB,)),
    "call": Address("view", post="operate", post_status=422, arguments=(CALL,)),
    "tools": Address("view"),
    "tool": Address("view", arguments=(TOOL,)),
    "tool-new": Address("configure", post="configure", post_status=422),
    "tool-change": Address("configure", post="configure", post_status=422, arguments=(TOOL,)),
    "routes": Address("view"),
    "route": Address("view", arguments=(ROUTE,)),
    "route-new": Address("configure", post="configure", post_status=422),
    "route-change": Address("configure", post="configure", post_status=422, arguments=(ROUTE,)),
    "operations": Address("view"),
    "operation": Address("view", arguments=(OPERATION,)),
    "operation-apply": Address(
        "operate", get=405, post="operate", post_status=422, arguments=(OPERATION,)
    ),
    "operation-pause": Address("operate", post="operate", post_status=422, arguments=(OPERATION,)),
    "operation-resume": Address("operate", post="operate", post_status=422, arguments=(OPERATION,)),
    "operation-cancel": Address("operate", post="operate", post_status=422, arguments=(OPERATION,)),
    "operation-report": Address("view", arguments=(OPERATION,)),
    "operation-file": Address("operate", get=404, arguments=(OPERATION,)),  # it is no export
    "notifications": Address("view"),
    "notification": Address("view", arguments=(NOTIFICATION,)),
    "notification-content": Address("view", arguments=(NOTIFICATION,)),
    "dead-letters": Address("view"),
    "dead-letters-groups": Address("view"),
    "dead-letters-list": Address("view"),
    # without a filter there is nothing to plan
    "dead-letters-replay": Address("operate", get=422, post="operate", post_status=422),
    "dead-letters-archive": Address("operate", get=422, post="operate", post_status=422),
    "dead-letter": Address("view", arguments=(LETTER,)),
    "dead-letter-content": Address("view", arguments=(LETTER,)),
    "dead-letter-replay": Address("operate", post="operate", post_status=400, arguments=(LETTER,)),
    "dead-letter-archive": Address("operate", post="operate", post_status=422, arguments=(LETTER,)),
    "dead-letter-restore": Address("operate", post="operate", post_status=422, arguments=(LETTER,)),
    "destinations": Address("view"),
    "destination": Address("view", arguments=(DESTINATION,)),
    "destination-new": Address("configure", post="configure", post_status=422),
    "destination-change": Address(
        "configure", post="configure", post_status=422, arguments=(DESTINATION,)
    ),
    "destination-test": Address(
        "configure", get=405, post="configure", post_status=400, arguments=(DESTINATION,)
    ),
    "destination-close": Address(
        "configure", post="configure", post_status=422, arguments=(DESTINATION,)
    ),
    "destination-open": Address(
        "configure", post="configure", post_status=422, arguments=(DESTINATION,)
    ),
    "alert-rules": Address("view"),
    "alert-rule": Address("view", arguments=(RULE,)),
    "alert-rule-new": Address("configure", post="configure", post_status=422),
    "alert-rule-change": Address("configure", post="configure", post_status=422, arguments=(RULE,)),
    "services": Address("view"),
    "service": Address("view", arguments=(SERVICE,)),
    "service-new": Address("configure", post="configure", post_status=422),
    "service-change": Address("configure", post="configure", post_status=422, arguments=(SERVICE,)),
    "prices": Address("view"),
    "price-new": Address("configure", post="configure", post_status=422),
    "tokens": Address("view"),
    "token-new": Address("tokens", post="tokens", post_status=422),
    "token-revoke": Address("tokens", post="tokens", post_status=422, arguments=(TOKEN,)),
    "people": Address("view"),
    "person-new": Address("people", post="people", post_status=422),
    "person-change": Address("people", post="people", post_status=422, arguments=(PERSON,)),
    "person-password": Address("people", post="people", post_status=422, arguments=(PERSON,)),
    "person-factors": Address("people", post="people", post_status=422, arguments=(PERSON,)),
    "you": Address("view"),
    "you-password": Address("view", post="view", post_status=422),
    "you-app": Address("view", post="view", post_status=422),
    "you-passkey": Address("view", post="view", post_status=200),  # http: the page says why not
    "you-codes": Address("view", post="view", post_status=422),
    "you-factor-remove": Address("view", get=404, post="view", post_status=404, arguments=("1",)),
    "you-sign-ins-end": Address("view", get=405, post="view", post_status=400),
    "you-sign-in-end": Address("view", get=405, post="view", post_status=400, arguments=("x",)),
    "sso-link": Address("view", get=405, post="view", post_status=404),
    "sso-unlink": Address("view", get=405, post="view", post_status=400),
    "audit": Address("view"),
    "audit-export": Address("view"),
    "audit-plan": Address("operate", post="operate", post_status=422),
    "act": Address("view", arguments=("{act}",)),
    "health": Address("view"),
    "health-examine": Address("operate", get=405, post="operate", post_status=400),
    "styleguide": Address("view", get=404, post="view", post_status=404),  # 404 outside DEBUG
}
PUBLIC = {"sign-in", "account_login", "mfa_authenticate", "sign-out", "sso"}
PUBLIC |= {"openid_connect_callback"}
GRAVE = {"request-resolve", "call", "operation-apply", "token-new", "token-revoke", "person-new"}
GRAVE |= {"person-change", "person-password", "person-factors", "sso-link", "sso-unlink"}
GRAVE |= {"you-app", "you-passkey", "you-codes", "you-factor-remove"}


def console_names():
    return {
        pattern.name
        for pattern in get_resolver("console.urls").url_patterns
        if not hasattr(pattern, "url_patterns")
    }


def test_every_address_has_an_entry_here():
    assert console_names() == set(ADDRESSES) | PUBLIC


@pytest.fixture
def path_of(db):
    """Makes the rows the addresses name; returns name -> path."""
    lives.open_account()
    lives.add_service()
    known = {REQUEST: lives.admitted("op-1").id}
    work_data.tools_and_routes(service_id=SERVICE)
    asked = work_data.refund("order-1", account=ACCOUNT)
    known |= {JOB: asked.job_id, CALL: f"{asked.job_id}.1.0", APPROVAL: asked.approval_ids[0]}
    known |= delivery_rows()
    known[TOKEN] = access.issue_token(
        account_id="acme", name="ci", scopes=["usage:read"], actor=lives.ACTOR
    )[0].id
    known["{act}"] = AuditRow.objects.values_list("id", flat=True).first()
    access.add_person(
        name=PERSON, role="viewer", password="a long first password", actor=lives.ACTOR
    )

    def path(name):
        arguments = [known.get(one, one) for one in ADDRESSES[name].arguments]
        return reverse(name, args=arguments)

    return path


def delivery_rows():
    """A dead letter, its notification, a plan about it, and a rule; by placeholder."""
    delivery_data.make_destinations(account=ACCOUNT)
    letter = delivery_data.dead_letter(account=ACCOUNT)
    plan = delivery_data.plan(destination_id=DESTINATION)
    alerts.create_rule(
        rule_id=RULE, event_prefix="job", destination_id=DESTINATION, actor=lives.ACTOR
    )
    name = Notification.objects.values_list("id", flat=True).get(state="dead")
    return {LETTER: letter, NOTIFICATION: name, OPERATION: plan.id}


@pytest.fixture
def visitor(signed_in):
    """A client of each kind of person, made when asked for."""

    def make(who):
        if who == STRANGER:
            return Client()
        return signed_in() if who == NOBODY else signed_in(who)

    return make


@pytest.mark.parametrize("who", PEOPLE)
def test_who_may_look(path_of, visitor, who):
    client = visitor(who)
    found, expected = {}, {}
    for name, address in ADDRESSES.items():
        response = client.get(path_of(name))
        found[name] = response.status_code
        if who == STRANGER:
            expected[name] = 302
            assert response["Location"].startswith("/sign-in/?next=")
        elif address.permission in ROLES.get(who, ()):
            expected[name] = address.get
        else:
            expected[name] = 403
            assert "Your role" in response.text
    assert found == expected


@pytest.mark.parametrize("who", PEOPLE)
def test_who_may_act(path_of, visitor, who):
    client = visitor(who)
    found, expected = {}, {}
    for name, address in ADDRESSES.items():
        response = client.post(path_of(name))
        found[name] = response.status_code
        granted = ROLES.get(who, frozenset())
        if who == STRANGER:
            expected[name] = 401
        elif {address.permission, address.post or address.permission} <= granted:
            expected[name] = address.post_status
        else:
            expected[name] = 403
    assert found == expected


def test_a_lost_sign_in_under_htmx_is_401_with_the_way_back(path_of):
    stranger = Client(headers={"HX-Request": "true"})
    for name in ADDRESSES:
        response = stranger.post(path_of(name))
        assert response.status_code == 401, name
        assert response["HX-Redirect"].startswith("/sign-in/?next="), name


def test_a_post_without_a_csrf_token_does_nothing(path_of, signed_in):
    client = signed_in("admin", enforce_csrf_checks=True)
    assert {name: client.post(path_of(name)).status_code for name in ADDRESSES} == dict.fromkeys(
        ADDRESSES, 403
    )


def test_no_answer_is_stored_and_each_varies_by_what_asked(path_of, admin):
    for name in ADDRESSES:
        response = admin.get(path_of(name))
        assert response["Cache-Control"] == "no-store", name
        assert "HX-Request" in response["Vary"], name
        assert "unsafe" not in response["Content-Security-Policy"], name


def test_grave_acts_ask_for_a_fresh_proof_and_nothing_else_does(path_of, admin):
    """Always, or (approving high risk) after a look at the row: tests/console/test_step_up.py."""
    found = {
        pattern.name
        for pattern in get_resolver("console.urls").url_patterns
        if getattr(pattern.callback, "is_stepped_up", False)
    }
    assert found == GRAVE
    with override(step_up_seconds=30), mock.patch.object(proofs, "_now", lambda: 2**40):
        for name in sorted(GRAVE):
            response = admin.post(path_of(name), {"note": "typed before"})
            assert response.status_code == 403, name
            assert "typed before" in response.text, name
            assert 'class="effect is-small"><bdi' in response.text, f"{name} names no act"


def test_no_page_of_allauth_is_routed_but_the_three_that_are_ours():
    theirs = {
        name
        for module in ("account", "mfa", "socialaccount", "socialaccount.providers.openid_connect")
        for name in get_resolver(f"allauth.{module}.urls").reverse_dict
        if isinstance(name, str)
    }
    assert {"account_signup", "mfa_index", "openid_connect_login"} <= theirs
    assert theirs & console_names() == PUBLIC & theirs
    assert len(PUBLIC & theirs) == 3


@pytest.mark.parametrize(
    "path",
    [
        "/requests/req_nothing/",
        "/requests/%E2%80%AEx/",
        f"/requests/{'x' * 200}/",
        "/requests/req_nothing/resolve/",
        "/requests/req_nothing/body/result/",
        "/accounts/nobody/",
        f"/accounts/{'x' * 200}/",
        "/accounts/%D7%A9/change/",
        "/services/none/",
        f"/services/{'x' * 200}/change/",
        "/tokens/tok_nothing/revoke/",
        f"/tokens/{'x' * 200}/revoke/",
        "/approvals/apr_nothing/",
        "/approvals/%E2%80%AEx/approve/",
        f"/approvals/{'x' * 200}/deny/",
        "/jobs/job_nothing/",
        f"/jobs/{'x' * 200}/cancel/",
        "/jobs/pause/route:none/",
        "/jobs/unpause/everything/",
        "/calls/job_nothing.1.0/",
        "/tools/none/",
        "/tools/%D7%A9/change/",
        "/routes/none/change/",
        "/notifications/ntf_nothing/",
        "/dead-letters/%E2%80%AEx/replay/",
        "/operations/op_nothing/report.csv",
        "/destinations/none/change/",
        "/alert-rules/none/",
        "/people/nobody-here/change/",
        "/people/%00/change/",
        "/people/nobody-here/password/",
        "/nowhere/",
    ],
)
def test_what_does_not_exist_is_404_in_words(admin, path):
    response = admin.get(path)
    assert response.status_code == 404
    assert "There is nothing here" in response.text
