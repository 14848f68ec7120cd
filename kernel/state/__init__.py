"""The runtime state store: where jobs live (D1, M1)."""

from kernel.state.database import WORKER_LOST, DatabaseStore
from kernel.state.jsonl import JsonlStore
from kernel.state.pauses import pause, pause_of_in_tx, paused_scopes, unpause
from kernel.state.protocol import (
    Admission,
    Fence,
    JobRecord,
    NewJob,
    RuntimeStateStore,
    require,
)

__all__ = [
    "WORKER_LOST",
    "Admission",
    "DatabaseStore",
    "Fence",
    "JobRecord",
    "JsonlStore",
    "NewJob",
    "RuntimeStateStore",
    "pause",
    "pause_of_in_tx",
    "paused_scopes",
    "require",
    "unpause",
]
