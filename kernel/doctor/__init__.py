"""The doctor: checks of an installation - database, host, environment, maintenance."""

from kernel.doctor.findings import (
    FAILURE,
    LEVELS,
    OK,
    WARNING,
    Finding,
    Kept,
    last_findings,
    store_findings,
    worst,
)
from kernel.doctor.visit import examine

__all__ = [
    "FAILURE",
    "LEVELS",
    "OK",
    "WARNING",
    "Finding",
    "Kept",
    "examine",
    "last_findings",
    "store_findings",
    "worst",
]
