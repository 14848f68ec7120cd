"""`manage.py job`: submit, look at, cancel and resume jobs (D1, L4)."""

import json
from typing import Any

from django.core.management.base import CommandParser

from kernel import jobs
from kernel.management.base import KernelCommand, Options, actor, add_json, argument, shown
from kernel.management.files import text_or_file
from kernel.models import Job
from kernel.state import DatabaseStore, JobRecord
from kernel.states import JOB

STATES = tuple(state.name for state in JOB.states)
LISTED, LISTED_MAX = 50, 1000


class Command(KernelCommand):
    help = "Jobs: what agents and executors work on."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        submit = self.add_act(acts, "submit", self._submit, help="Submit a job, once per id.")
        submit.add_argument("--account", required=True, metavar="ID", help="who pays for it")
        submit.add_argument("--request-id", required=True, metavar="ID", help="your id of it")
        submit.add_argument("--route", required=True, metavar="ID", help="its kind")
        what = submit.add_mutually_exclusive_group(required=True)
        what.add_argument("--prompt", metavar="TEXT", help="what to do")
        what.add_argument(
            "--input", type=argument(_parse_input), metavar="JSON", help="the whole input, or @file"
        )
        add_json(submit)
        listing = self.add_act(acts, "list", self._list, help="List jobs, newest first.")
        listing.add_argument("--account", default="", metavar="ID", help="only this account's")
        listing.add_argument("--state", default="", choices=STATES, help="only in this state")
        listing.add_argument(
            "--limit", type=argument(_parse_limit), default=LISTED, metavar="N", help=f"({LISTED})"
        )
        add_json(listing)
        show = self.add_act(acts, "show", self._show, help="Show one job.")
        show.add_argument("id", help="the job (job_...)")
        add_json(show)
        cancel = self.add_act(
            acts, "cancel", self._cancel, help="Cancel a job, and the questions it asks."
        )
        cancel.add_argument("id", help="the job (job_...)")
        cancel.add_argument("--reason", default="", help="why, for the audit trail")
        resume = self.add_act(
            acts, "resume", self._resume, help="Put a parked job back into the queue."
        )
        resume.add_argument("id", help="the job (job_...)")
        resume.add_argument("--reason", default="", help="why, for the audit trail")

    def _submit(self, options: Options) -> None:
        given = options["input"] if options["prompt"] is None else {"prompt": options["prompt"]}
        row, created = jobs.submit_job(
            store=DatabaseStore(),
            account_id=options["account"],
            request_id=options["request_id"],
            route_id=options["route"],
            input=given,
            actor=actor(),
        )
        if options["json"]:
            self.document({**_plain(row), "created": created})
            return
        self.say(
            f"Job {row.id} is {row.state}." if created else f"It is job {row.id}, {_state(row)}.",
            f"Look at it: manage.py job show {row.id}",
        )

    def _list(self, options: Options) -> None:
        rows = jobs.list_jobs(
            account_id=options["account"],
            state=options["state"],
            limit=options["limit"],
        )
        if options["json"]:
            self.document([_short(row) for row in rows])
            return
        self.table(
            ("ID", "ACCOUNT", "REQUEST ID", "ROUTE", "STATE", "CHANGED"),
            [
                (row.id, row.account_id, row.request_id, row.route_id, _state(row), row.updated_at)
                for row in rows
            ],
            none="No jobs.",
        )

    def _show(self, options: Options) -> None:
        row = DatabaseStore.get(job_id=options["id"])
        if options["json"]:
            self.document(_plain(row))
            return
        self.say(
            f"Job {row.id}: {_state(row)}",
            f"  account {row.account_id}, request id {row.request_id}, route {row.route_id}",
            f"  created {shown(row.created_at)}, changed {shown(row.updated_at)}",
        )
        if row.error_code:
            self.say(f"  {row.error_code}: {shown(row.error_text)}")
        if row.lease_expires_at:
            self.say(f"  held by {row.owner} until {shown(row.lease_expires_at)}")
        self.say(f"  input: {shown(row.input_text)}", f"  result: {shown(row.result_text)}")

    def _cancel(self, options: Options) -> None:
        row = jobs.cancel_job(
            store=DatabaseStore(), job_id=options["id"], actor=actor(), reason=options["reason"]
        )
        self.say(f"Job {row.id} is cancelled; its open questions are void.")

    def _resume(self, options: Options) -> None:
        row = jobs.resume_parked_job(
            store=DatabaseStore(), job_id=options["id"], actor=actor(), reason=options["reason"]
        )
        self.say(f"Job {row.id} is {row.state} again.")


def _parse_input(text: str) -> Any:
    try:
        return json.loads(text_or_file(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None


def _parse_limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LISTED_MAX:
        raise ValueError(f"a number from 1 to {LISTED_MAX}")
    return int(text)


def _state(row: Job | JobRecord) -> str:
    return f"{row.state} ({row.waiting_reason})" if row.waiting_reason else row.state


def _short(row: Job | JobRecord) -> dict[str, Any]:
    return {
        "job_id": row.id,
        "account_id": row.account_id,
        "request_id": row.request_id,
        "route_id": row.route_id,
        "target": row.target,
        "state": row.state,
        "waiting_reason": row.waiting_reason or None,
        "error_code": row.error_code or None,
        "attempts": row.attempts,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "finished_at": row.finished_at,
    }


def _plain(row: JobRecord) -> dict[str, Any]:
    return {
        **_short(row),
        "error": row.error_text or None,
        "input": json.loads(row.input_text),
        "result_text": row.result_text or None,
    }
