"""Jobs and approvals for looking at the console, made by the product's own verbs.

made = work_data.busy_desk()     # needs an account `acme-prod` and a service `gpt-main`
(approval_id,) = work_data.ask("order-1", [("refund_order", {...})]).approval_ids

Only times and states that need a worker, or patience, are written past the verbs.
"""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import F

from kernel import approvals, clock, jobs
from kernel.audit import Actor
from kernel.jobs import journal, proposals
from kernel.jobs.conversation import ModelCall
from kernel.models import Approval, Continuation, Job, Tool, ToolCall
from kernel.state import DatabaseStore, JobRecord
from kernel.state.pauses import pause
from kernel.transactions import transaction

STORE = DatabaseStore()
OLGA, CHECKOUT = Actor("user", "olga"), Actor("token", "tok_checkout")
ACCOUNT, ROUTE, OWNER = "acme-prod", "refunds", "wrk_desk"
SECRET = "sk-live-51H8x-do-not-show"
LOOKALIKE = "https://p\u0430yp\u0430l.com/x"
REFUND_SCHEMA = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "maxLength": 40},
        "amount": {"type": "number", "minimum": 0},
        "currency": {"type": "string", "default": "EUR"},
        "note": {"type": "string", "maxLength": 100_000},
        "headers": {"type": "object", "additionalProperties": True},
    },
    "required": ["order_id", "amount"],
    "additionalProperties": False,
}
REFUND_POLICY = {
    "default": "approval",
    "risk": "medium",
    "rules": [
        {
            "when": {"argument": "amount", "is": "number", "op": ">", "value": 500},
            "then": "approval",
            "risk": "high",
        }
    ],
}
TOOLS: dict[str, dict[str, Any]] = {
    "refund_order": {
        "description": "Refund an order, in whole currency units.",
        "url": "https://shop.example.com/orders/{order_id}/refunds",
        "parameters": REFUND_SCHEMA,
        "policy": REFUND_POLICY,
        "effect": "Refund {amount} {currency} for order {order_id}.",
        "secret_env": "SHOP_KEY",
    },
    "send_mail": {
        "description": "Send one mail to a customer.",
        "url": "https://mail.example.com/v1/messages",
        "parameters": {
            "type": "object",
            "properties": {"to": {"type": "string"}, "subject": {"type": "string"}},
            "required": ["to", "subject"],
        },
        "policy": {"default": "approval", "risk": "low"},
        "effect": "Send a mail to {to}: {subject}.",
    },
    "find_order": {
        "description": "Look an order up.",
        "method": "GET",
        "url": "https://shop.example.com/orders/{order_id}",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
        "policy": {"default": "auto", "risk": "low"},
        "side_effect": False,
    },
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A job that waits for a person: its id, and its questions in order."""

    job_id: str
    approval_ids: list[str]


def tools_and_routes(*, service_id: str = "gpt-main") -> None:
    """Three tools; a route for agents on that service, one for executors."""
    for tool_id, fields in TOOLS.items():
        jobs.create_tool(tool_id=tool_id, actor=OLGA, **fields)
    jobs.create_route(
        route_id=ROUTE,
        actor=OLGA,
        service_id=service_id,
        instructions="You look after orders. Say in one sentence what you did.",
        tools=list(TOOLS),
    )
    jobs.create_route(route_id="crm-sync", actor=OLGA, target="executor")


def submit(request_id: str, *, prompt: str = "", account: str = ACCOUNT) -> JobRecord:
    """A queued job."""
    job, _made = jobs.submit_job(
        store=STORE,
        account_id=account,
        request_id=request_id,
        route_id=ROUTE,
        input={"prompt": prompt or f"The customer of {request_id} wants the money back."},
        actor=CHECKOUT,
    )
    return job


def claim(job_id: str, *, owner: str = OWNER) -> JobRecord:
    """Claim this very job; others that are due stay queued."""
    Job.objects.filter(id=job_id).update(due_at=clock.db_now() - timedelta(days=400))
    (record,) = STORE.claim(owner=owner, target="agent", limit=1)
    assert record.id == job_id
    Job.objects.filter(id=job_id).update(due_at=F("created_at"))
    return record


def propose(record: JobRecord, calls: list[tuple[str, dict[str, Any]]], *, step: int = 1) -> None:
    """Write down what the model wants in one step."""
    proposals.propose(
        store=STORE,
        fence=record.fence,
        step=step,
        calls=[
            ModelCall(f"call_{index}", name, json.dumps(given))
            for index, (name, given) in enumerate(calls)
        ],
        tool_ids=list(TOOLS),
    )


def ask(
    request_id: str, calls: list[tuple[str, dict[str, Any]]], *, prompt: str = "", **fields: Any
) -> Asked:
    """A job that stopped at these calls and waits for a person about each."""
    job = submit(request_id, prompt=prompt, **fields)
    record = claim(job.id)
    propose(record, calls)
    wait_for_approval(record, len(calls))
    rows = Approval.objects.filter(job_id=job.id).order_by("tool_call_id")
    return Asked(job.id, [row.id for row in rows])


def wait_for_approval(record: JobRecord, calls: int) -> None:
    """The job waits for a person about each of the calls of its first step."""
    call_ids = [f"{record.id}.1.{index}" for index in range(calls)]
    route = jobs.get_route(route_id=ROUTE)
    STORE.wait(
        fence=record.fence,
        reason="approval",
        also=lambda: proposals.ask_in_tx(
            job=record, route=route, call_ids=call_ids, requested_by="token:tok_checkout"
        ),
    )


def refund(request_id: str, amount: float = 40, *, account: str = ACCOUNT, **fields: Any) -> Asked:
    """A job that wants to refund one order."""
    arguments = {"order_id": request_id, "amount": amount, **fields}
    return ask(request_id, [("refund_order", arguments)], account=account)


def decide(approval_id: str, decision: str, *, by: str = "petra", reason: str = "") -> Any:
    """One decision by a person, carried through."""
    return approvals.decide_and_carry(
        order=approvals.Decision(
            approval_id=approval_id,
            decision=decision,
            decision_id=f"dec_{approval_id[4:]}",
            reason=reason,
            actor=Actor("user", by),
        ),
        store=STORE,
    )


def send(job_id: str) -> JobRecord:
    """The approved call is dispatched by a worker, which still holds the job."""
    record = claim(job_id)
    permit = journal.begin_call(store=STORE, fence=record.fence, call_id=f"{job_id}.1.0")
    assert isinstance(permit, journal.Permit), permit
    return record


def answer(record: JobRecord, *, text: str = '{"refund":"re_2291","state":"paid"}') -> None:
    """The tool's whole answer, and the job's end."""
    answer_call(record, text=text)
    finish(record)


def answer_call(record: JobRecord, *, text: str = '{"refund":"re_2291","state":"paid"}') -> None:
    """The tool's whole answer; the job goes on."""
    journal.finish_call(
        store=STORE,
        fence=record.fence,
        call_id=f"{record.id}.1.0",
        http_status=201,
        response_text=text,
        response_bytes=len(text),
    )


def finish(record: JobRecord) -> None:
    """The job's end."""
    STORE.finish(fence=record.fence, state="done", result_text='{"text":"Refunded."}')


def lose_worker(record: JobRecord) -> None:
    """The worker died after the call was sent: the job waits for word about it."""
    STORE.wait(fence=record.fence, reason="tool_uncertain", also=lambda: None)


def late(approval_id: str) -> None:
    """Turn one question's clock: its time is over, nobody has swept it."""
    moment = clock.db_now() - timedelta(seconds=5)
    Approval.objects.filter(id=approval_id).update(expires_at=moment)


def park(job_id: str) -> None:
    """What three lost workers do."""
    Job.objects.filter(id=job_id).update(
        state="parked",
        waiting_reason="",
        error_code="worker_lost",
        error_text="Its workers died three times.",
        attempts=3,
        updated_at=clock.db_now(),
    )


def fail_continuation(approval_id: str, text: str = "OperationalError: no such route") -> None:
    """A recorded decision whose carrying through failed twice so far."""
    now = clock.db_now()
    Continuation.objects.filter(approval_id=approval_id).update(
        state="owed",
        attempts=2,
        error_text=text,
        finished_at=None,
        next_attempt_at=now + timedelta(minutes=50),
        updated_at=now,
    )


@transaction
def void(*, job_id: str) -> None:
    """What a refused sibling does."""
    approvals.void_in_tx(job_id=job_id, actor=OLGA, reason="no longer needed")


def move_back(asked: Asked, *, minutes: int) -> None:
    """Let a job have been sent that long ago."""
    span = timedelta(minutes=minutes)
    Job.objects.filter(id=asked.job_id).update(
        created_at=F("created_at") - span, updated_at=F("updated_at") - span
    )
    rows = Approval.objects.filter(job_id=asked.job_id)
    rows.update(created_at=F("created_at") - span, updated_at=F("updated_at") - span)
    rows.exclude(decided_at=None).update(decided_at=F("decided_at") - span + timedelta(seconds=90))
    rows.exclude(consumed_at=None).update(
        consumed_at=F("consumed_at") - span + timedelta(seconds=91)
    )
    Continuation.objects.filter(job_id=asked.job_id).exclude(finished_at=None).update(
        finished_at=F("finished_at") - span + timedelta(seconds=90)
    )
    ToolCall.objects.filter(job_id=asked.job_id).exclude(finished_at=None).update(
        finished_at=F("finished_at") - span + timedelta(seconds=93)
    )


def busy_desk() -> dict[str, str]:
    """A desk in the middle of a day: open questions, decided ones in every fate; ids by kind."""
    tools_and_routes()
    made = _decided() | _open()
    pause(scope="route:crm-sync", reason="The CRM is being moved until noon.", actor=OLGA)
    return made


def _open() -> dict[str, str]:
    small, large = refund("order-2201", 39.5), refund("order-2207", 1250)
    move_back(small, minutes=47)
    move_back(large, minutes=12)
    mail = ask(
        "mail-31",
        [
            ("send_mail", {"to": "kim@example.com", "subject": "Your refund is on its way"}),
            ("refund_order", {"order_id": "order-2190", "amount": 18}),
        ],
        prompt="Refund order-2190 and tell the customer.",
    )
    move_back(mail, minutes=5)
    soon = refund("order-2214", 75)
    soon_at = clock.db_now() + timedelta(minutes=4)
    Approval.objects.filter(job_id=soon.job_id).update(expires_at=soon_at)
    hostile = ask(
        "order-2230",
        [
            (
                "refund_order",
                {
                    "order_id": "order-22\u202e30",
                    "amount": 900,
                    "note": "log in at https://p\u0430yp\u0430l.com/x"
                    + " " * 5_000
                    + "rm -rf\u200b /",
                    "headers": {"Authorization": f"Bearer {SECRET}", "X-Trace": "a1"},
                },
            )
        ],
        prompt="Refund it. <script>alert('x')</script> \u202eignore",
    )
    changed = refund("order-2240", 61)
    row = Tool.objects.get(id="send_mail")
    jobs.change_tool(
        tool_id="send_mail", actor=OLGA, seen_version=row.version, reason="New host.",
        url="https://mail2.example.com/v1/messages",
    )  # fmt: skip
    submit("order-2250")
    return {
        "small": small.approval_ids[0],
        "large": large.approval_ids[0],
        "mail": mail.approval_ids[0],
        "soon": soon.approval_ids[0],
        "hostile": hostile.approval_ids[0],
        "changed": changed.approval_ids[0],
        "waiting_job": mail.job_id,
    }


def _decided() -> dict[str, str]:
    asked = {
        name: refund(f"order-21{number:02d}", 20 + number)
        for number, name in enumerate(
            ("done", "running", "uncertain", "denied", "failing", "late", "parked", "expired")
        )
    }
    for name in ("done", "running", "uncertain", "failing", "parked"):
        decide(asked[name].approval_ids[0], "approved", reason="Checked in the shop.")
    decide(asked["denied"].approval_ids[0], "denied", reason="The parcel was delivered.")
    answer(send(asked["done"].job_id))
    send(asked["running"].job_id)
    lose_worker(send(asked["uncertain"].job_id))
    fail_continuation(asked["failing"].approval_ids[0])
    Job.objects.filter(id=asked["failing"].job_id).update(
        state="waiting", waiting_reason="approval"
    )
    park(asked["parked"].job_id)
    late(asked["late"].approval_ids[0])
    late(asked["expired"].approval_ids[0])
    approvals.decisions.expire(approval_id=asked["expired"].approval_ids[0])
    for number, name in enumerate(("done", "denied", "uncertain", "failing", "parked")):
        move_back(asked[name], minutes=80 + 45 * number)
    made = {name: one.approval_ids[0] for name, one in asked.items()}
    return made | {f"{name}_job": one.job_id for name, one in asked.items()}
