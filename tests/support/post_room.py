"""A case about notifications: a receiver, an executor, what is published to them and replayed.

room.killed_sending("outcome", "before")
room.kernel()
room.let_leases_end()
room.is_delivered(name)
"""

from collections.abc import Sequence
from typing import Any

from kernel.audit import Actor
from kernel.delivery import destinations
from tests.delivery.letters import run_child
from tests.support import clerk, lives, messages
from tests.support.delivery_data import End, attempt
from tests.support.house import WAIT_SECONDS, House
from tests.support.kernel_process import KernelProcess, Place
from tests.support.provider import ProviderCall
from tests.support.tool_server import ToolServer
from tests.support.wait import wait_until

OLGA = Actor("user", "olga")
HOOKS, RELAY = "hooks", "relay"
NATIVE, EXECUTOR = "native", "executor"
# The place and the statement of the admission, by kind of dead letter.
ADMITS = {NATIVE: "_admit_natives", EXECUTOR: "_requeue_delivery"}
ADMIT = {
    NATIVE: r"^INSERT INTO `?bz_notifications\b.*\bSELECT\b",
    EXECUTOR: r"^UPDATE `?bz_jobs\b.*`?delivery_replay_keys`? = ",
}
RESOLVE = r"^UPDATE `?bz_delivery_dlq\b.*'resolved'"
OUTCOME = r"^INSERT INTO `?bz_delivery_attempts\b"
GONE = End("refused", "HTTP 410: gone", 410, is_final=True)
# Short enough that no test waits long, and still inside the bounds of kernel/conf.py.
LIMITS = {
    "BAILING_NOTIFICATION_POLL_SECONDS": "0.1",
    "BAILING_NOTIFICATION_RETRY_FIRST_SECONDS": "1",
    "BAILING_NOTIFICATION_RETRY_MAX_SECONDS": "1",
    messages.SECRET_ENV: messages.SECRET,
}
# A kernel that sends, and leaves lost senders to others.
NO_RECOVERY = {"BAILING_RECOVERY_INTERVAL_SECONDS": "60"}


