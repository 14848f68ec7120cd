"""The flows of the sweep: what each prepares, does, repeats, and what must be true in the end."""

from tests.support.sweep_flow import Flow
from tests.support.sweep_flows_delivery import DELIVERY
from tests.support.sweep_flows_jobs import JOBS
from tests.support.sweep_flows_usage import USAGE

FLOWS: dict[str, Flow] = {flow.name: flow for flow in (*USAGE, *JOBS, *DELIVERY)}
