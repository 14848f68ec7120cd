"""What one attempt came to, as a channel tells it (F2)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """One of the four outcomes of `states.Delivery`, and what shows it.

    `evidence`: the receiver's words or the error, not yet bounded. `retry_after_seconds`: what the
    receiver asked for, clamped. `is_final`: it said that trying again is no use.
    """

    outcome: str
    evidence: str = ""
    http_status: int | None = None
    retry_after_seconds: float | None = None
    is_final: bool = False
