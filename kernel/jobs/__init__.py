"""Jobs, their tools and routes (C9, D): the public verbs."""

from kernel.jobs.lookup import list_jobs
from kernel.jobs.registry import change_tool, create_tool, get_tool, list_tools
from kernel.jobs.routes import change_route, create_route, get_route, list_routes, tools_of
from kernel.jobs.submissions import cancel_job, resume_parked_job, submit_job

__all__ = [
    "cancel_job",
    "change_route",
    "change_tool",
    "create_route",
    "create_tool",
    "get_route",
    "get_tool",
    "list_jobs",
    "list_routes",
    "list_tools",
    "resume_parked_job",
    "submit_job",
    "tools_of",
]
