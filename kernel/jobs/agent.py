"""The agent run: model step, tool calls, next step, until an answer, a question or a limit (D2).

Everything it knows it reads from saved facts, so a run that begins after a crash stands where the
last one stood: a saved model result is read, never generated again; a call with an answer is never
made again. Before each effect the job's fence is confirmed in the database.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from django.db import DatabaseError, InterfaceError

from kernel import clock
from kernel.conf import conf
from kernel.errors import (
    CommitOutcomeUnknown,
    Conflict,
    LostRace,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from kernel.jobs import journal, steps, tools
from kernel.jobs.answers import noted, save_answer
from kernel.jobs.calls import calls_left_dispatching, calls_of_step, is_plain_read
from kernel.jobs.claims import Claim, Stopped
from kernel.jobs.conversation import (
    ModelAnswer,
    Unreadable,
    first_messages,
    read_answer,
    request_body,
    result_text,
    step_messages,
)
from kernel.jobs.proposals import Again, ask_in_tx, propose
from kernel.models import Request, ToolCall
from kernel.states import CallState, JobState, Result, Waiting
from kernel.usage.dispatch import cancel
from kernel.usage.gateway import Flight
from kernel.usage.recovery import expire_lease

log = logging.getLogger(__name__)

SAVE_WAIT_SECONDS, SAVE_WAIT_SECONDS_MAX = 0.2, 5.0
ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.REFUSED, JobState.CANCELLED})


class Run(Claim):
    """The agent's work under one claim of a job."""

    plan: steps.Plan

    async def go(self) -> None:
        """Work until the job is finished, waits, or is released.

        LostRace `lost_lease` when the claim is over; database errors pass through: the caller
        releases the job.
        """
        try:
            await self._go()
        except Stopped:
            return

    async def _go(self) -> None:
        await self._read_plan()
        await self._look_after_calls_of_dead_runs()
        messages = first_messages(
            instructions=self.plan.route.instructions, input_text=self.job.input_text
        )
        step = 0
        while True:
            step += 1
            answer = await self._model_step(step, messages)
            if not answer.calls:
                await self._finish_done(answer, step)
            calls = await self._tool_calls(step, answer)
            messages += step_messages(answer, calls)
            await self._read_plan()

    async def _read_plan(self) -> None:
        """The route and its tools as they are now: a change counts from the next step on."""
        plan = await self.read(steps.plan_of, route_id=self.job.route_id)
        if plan is None:
            await self.fail("route_missing", f"There is no route {self.job.route_id}.")
        self.plan = plan
        if not plan.route.active:
            await self.fail(journal.ROUTE_STOPPED, f"{plan.route.id} is not in use any more.")

    # --- model steps --------------------------------------------------------------------------

    async def _model_step(self, step: int, messages: list[dict[str, Any]]) -> ModelAnswer:
        """The saved answer of this step; generates it if nobody has (A3, D2)."""
        name = {"account_id": self.job.account_id, "job_id": self.job.id, "step": step}
        while True:
            found = await self.read(steps.model_step, **name)
            if found is None:
                await self._between_steps()
                await self._check_limits(step)
                await self._submit(step, messages)
                continue
            row = found.request
            if row.result_state == Result.ADMITTED:
                await self._between_steps()
                await self._dispatch(row)
            elif row.result_state == Result.DISPATCHED:
                await self._wait_for_its_owner(row)
            elif row.result_state == Result.UNKNOWN:
                await self.wait(Waiting.MODEL_UNKNOWN)
            elif row.result_state == Result.COMPLETE:
                return await self._answer_of(found)
            else:
                why = f"model step {step} {row.result_state}: {row.error_code} {row.error_text}"
                await self.fail(f"model_{row.result_state}", why.strip())

    async def _check_limits(self, step: int) -> None:
        route = self.plan.route
        if step > route.steps_max:
            await self.fail("steps_exceeded", f"The route allows {route.steps_max} steps.")
        if route.tokens_max is None and route.cost_nano_max is None:
            return
        used = await self.read(steps.spent, account_id=self.job.account_id, job_id=self.job.id)
        if route.tokens_max is not None and used.tokens >= route.tokens_max:
            await self.fail(
                "tokens_exceeded", f"{used.tokens} of {route.tokens_max} tokens are used."
            )
        if route.cost_nano_max is not None and used.cost_nano >= route.cost_nano_max:
            await self.fail(
                "cost_exceeded", f"{used.cost_nano} of {route.cost_nano_max} nano-USD are used."
            )

    async def _submit(self, step: int, messages: list[dict[str, Any]]) -> None:
        body = request_body(
            service_id=self.plan.route.service_id, messages=messages, tools=self.plan.tools
        )
        if len(body) > conf.request_body_bytes_max:
            await self.fail("conversation_too_large", f"The next request has {len(body)} bytes.")
        submission = steps.submission_of_step(
            account_id=self.job.account_id, job_id=self.job.id, step=step, body=body
        )
        await self.confirm_fence()
        try:
            found = await self.parts.gateway.submit(submission)
        except Conflict as error:
            if error.error_code != "operation_conflict":
                raise
            return  # another claim admitted this step: what is saved counts, whatever it says
        except Refused as error:
            await self.fail(error.error_code, error.message)
        if isinstance(found, Flight):
            await self._follow(found)

    async def _dispatch(self, row: Request) -> None:
        """Admitted by a run that died before its dispatch: sent now, under its own identity."""
        await self.confirm_fence()
        await self._follow(await self.parts.gateway.dispatch(row))

    async def _follow(self, flight: Flight) -> None:
        """Wait until the outcome is saved. What it is, is read from the row."""
        try:
            await flight.wait_ended()
        except (LostRace, OutcomeUnknown):
            return
        except Conflict as error:
            # The service was changed after admission: this request can never be sent.
            await self.sure(
                cancel, request_id=flight.request.id, actor=journal.WORKER, reason=error.message
            )
            await self.fail(error.error_code, error.message)

    async def _wait_for_its_owner(self, row: Request) -> None:
        """Somebody else's generation: its outcome, or the end of its lease, comes later (A9)."""
        if await self.sure(expire_lease, request_id=row.id):
            return
        await self.release(conf.job_retry_seconds)

    async def _answer_of(self, found: steps.ModelStep) -> ModelAnswer:
        if found.answer is None:
            await self.fail("result_purged", "A saved model result was removed after retention.")
        try:
            return read_answer(found.answer)
        except Unreadable as error:
            await self.fail("model_answer_unreadable", str(error))

    # --- tool calls ---------------------------------------------------------------------------

    async def _tool_calls(self, step: int, answer: ModelAnswer) -> list[ToolCall]:
        """The ended calls of this step; makes those that are still to be made (D3)."""
        calls = await self._calls(step)
        if not calls:
            await self._between_steps()
            calls = await self.sure(
                propose,
                store=self.parts.store,
                fence=self.fence,
                step=step,
                calls=answer.calls,
                tool_ids=self.plan.tool_ids,
            )
        while any(call.state == CallState.PROPOSED for call in calls):
            ask = [
                call.id
                for call in calls
                if call.state == CallState.PROPOSED and await self._make(call)
            ]
            if ask:
                await self._ask(ask)
            calls = await self._calls(step)
        return calls

    async def _calls(self, step: int) -> list[ToolCall]:
        return await self.read(calls_of_step, job_id=self.job.id, step=step)

    async def _make(self, call: ToolCall) -> bool:
        """Make one call, if it may be made now. True when a person must be asked first."""
        await self._between_steps()
        permit = await self._begin(call.id)
        if isinstance(permit, journal.Permit):
            await self._send(permit)
            return False
        if permit.reason in (journal.PAUSED, journal.RATE_LIMITED):
            await self.release(conf.job_retry_seconds)
        if permit.reason == journal.OPEN:
            await self.wait(Waiting.APPROVAL)
        if permit.reason in (journal.REFUSED, journal.EXPIRED):
            late = call.approval_id if permit.reason == journal.EXPIRED else ""
            code = "approval_expired" if late else "approval_refused"
            await self.end(
                JobState.REFUSED,
                code=code,
                why=permit.message,
                also=self.ended(code, permit.message, late_approval_id=late),
            )
        if permit.reason == journal.ROUTE_STOPPED:
            await self.fail(permit.reason, permit.message)
        return permit.reason == journal.ASK

    async def _begin(self, call_id: str) -> journal.Permit | journal.Held:
        values: dict[str, Any] = {"store": self.parts.store, "fence": self.fence}
        values |= {"call_id": call_id, "route_id": self.job.route_id}
        try:
            return await self.parts.database.in_tx(journal.begin_call, **values)
        except CommitOutcomeUnknown:
            # Only this claim can have written it: what is there now is its own.
            return await self.sure(journal.begin_call, **values, confirm=True)

    async def _send(self, permit: journal.Permit) -> None:
        try:
            answer = await tools.call_tool(
                door=self.parts.door,
                tool=permit.tool,
                arguments_text=permit.arguments_text,
                idempotency_key=permit.idempotency_key,
                until=self.held_until,
            )
        except Exception as error:
            log.exception("tool call %s failed", permit.call_id)
            answer = tools.ToolAnswer(
                tools.UNCERTAIN, error_code="internal", error_text=type(error).__name__
            )
        try:
            if answer.outcome == tools.ANSWERED:
                await self._save(permit, answer)
            elif answer.outcome == tools.UNCERTAIN and permit.tool.side_effect:
                await self.wait(Waiting.CALL_UNCERTAIN, also=noted(permit, answer))
            else:
                await self._give_back(permit.call_id, answer)
        except LostRace as error:
            if error.error_code == "lost_lease":
                await self._save_late(permit, answer)
            raise

    async def _save_late(self, permit: journal.Permit, answer: tools.ToolAnswer) -> None:
        """The job was cancelled meanwhile; the knowledge exists only here (compare A6, A16).

        After another claim nothing is written: that one has judged the call by now (D1).
        """
        job = await self.read(self.parts.store.get, job_id=self.job.id)
        if job.fence_token != self.fence.token:
            return
        try:
            await self.sure(
                save_answer,
                permit=permit,
                answer=answer,
                actor=journal.WORKER,
                give_up=job.state in ENDED,
            )
        except LostRace as error:  # sent anew, or an operator has resolved it: that stays
            log.warning("the answer of call %s came too late: %s", permit.call_id, error.message)

    async def _save(self, permit: journal.Permit, answer: tools.ToolAnswer) -> None:
        """Save the answer, and keep trying while the database is away: it exists only here."""
        give_up_at = clock.monotonic() + conf.result_save_seconds_max
        wait = SAVE_WAIT_SECONDS
        while True:
            try:
                await self.sure(
                    journal.finish_call,
                    store=self.parts.store,
                    fence=self.fence,
                    call_id=permit.call_id,
                    http_status=answer.http_status,
                    response_text=answer.text,
                    response_bytes=answer.body_bytes,
                )
                return
            except (DatabaseError, InterfaceError, Unavailable):
                if clock.monotonic() + wait >= give_up_at:
                    raise
                log.warning("answer of %s is not saved yet; trying again", permit.call_id)
            await asyncio.sleep(wait)
            wait = min(wait * 2, SAVE_WAIT_SECONDS_MAX)

    async def _give_back(self, call_id: str, answer: tools.ToolAnswer) -> None:
        again = await self.sure(
            journal.give_back_call,
            store=self.parts.store,
            fence=self.fence,
            call_id=call_id,
            code=answer.error_code,
            message=answer.error_text,
            give_up=answer.is_for_good,
        )
        if again:
            await self.release(conf.job_retry_seconds)

    async def _ask(self, call_ids: list[str]) -> None:
        requester = await self.read(steps.requester_of, job_id=self.job.id)
        if not requester:
            # Nobody could be kept from deciding about their own wish: nobody is asked (C11).
            await self.fail("requester_unknown", "Nothing says who submitted this job.")
        ask = partial(
            ask_in_tx,
            job=self.job,
            route=self.plan.route,
            call_ids=call_ids,
            requested_by=requester,
        )
        try:
            await self.wait(Waiting.APPROVAL, also=ask)
        except Again:
            return
        except Conflict as error:
            if error.error_code != "too_many_questions":
                raise
            await self.fail(error.error_code, error.message)

    async def _look_after_calls_of_dead_runs(self) -> None:
        """Sent under an earlier claim, no answer: a read is made again, the rest is uncertain."""
        left = await self.read(calls_left_dispatching, job_id=self.job.id)
        by_id = {tool.id: tool for tool in self.plan.tools}
        for call in left:
            if not is_plain_read(call, by_id.get(call.tool)):
                await self.wait(Waiting.CALL_UNCERTAIN)
            await self.sure(
                journal.give_back_call,
                store=self.parts.store,
                fence=self.fence,
                call_id=call.id,
                code="owner_lost",
                message="The run that sent it ended before its answer was saved.",
            )

    # --- how it ends --------------------------------------------------------------------------

    async def fail(self, code: str, why: str) -> NoReturn:
        """The job ends without a result; its open questions and unsent calls end with it."""
        await self.end(JobState.FAILED, code=code, why=why, also=self.ended(code, why))

    def ended(self, code: str, why: str, *, late_approval_id: str = "") -> Callable[[], None]:
        return partial(
            journal.end_calls_in_tx,
            job_id=self.job.id,
            actor=journal.WORKER,
            code=code,
            reason=why,
            late_approval_id=late_approval_id,
        )

    async def _between_steps(self) -> None:
        """Where a run may stop without losing anything, and finds that it took too long."""
        await self.stop_if_asked()
        seconds = self.plan.route.run_seconds_max
        if self.seconds > seconds:
            await self.fail("run_time_exceeded", f"This run took more than {seconds} s.")

    async def _finish_done(self, answer: ModelAnswer, step: int) -> None:
        text = result_text(answer, steps=step)
        size = len(text.encode())
        if size > conf.job_result_bytes_max:
            await self.fail("result_too_large", f"The result has {size} bytes.")
        await self.end(JobState.DONE, result_text=text)
