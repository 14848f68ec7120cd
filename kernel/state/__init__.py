"""The runtime state store: where jobs live (D1, M1)."""

from kernel.state.database import DatabaseStore
from kernel.state.protocol import (
    Admission,
    Fence,
    JobRecord,
    NewJob,
    RuntimeStateStore,
    require,
)

__all__ = [
    "Admission",
    "DatabaseStore",
    "Fence",
    "JobRecord",
    "NewJob",
    "RuntimeStateStore",
    "require",
]
