"""The sweep: a dry run of a flow lists its boundaries; then each of them is a case of its own.

    scene = Scene(flow, ground, witnesses, record, proxy)
    for boundary in scene.boundaries():
        broken = scene.killed_at(boundary)

After each case a new process has recovered and the client has repeated its call; then every promise
is asked for (promises.py), each thing is in sight (sweep_sights.py), and the flow's own check.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.support import promises, sweep_sights
from tests.support.client import Answer
from tests.support.environment import child_environment
from tests.support.faults import LATE_AWAITED, LATE_COMMITS, FaultRecord
from tests.support.messages import SECRET, SECRET_ENV
from tests.support.mysql_proxy import MysqlProxy
from tests.support.mysql_rules import Rule
from tests.support.provider import ProviderProcess
from tests.support.schemas import django_on
from tests.support.sizes import FULL, proof_size
from tests.support.sweep_child import PREPARE, REPLACE, RUN, SweepPlan
from tests.support.sweep_flow import PROVIDER, RECEIVER, SHOP, Flow, Said
from tests.support.sweep_ground import Ground, MysqlGround, Row
from tests.support.sweep_places import AFTER, BEFORE, MARK, MESSAGE, MODEL, SENT, TOOL, Boundary
from tests.support.sweep_process import SweepProcess
from tests.support.tool_server import ANSWER, ToolServer

# What happens to a COMMIT, by name: the proxy's action, how long it holds, what the driver waits.
# Longer than any answer of a busy server: a second, unplanned loss would be another case.
READ_SECONDS = 4
ACKNOWLEDGEMENTS: dict[str, tuple[str, float | None, int]] = {
    "OK withheld": ("withhold_ok", None, 30),
    "request dropped": ("drop_request", None, 30),
    "OK held past the timeout": ("hold_ok", 2.0 + READ_SECONDS, READ_SECONDS),
    "half-open": ("half_open", None, READ_SECONDS),
}
LATE = "late commit"
EVERY_FAULT = (*ACKNOWLEDGEMENTS, LATE)
WITNESS_OF = {MODEL: PROVIDER, TOOL: SHOP, MESSAGE: RECEIVER}
GOOD: dict[str, tuple[str, dict[str, Any]]] = {
    PROVIDER: ("answer", {}),
    SHOP: ("raw", {"body": ANSWER}),
    RECEIVER: ("raw", {"body": ANSWER}),
}
WAIT_SECONDS = 30.0
LOCK_LOOK_SECONDS = 0.2
# Where a kill, or a commit that nobody heard of, may leave an outcome unknown.
WINDOWS = {
    MODEL: frozenset({"dispatch", MODEL, "save_results"}),
    TOOL: frozenset({"begin_call", TOOL, "finish_call"}),
    MESSAGE: frozenset({"claim_message", MESSAGE, "outcome", "death"}),
}
# A kill here is outside: before the one commit nothing began, after the other nothing is open.
OUTSIDE = frozenset(
    {
        *((name, BEFORE) for name in ("dispatch", "begin_call", "claim_message")),
        *((name, AFTER) for name in ("save_results", "finish_call", "outcome", "death")),
    }
)
# Nobody waits for these: a kill there meets whatever else the process has begun meanwhile.
BESIDE = frozenset({"settle"})
UNDER_WAY = {
    MODEL: "SELECT id FROM bz_usage_requests WHERE result_state = 'dispatched'",
    TOOL: "SELECT id FROM bz_tool_calls WHERE state = 'dispatching'",
    MESSAGE: "SELECT id FROM bz_notifications WHERE state = 'sending'",
}
LIMITS = {
    # No pass starts by itself: what runs when is the flow's to say.
    "BAILING_SETTLEMENT_INTERVAL_SECONDS": "3600",
    "BAILING_RECOVERY_INTERVAL_SECONDS": "300",
    "BAILING_CONTINUATION_INTERVAL_SECONDS": "300",
    "BAILING_APPROVAL_EXPIRY_INTERVAL_SECONDS": "300",
    "BAILING_JOB_RECOVERY_INTERVAL_SECONDS": "300",
    "BAILING_OPERATION_INTERVAL_SECONDS": "60",
    "BAILING_JOB_POLL_SECONDS": "0.05",
    "BAILING_NOTIFICATION_POLL_SECONDS": "0.05",
    "BAILING_SETTLEMENT_LINGER_MILLISECONDS": "0",
    "BAILING_JOB_RETRY_SECONDS": "1",
    SECRET_ENV: SECRET,
}


class Witnesses:
    """The three independent processes of the run: provider, shop and receiver."""

    def __init__(self, provider: ProviderProcess, shop: ToolServer, receiver: ToolServer):
        self.by_name: dict[str, ProviderProcess] = {
            PROVIDER: provider,
            SHOP: shop,
            RECEIVER: receiver,
        }

    def set_back(self, says: tuple[Said, ...], *, hangs: Boundary | None = None) -> None:
        """Empty files; what each does with its next calls, of which one may never be answered."""
        for name, witness in self.by_name.items():
            witness.reset()
            witness.log.write_bytes(b"")
            said = [(does, values) for who, does, values in says if who == name]
            if hangs is not None and WITNESS_OF[hangs.name] == name:
                said += [GOOD[name]] * (hangs.nth - len(said))
                said[hangs.nth - 1] = ("hang", {})
            for does, values in said:
                witness.next(does, **values)


class Scene:
    """One flow on one database: runs its cases and looks at what is really there.

    To promises.py it is what a House is.
    """

    shop_path, receiver_path = "/shop", "/hooks"
    name = "sweep"

    def __init__(
        self,
        flow: Flow,
        ground: Ground,
        witnesses: Witnesses,
        record: FaultRecord,
        proxy: MysqlProxy | None = None,
    ):
        self.flow, self.ground, self._witnesses = flow, ground, witnesses
        self._record, self._proxy = record, proxy
        self.provider = witnesses.by_name[PROVIDER]
        self.shop, self.receiver = witnesses.by_name[SHOP], witnesses.by_name[RECEIVER]
        self.facts: dict[str, Any] = {
            "provider_url": self.provider.base_url,
            "shop_url": f"{self.shop.url}{self.shop_path}",
            "receiver_url": f"{self.receiver.url}{self.receiver_path}",
        }
        self.answers: list[tuple[str, Answer]] = []
        self.identities: dict[str, set[str]] = {}
        self.boundary: Boundary | None = None  # where something happens in this case
        self._is_kill = False
        self._under_way: set[str] = set()  # kinds of calls that ended with their process
        self.mutant = ""  # seeded into every process from now on; counted apart
        witnesses.set_back(flow.said_before)
        self.facts = self._process(PREPARE).wait_ended().facts
        ground.keep()

    # --- cases --------------------------------------------------------------------------------

    def boundaries(self) -> list[Boundary]:
        """The dry run: every boundary in order. AssertionError when the flow has lost some.

        In full size also with a replacement that finds nothing to do, and every check.
        """
        self._begin()
        ended = self._process(RUN).wait_ended()
        self._saw(ended)
        found = list(dict.fromkeys(ended.passed))
        if proof_size() == FULL:
            self._replace()
        broken = self.broken() if proof_size() == FULL else []
        assert not broken, f"{self.flow.name} without a fault: {broken}"
        assert len(found) >= self.flow.boundaries, (
            f"{self.flow.name} had {self.flow.boundaries} boundaries and has {len(found)}: "
            + ", ".join(map(str, found))
        )
        return found

    def killed_at(self, boundary: Boundary) -> list[str]:
        """A real SIGKILL there; what is broken after the replacement."""
        self._begin(boundary, is_kill=True)
        process = self._process(RUN, dies_at=boundary)
        if boundary.when == SENT:
            witness = self._witnesses.by_name[WITNESS_OF[boundary.name]]
            witness.wait_for_call(deadline=WAIT_SECONDS, count=boundary.nth)
            assert process.is_running, f"it had ended before {boundary}"
            process.kill()
        else:
            process.wait_ended()
            assert process.stood_at == boundary, f"it never came to {boundary}"
        self.ground.wait_alone()
        self._died(process)
        self._replace()
        return self._end(f"SIGKILL {boundary}")

    def unacknowledged(self, boundary: Boundary, fault: str) -> list[str]:
        """This commit meets one of EVERY_FAULT; what is broken then. The process lives on."""
        if fault == LATE:
            return self._landed_late(boundary)
        action, seconds, read_seconds = ACKNOWLEDGEMENTS[fault]
        rule = self._rule(boundary, action, seconds)
        process = self._process(RUN, marks=boundary, proxied=True, read_seconds=read_seconds)
        process.wait_ended()
        self._look_what_was_under_way()  # it ends soon after its fault, whatever it has begun
        self._saw(process)
        assert rule.fired_count == 1, f"{fault} at {boundary} never fired"
        self._record.fired += 1
        rule.release()
        self._replace()
        self._let_go(rule)
        return self._end(f"{fault} at {boundary}")

    def _landed_late(self, boundary: Boundary) -> list[str]:
        """The process dies, its COMMIT lands late; what is broken then.

        It lands while the replacement waits for a lock; where it never waits, after it has ended.
        The record says how often it was which.
        """
        assert isinstance(self.ground, MysqlGround)
        rule = self._rule(boundary, "hold_request", None)
        process = self._process(RUN, marks=boundary, proxied=True)
        rule.wait_fired(WAIT_SECONDS)
        process.kill()
        self._died(process)
        of_the_dead = self.ground.newest_connection()
        first = self._process(REPLACE)
        # The server keeps its list of waits for 0.1 s after each look.
        is_awaited = False
        while not is_awaited and first.listen(LOCK_LOOK_SECONDS):
            is_awaited = self.ground.waits_for_a_lock(newer_than=of_the_dead)
        rule.release()
        assert rule.wait_outcome(WAIT_SECONDS) == "committed"
        self._record.beside.update({LATE_COMMITS: 1, LATE_AWAITED: int(is_awaited)})
        self._saw(first.wait_ended())
        self._replace()
        self._let_go(rule)
        return self._end(f"{LATE} at {boundary}")

    # --- what is really there, as promises.py asks for it -------------------------------------

    def rows(self, statement: str, *values: Any) -> list[Row]:
        return self.ground.rows(statement, *values)

    def result_bytes(self, request_id: str) -> bytes:
        pieces = self.rows(
            "SELECT data FROM bz_usage_bodies WHERE request_id = %s AND kind = 'result'"
            " ORDER BY sequence",
            request_id,
        )
        return b"".join(piece["data"] for piece in pieces)

    @contextlib.contextmanager
    def office(self) -> Iterator[None]:
        with django_on(self.ground.url):
            yield

    @property
    def has_server(self) -> bool:
        """Whether a COMMIT goes over a wire, where its acknowledgement can be lost."""
        return self._proxy is not None

    def may_be(self, kind: str) -> bool:
        """Whether the fault of this case may leave an outcome of this kind unknown."""
        here = self.boundary
        if here is None or here.name not in WINDOWS[kind]:
            return kind in self._under_way
        return not (self._is_kill and (here.name, here.when) in OUTSIDE)

    def broken(self) -> list[str]:
        """Every promise that does not hold, everything that is out of sight."""
        return [
            *promises.broken(self),  # type: ignore[arg-type]  # it looks like a House
            *sweep_sights.lost(self.rows),
            *self.flow.check(self),
        ]

    # --- in a case ----------------------------------------------------------------------------

    def _begin(self, boundary: Boundary | None = None, *, is_kill: bool = False) -> None:
        self.ground.set_back()
        hangs = boundary if boundary is not None and boundary.when == SENT else None
        self._witnesses.set_back(self.flow.says, hangs=hangs)
        self.answers.clear()
        self.identities.clear()
        self.boundary, self._is_kill = boundary, is_kill
        self._under_way.clear()
        if boundary is not None:
            self._record.planned += not self.mutant

    def _process(self, part: str, *, proxied: bool = False, **how: Any) -> SweepProcess:
        url = self.ground.url
        if proxied:
            assert self._proxy is not None
            url = self._proxy.url(url)
        return SweepProcess(
            SweepPlan(
                database_url=url,
                environment=child_environment(database_url=url, **LIMITS, **self.flow.limits),
                flow=self.flow.name,
                part=part,
                facts=self.facts,
                mutant=self.mutant,
                **how,
            )
        )

    def _rule(self, boundary: Boundary, action: str, seconds: float | None) -> Rule:
        assert self._proxy is not None
        self._begin(boundary)
        return self._proxy.on_commit(containing=MARK, action=action, seconds=seconds)

    def _let_go(self, rule: Rule) -> None:
        """Nothing of a case is left for the next one to meet."""
        assert self._proxy is not None
        rule.disarm()
        self._proxy.cut()

    def _died(self, process: SweepProcess) -> None:
        """SIGKILL is what it died of."""
        assert process.was_killed
        self._record.kills += 1
        self._record.fired += not self.mutant
        if self.boundary is not None and self.boundary.name in BESIDE:
            self._look_what_was_under_way()
        self._saw(process)

    def _look_what_was_under_way(self) -> None:
        self._under_way |= {kind for kind, call in UNDER_WAY.items() if self.rows(call)}

    def _saw(self, process: SweepProcess) -> None:
        for operation, answer in process.answers:
            self.answers.append((operation, answer))
            if answer.request_id:
                self.identities.setdefault(operation, set()).add(answer.request_id)

    def _replace(self) -> None:
        self.ground.wait_alone()
        self._saw(self._process(REPLACE).wait_ended())

    def _end(self, what: str) -> list[str]:
        broken = [f"{self.flow.name}, {what}: {one}" for one in self.broken()]
        self._record.cases += 1
        if not self.mutant:
            self._record.violations += broken
        return broken
