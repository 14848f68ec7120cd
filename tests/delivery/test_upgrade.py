"""Dead letters of earlier versions are replayed after the upgrade, their content untouched (H4)."""

import pytest

from kernel import schema
from kernel.delivery import lookup, replay
from kernel.models import DeadLetter, DeadLetterReplay, Notification
from tests.delivery.letters import ANN, STORE
from tests.kernel.test_schema import LONG_TEXT, NAMES, fresh_db, fresh_url, old_rows, only

__all__ = ["fresh_db", "fresh_url"]

OLD = [name for name in NAMES if name < schema.REPLAY]


@pytest.mark.parametrize("start", OLD)
def test_a_dead_letter_from_before_0067_is_replayed_once(fresh_db: None, start: str) -> None:
    only(start)
    old_rows(start)
    schema.migrate()
    before = DeadLetter.objects.get()
    found = lookup.get_dead_letter(dead_letter_id=before.id)
    assert (found.kind, found.replay_identity) == ("native", "")
    told = [replay.replay(dead_letter_id=before.id, actor=ANN, store=STORE) for _ in range(2)]
    assert [one.state for one in told] == ["queued", "already_queued"]
    row = Notification.objects.get()
    assert bytes(row.content) == LONG_TEXT.encode() and len(row.content) > 65_535
    assert (row.recipient, row.channel) == ("https://example.org/日本", "webhook")
    after = DeadLetter.objects.get()
    assert (after.state, bytes(after.content)) == ("resolved", bytes(before.content))
    assert DeadLetterReplay.objects.get().replay_identity == f"replay.{before.id}"
