"""When a message is tried again: a bounded schedule with jitter, and what Retry-After may change.

Pure. The jitter comes from the message and the attempt, not from chance: the time that the table
shows is the time that holds, and a thousand messages that failed together do not come together.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from kernel.conf import conf
from kernel.http import retry_after_seconds

JITTER = 0.2
MAY_SAY_WHEN = frozenset({413, 429, 503})


def wait_seconds(*, message_id: str, number: int, asked_seconds: float | None = None) -> float:
    """How long to wait after attempt `number` (from 1) of this message (F2).

    notification_retry_first_seconds, doubling to notification_retry_max_seconds, +-20 %. What the
    receiver asked for replaces that, within [0, retry_after_seconds_max], but is never shorter than
    the first wait: a receiver that says "at once" must not use up the attempts in a second.
    """
    first, most = conf.notification_retry_first_seconds, conf.notification_retry_max_seconds
    if asked_seconds is not None:
        asked = min(max(asked_seconds, 0.0), conf.retry_after_seconds_max)
        return max(asked, first * (1 - JITTER)) + first * JITTER * _share(message_id, number)
    # 2**63 seconds is for ever: no attempt number overflows.
    plain = min(first * 2.0 ** min(number - 1, 63), most)
    return plain * (1 - JITTER + 2 * JITTER * _share(message_id, number))


def asked_seconds(*, status: int, values: Sequence[str], now: datetime) -> int | None:
    """The wait that an answer asks for; None unless its status may say so, and clearly (F2)."""
    if status not in MAY_SAY_WHEN:
        return None
    return retry_after_seconds(values, now=now, seconds_max=conf.retry_after_seconds_max)


def _share(message_id: str, number: int) -> float:
    """A number in [0, 1) that belongs to this attempt."""
    digest = hashlib.sha256(f"{message_id}.{number}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