class PostRoom:
    """What a case about notifications does, in a house."""

    def __init__(self, house: House, receiver: ToolServer):
        self.house, self.receiver = house, receiver
        house.receiver = receiver

    def open(self) -> None:
        """A webhook of the receiver, and an executor."""
        self.receiver.reset()
        address = f"{self.receiver.url}{self.house.receiver_path}"
        with self.house.office():
            for name, channel, to, secret in (
                (HOOKS, "webhook", address, messages.SECRET_ENV),
                (RELAY, "executor", "crm:updates", ""),
            ):
                destinations.create_destination(
                    account_id=lives.ACCOUNT,
                    destination_id=name,
                    channel=channel,
                    address=to,
                    events=["message"],
                    secret_env=secret,
                    allow_private=channel == "webhook",
                    actor=OLGA,
                )

    # --- what happens -------------------------------------------------------------------------

    def kernel(
        self, *, stops: Sequence[Place] = (), limits: dict[str, str] | None = None, **how: Any
    ) -> KernelProcess:
        """A kernel that sends notifications."""
        values = {**LIMITS, **(limits or {})}
        return self.house.kernel(stops=stops, limits=values, worker=True, **how)

    def order(self, to: str = HOOKS, number: int = 1) -> dict[str, Any]:
        """What a clerk is asked to publish."""
        return {
            "account_id": lives.ACCOUNT,
            "destination_id": to,
            "event": "message",
            "data": {"order": number, "note": "déjà vu 👨‍💻"},
        }

    def publish(self, to: str = HOOKS, number: int = 1) -> str:
        """A message that waits to be sent; its id."""
        with self.house.office():
            return clerk.publish(**self.order(to, number))[1]

    def answers(self, behaviour: str, *, times: int = 1) -> None:
        """What the receiver does with the next messages; planned as a fault."""
        before = self._met(behaviour)
        self.receiver.next(behaviour, times=times)
        self.house.plan(f"receiver: {behaviour}", lambda: self._met(behaviour) >= before + times)

    def killed_sending(self, name: str, when: str, **limits: str) -> str:
        """A message whose sender was killed at this place; its id."""
        first = self.kernel(stops=[(name, when)], limits={**NO_RECOVERY, **limits})
        message = self.publish()
        first.wait_stopped(name, when)
        self.house.kill(first)
        return message

    def dead_letter(self, kind: str = NATIVE) -> str:
        """A message that was given up; the id of its dead letter."""
        name = self.publish(RELAY if kind == EXECUTOR else HOOKS)
        if kind == EXECUTOR:
            self.executor_ends(name, delivered=False)
        else:
            with self.house.office():
                attempt(name, GONE)
        return str(self.letters(name)[0]["id"])

    def dead_letters(self, count: int) -> None:
        """So many more of the same error for the same receiver, copied inside the server."""
        one = self.letter(self.dead_letter())
        new = ("id", "replay_identity", "notification_id", "created_at")
        names = ", ".join(name for name in one if name not in new)
        self.house.rows(
            f"INSERT INTO bz_delivery_dlq ({', '.join(new)}, {names})"
            " WITH RECURSIVE low (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM low WHERE n < 99),"
            " high (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM high WHERE n < 99),"
            " every (n) AS (SELECT high.n * 100 + low.n FROM high, low)"
            " SELECT CONCAT('dlq_copy', LPAD(n, 6, '0')), CONCAT('replay.dlq_copy', LPAD(n, 6,"
            " '0')), CONCAT('ntf_copy', LPAD(n, 6, '0')), created_at - INTERVAL n SECOND,"
            f" {names} FROM every, bz_delivery_dlq"
            " WHERE id = %s AND n BETWEEN 2 AND %s",
            one["id"],
            count,
        )
        self.house.rows("UPDATE bz_dlq_groups SET total_count = %s, open_count = %s", count, count)
        self.house.rows("COMMIT")

    def executor_ends(self, name: str, *, delivered: bool) -> None:
        """The executor takes the child of this notification and reports."""
        with self.house.office():
            run_child(self.message(name)["child_job_id"], delivered=delivered)

    def let_leases_end(self) -> None:
        """Turn the clock of every lease of a dead process: what waiting for its end would do."""
        self.house.rows(
            "UPDATE bz_operations SET lease_expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"
            " WHERE owner <> ''"
        )
        self.house.rows(
            "UPDATE bz_notifications SET lease_expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"
            " WHERE state = 'sending'"
        )
        self.house.rows("COMMIT")

    # --- what is really there -----------------------------------------------------------------

    def message(self, name: str) -> dict[str, Any]:
        (row,) = self.house.rows("SELECT * FROM bz_notifications WHERE id = %s", name)
        return row

    def messages(self) -> list[dict[str, Any]]:
        return self.house.rows("SELECT * FROM bz_notifications ORDER BY created_at, id")

    def attempts(self, name: str) -> list[str]:
        """The outcomes of its attempts, in order."""
        rows = self.house.rows(
            "SELECT outcome FROM bz_delivery_attempts WHERE notification_id = %s ORDER BY number",
            name,
        )
        return [row["outcome"] for row in rows]

    def letters(self, name: str) -> list[dict[str, Any]]:
        """The dead letters of a notification, the oldest first."""
        return self.house.rows(
            "SELECT * FROM bz_delivery_dlq WHERE notification_id = %s ORDER BY created_at, id",
            name,
        )

    def letter(self, letter_id: str) -> dict[str, Any]:
        (row,) = self.house.rows("SELECT * FROM bz_delivery_dlq WHERE id = %s", letter_id)
        return row

    def operation(self, operation_id: str) -> dict[str, Any]:
        (row,) = self.house.rows("SELECT * FROM bz_operations WHERE id = %s", operation_id)
        return row

    def admissions(self, letter_id: str) -> int:
        """How often this dead letter was admitted, by its audit."""
        (row,) = self.house.rows(
            "SELECT COUNT(*) AS n FROM bz_audit"
            " WHERE subject = %s AND action = 'dead_letter.replay'",
            f"dead_letter:{letter_id}",
        )
        return int(row["n"])

    def arrived(self) -> list[ProviderCall]:
        """The messages that the receiver really got in this case."""
        return self.receiver.sent(self.house.receiver_path)

    def reached(self, count: int = 1) -> None:
        """Until the receiver has got so many."""
        wait_until(
            lambda: len(self.arrived()) >= count, WAIT_SECONDS, about=f"{count} messages arrived"
        )

    def waits(self, name: str, state: str) -> dict[str, Any]:
        """Until the notification is in this state."""
        wait_until(
            lambda: self.message(name)["state"] == state,
            WAIT_SECONDS,
            about=f"{name} is {state}",
            look_every=0.05,
        )
        return self.message(name)

    def is_delivered(self, name: str, *, arrivals: int, unknown: int) -> None:
        """Until it is delivered; then: so many arrivals, so many shown as possible duplicates."""
        row = self.waits(name, "delivered")
        assert row["unknown_attempts"] == unknown, self.attempts(name)
        assert len(self.arrived()) == arrivals, self.attempts(name)

    def _met(self, behaviour: str) -> int:
        return sum(call.behaviour == behaviour for call in self.arrived())
