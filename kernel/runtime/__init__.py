"""What runs the verbs: database threads, background work, group commit, maintenance passes."""

from kernel.runtime.background import Background
from kernel.runtime.database import Database, allow_long_statements
from kernel.runtime.looker import FAILURES, Looker
from kernel.runtime.maintenance import PageReport, Pass
from kernel.runtime.writer import Writer

__all__ = [
    "FAILURES",
    "Background",
    "Database",
    "Looker",
    "PageReport",
    "Pass",
    "Writer",
    "allow_long_statements",
]
