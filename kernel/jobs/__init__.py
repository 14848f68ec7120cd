"""Jobs, their tools, calls and routes (C9, D): the public verbs."""

from kernel.jobs.invocations import invoke
from kernel.jobs.invocations import resume as resume_invocation
from kernel.jobs.lookup import list_jobs
from kernel.jobs.receipts import Invoked, receipt
from kernel.jobs.recovery import recovery_page
from kernel.jobs.registry import change_tool, create_tool, get_tool, list_tools
from kernel.jobs.resolution import resolve_call
from kernel.jobs.routes import change_route, create_route, get_route, list_routes, tools_of
from kernel.jobs.submissions import cancel_job, resume_parked_job, submit_job
from kernel.jobs.worker import Worker

__all__ = [
    "Invoked",
    "Worker",
    "cancel_job",
    "change_route",
    "change_tool",
    "create_route",
    "create_tool",
    "get_route",
    "get_tool",
    "invoke",
    "list_jobs",
    "list_routes",
    "list_tools",
    "receipt",
    "recovery_page",
    "resolve_call",
    "resume_invocation",
    "resume_parked_job",
    "submit_job",
    "tools_of",
]
