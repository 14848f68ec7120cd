"""Tools and routes on screen: the kernel's errors at the field, every version kept (D4, L4)."""

import json

import pytest
from django.urls import reverse

from kernel.models import Route, Tool
from tests.console.views.conftest import rendered, send

TOOL = {
    "tool_id": "cancel_order",
    "description": "Cancel an order.",
    "method": "POST",
    "url": "https://shop.example.com/orders/{order_id}/cancel",
    "parameters": json.dumps(
        {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        }
    ),
    "policy": json.dumps({"default": "approval", "risk": "medium"}),
    "effect": "Cancel order {order_id}.",
}
ROUTE = {
    "route_id": "cancellations",
    "target": "agent",
    "service_id": "gpt-main",
    "instructions": "Be brief.",
    "tools": ["refund_order", "find_order"],
}


def test_a_tool_is_added_and_shown(desk, admin):
    answer = send(admin, rendered(admin, "tool-new"), **TOOL)
    assert (answer.status_code, answer["Location"]) == (303, reverse("tool", args=["cancel_order"]))
    row = Tool.objects.get(id="cancel_order")
    assert row.side_effect and row.version == 1
    page = admin.get(answer["Location"]).text
    assert "<strong><bdi" in page and "shop.example.com" in page and "Asks a person" in page
    assert "cancel_order" in admin.get(reverse("tools")).text


@pytest.mark.parametrize(
    "field,value",
    [
        ("url", "ftp://shop.example.com/x"),
        ("url", "https://{order_id}.example.com/x"),
        ("url", "https://shop.example.com/{nobody}"),
        ("parameters", "{not json"),
        ("parameters", '{"type":"array"}'),
        ("policy", '{"default":"maybe"}'),
        ("policy", '{"default":"auto","rules":[{"when":{"argument":"x"},"then":"auto"}]}'),
        ("effect", "Cancel {nothing}."),
        ("tool_id", "two words"),
        ("tool_id", "refund_order"),
    ],
)
def test_what_the_kernel_refuses_is_an_error_at_its_field_and_nothing_is_lost(
    desk, admin, field, value
):
    answer = send(admin, rendered(admin, "tool-new"), **{**TOOL, field: value})
    assert answer.status_code in (409, 422)
    part = answer.text.split(f'id="id_{field}"')[1].split('<div class="field')[0]
    assert "field-error" in part
    assert "Cancel an order." in answer.text
    assert not Tool.objects.filter(id="cancel_order").exists()


def test_a_change_is_a_new_version_and_a_stale_form_says_who_was_first(desk, admin):
    form = rendered(admin, "tool-change", "refund_order")
    stale = rendered(admin, "tool-change", "refund_order")
    row = Tool.objects.get(id="refund_order")
    values = {
        "description": "Refund it.",
        "method": "POST",
        "parameters": row.parameters_text,
        "policy": row.policy_text,
        "reason": "Clearer words.",
    }
    assert send(admin, form, **values).status_code == 303
    row.refresh_from_db()
    assert (row.version, row.description) == (2, "Refund it.")
    late = send(admin, stale, **values)
    assert late.status_code == 409 and "admin" in late.text
    page = admin.get(reverse("tool", args=["refund_order"])).text
    assert "Clearer words." in page and "version 2" in page


def test_a_route_is_added_changed_and_shown(desk, admin):
    answer = send(admin, rendered(admin, "route-new"), **ROUTE)
    assert answer.status_code == 303
    row = Route.objects.get(id="cancellations")
    assert json.loads(row.tools_text) == ["refund_order", "find_order"]
    form = rendered(admin, "route-change", "cancellations")
    values = {**ROUTE, "cost_nano_max": "2.50", "tools": ["find_order"], "reason": "Less."}
    del values["route_id"]
    assert send(admin, form, **values).status_code == 303
    row.refresh_from_db()
    assert (row.version, row.cost_nano_max) == (2, 2_500_000_000)
    assert "Less." in admin.get(reverse("route", args=["cancellations"])).text


def test_a_route_without_its_service_is_refused_at_the_field(desk, admin):
    answer = send(admin, rendered(admin, "route-new"), **{**ROUTE, "service_id": ""})
    assert answer.status_code == 422 and "field-error" in answer.text
    assert not Route.objects.filter(id="cancellations").exists()


@pytest.mark.parametrize("role", ["viewer", "approver", "operator"])
def test_only_who_configures_changes_tools_and_routes(desk, signed_in, role):
    client = signed_in(role)
    assert "Your role" in client.get(reverse("tools")).text
    for name, args in (("tool-new", ()), ("tool-change", ["refund_order"]), ("route-new", ())):
        assert client.get(reverse(name, args=args)).status_code == 403
        assert client.post(reverse(name, args=args), {"form_key": "k" * 22}).status_code == 403
