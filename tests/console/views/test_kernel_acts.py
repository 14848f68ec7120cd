"""Acts that need the kernel's loop: dispatch and "run a pass now", through the real application."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from kernel.access import ensure_roles
from kernel.kernel import Kernel
from kernel.models import AuditRow, LedgerRow, Request
from kernel.states import Billing, Result
from tests.support import lives
from tests.support.pages import PageForm, form_to
from tests.support.product import admitted, ask, client_of, look, reread, running_kernel, settled
from tests.support.provider import ProviderProcess


@pytest.fixture
def cookies(shop: ProviderProcess) -> dict[str, str]:
    """The cookies of a signed-in operator."""
    ensure_roles()
    user = User.objects.create_user("olga", password="correct horse")
    user.groups.set(Group.objects.filter(name="operator"))
    client = Client()
    client.force_login(user)
    return {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}


@pytest.fixture
def waiting(shop: ProviderProcess) -> Request:
    """An admitted request."""
    return admitted(ask("op-1"))


@pytest.fixture
def answered(shop: ProviderProcess) -> Request:
    """A request whose answer is saved and not settled."""
    fence = lives.dispatched("op-1")
    lives.save(lives.answer_of(fence))
    return lives.read(fence.request_id)


@contextlib.asynccontextmanager
async def console(kernel: Kernel, cookies: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(kernel) as client:
        client.cookies.update(cookies)
        yield client


async def rendered(client: httpx.AsyncClient, page: str, action: str) -> PageForm:
    return form_to((await client.get(page)).text, action)


async def send(client: httpx.AsyncClient, form: PageForm, **values: str) -> httpx.Response:
    return await client.post(form.action, data={**form.fields, **values})


def acts() -> list[tuple[str, str, str, str]]:
    rows = AuditRow.objects.exclude(request_id="").order_by("at", "id")
    assert {row.actor_id for row in rows} <= {"olga"}
    return [(row.action, row.subject, row.reason, row.request_id) for row in rows]


async def test_dispatch_from_the_console_is_one_call_and_one_audit_row(
    shop: ProviderProcess, waiting: Request, cookies: dict[str, str]
) -> None:
    page = reverse("request-dispatch", args=[waiting.id])
    async with running_kernel() as kernel, console(kernel, cookies) as client:
        form = await rendered(client, page, page)
        first, second = await asyncio.gather(
            send(client, form, note="Customer waits."), send(client, form, note="Customer waits.")
        )
        assert [first.status_code, second.status_code] == [303, 303]
        await settled(kernel)
        after = await look(kernel, lambda: reread(waiting))
        assert (after.result_state, after.billing_state) == (Result.COMPLETE, Billing.SETTLED)
        (act,) = await look(kernel, acts)
        assert act[:3] == ("request.dispatch", f"request:{waiting.id}", "Customer waits.")
        assert act[3] in (first.headers["X-Request-Id"], second.headers["X-Request-Id"])
    assert shop.count("op-1") == 1


async def test_two_people_who_dispatch_at_once_make_one_call(
    shop: ProviderProcess, waiting: Request, cookies: dict[str, str]
) -> None:
    page = reverse("request-dispatch", args=[waiting.id])
    async with running_kernel() as kernel, console(kernel, cookies) as client:
        forms = [await rendered(client, page, page) for _ in range(2)]
        answers = await asyncio.gather(*(send(client, form, note="Mine.") for form in forms))
        assert sorted(one.status_code for one in answers) == [303, 409]
        (refused,) = [one.text for one in answers if one.status_code == 409]
        assert "Only an admitted request can be dispatched." in refused
        assert "olga" in refused and "Mine." in refused
        await settled(kernel)
        assert len(await look(kernel, acts)) == 1
    assert shop.count("op-1") == 1


async def test_run_a_pass_now_settles_what_waits_and_is_audited(
    answered: Request, cookies: dict[str, str]
) -> None:
    page, action = reverse("reconciliation"), reverse("reconciliation-run")
    async with running_kernel() as kernel, console(kernel, cookies) as client:
        form = await rendered(client, page, action)
        answer = await send(client, form)
        assert answer.status_code == 303
        assert "The pass has run." in (await client.get(page)).text
        row = await look(kernel, lambda: lives.read(answered.id))
        assert row.billing_state == Billing.SETTLED
        again = await send(client, form)
        assert again.status_code == 303
        assert "This form was carried out once" in (await client.get(page)).text
        assert [act[:2] for act in await look(kernel, acts)] == [("pass.run", "pass:settlement")]
        assert await look(kernel, LedgerRow.objects.count) == 1
