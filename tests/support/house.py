"""One case of the proof: a schema, a provider, an account; kernels that die and are replaced.

first = house.kernel(stops=[("dispatch", "after")])
house.client(first).post_later(operation)
first.wait_stopped("dispatch", "after")
house.kill(first)
second = house.kernel()
...
house.verify()                         # K2, for everything this case did
"""

import contextlib
import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import MySQLdb.cursors

from kernel.access import issue_token
from tests.support import lives, promises
from tests.support.clerk import Clerk
from tests.support.client import Answer, Client
from tests.support.faults import Fault, FaultRecord, Violation
from tests.support.kernel_process import KernelProcess, Place
from tests.support.mariadb_server import Server
from tests.support.mysql_proxy import MysqlProxy
from tests.support.mysql_rules import Rule
from tests.support.provider import ProviderProcess
from tests.support.schemas import django_on
from tests.support.tool_server import ToolServer
from tests.support.wait import wait_until

WAIT_SECONDS = 30.0
# The statement by which a transaction is known to the proxy.
ADMISSION = r"^INSERT INTO `?bz_usage_requests\b"
DISPATCH = r"^UPDATE `?bz_usage_requests\b.*'dispatched'"
RESULT = r"^UPDATE `?bz_usage_requests\b.*'complete'"
SETTLEMENT = r"^INSERT INTO `?bz_usage_ledger\b"
SCOPES = ("usage:read", "usage:write")


class Killable(Protocol):
    """A process of this case; kill() sends SIGKILL and proves that it died of it."""

    def kill(self) -> None: ...


class House:
    """Starts what a case needs and looks at what is really there, beside the product."""

    def __init__(self, *, server: Server, url: str, provider: ProviderProcess, record: FaultRecord):
        self.server, self.url, self.provider, self._record = server, url, provider, record
        self.proxy = MysqlProxy(server.host, server.port)
        self.mutant = ""
        self.verified = False
        self.faults: list[Fault] = []
        self.name = secrets.token_hex(4)
        self.token = ""
        # The business service, where a case has one, and the path of its calls there.
        self.shop: ToolServer | None = None
        self.shop_path = f"/{self.name}/refunds"
        # Who receives notifications, where a case has one, and the path of its messages there.
        self.receiver: ToolServer | None = None
        self.receiver_path = f"/{self.name}/hooks"
        # What this case saw: request ids per operation, and every answer to a POST.
        self.identities: dict[str, set[str]] = {}
        self.answers: list[tuple[str, Answer]] = []
        self._kernels: list[KernelProcess] = []
        self._looking = threading.Lock()
        self.look_anew()

    def open(self, *, cap_nano: int | None = lives.CAP_NANO) -> None:
        """An account with a cap, a priced service at the test's provider, a token."""
        self.proxy.start()
        self.provider.reset()
        with self.office():
            lives.open_account(cap_nano=cap_nano)
            lives.add_service(base_url=self.provider.base_url)
            _, self.token = issue_token(
                account_id=lives.ACCOUNT, name="tests", scopes=SCOPES, actor=lives.ACTOR
            )

    def close(self) -> None:
        for kernel in self._kernels:
            kernel.stop()
        self.proxy.stop()
        self._beside.close()

    # --- what happens -------------------------------------------------------------------------

    def operation(self, name: str = "op") -> str:
        """An operation id that no other case uses: the provider's file is one for the run."""
        return f"{name}-{self.name}"

    def kernel(
        self,
        *,
        stops: Sequence[Place] = (),
        through_proxy: bool = False,
        must_stop: bool = True,
        limits: dict[str, str] | None = None,
        worker: bool = False,
    ) -> KernelProcess:
        """A running kernel; each place it must stop at is a planned fault."""
        url = self.proxy.url(self.url) if through_proxy else self.url
        kernel = KernelProcess(url, stops=stops, mutant=self.mutant, limits=limits, worker=worker)
        for name, when, *_ in stops if must_stop else ():
            self.plan(f"stop {when} {name}", lambda n=name, w=when: kernel.has_stopped(n, w))
        self._kernels.append(kernel)
        return kernel.start()

    def clerk(
        self, *, stops: Sequence[Place] = (), through_proxy: bool = False, ready: bool = True
    ) -> Clerk:
        """A process that runs verbs; each place it must stop at is a planned fault."""
        url = self.proxy.url(self.url) if through_proxy else self.url
        clerk = Clerk(url, stops=stops, mutant=self.mutant)
        for name, when, *_ in stops:
            self.plan(f"stop {when} {name}", lambda n=name, w=when: clerk.has_stopped(n, w))
        self._kernels.append(clerk)
        clerk.launch()
        if ready:
            clerk.wait_ready()
        return clerk

    def keep(self, process: KernelProcess) -> None:
        """A process that ends with this case."""
        self._kernels.append(process)

    def kernels(self, count: int) -> list[KernelProcess]:
        """That many kernels, started at once."""
        every = [KernelProcess(self.url, mutant=self.mutant) for _ in range(count)]
        self._kernels += every
        for kernel in every:
            kernel.launch()
        return [kernel.wait_ready() for kernel in every]

    def client(self, kernel: KernelProcess) -> Client:
        """A client of one kernel, with the case's token; verify() knows what it was answered."""
        return Client(kernel.port, self.token, on_answer=self.saw)

    def saw(self, operation: str, answer: Answer) -> None:
        """Remember what a client was answered."""
        self.answers.append((operation, answer))
        if answer.request_id:
            self.identities.setdefault(operation, set()).add(answer.request_id)

    def kill(self, kernel: Killable) -> None:
        """The real SIGKILL."""
        kernel.kill()
        self._record.kills += 1

    def killed_at(self, name: str, when: str, operation: str, **fields: Any) -> Answer:
        """A first kernel gets a POST and is killed where it stands; what its client got."""
        first = self.kernel(stops=[(name, when)])
        posted = self.client(first).post_later(operation, **fields)
        first.wait_stopped(name, when)
        self.kill(first)
        self.let_leases_end()
        return posted.result()

    def killed_awaiting_ok(self, containing: str, operation: str, **fields: Any) -> Answer:
        """The same, killed while the proxy keeps the server's OK of a COMMIT back."""
        first = self.kernel(through_proxy=True)
        rule = self.on_commit(containing=containing, action="hold_ok")
        posted = self.client(first).post_later(operation, **fields)
        assert rule.wait_fired(WAIT_SECONDS).outcome == "committed"
        self.kill(first)
        self.let_leases_end()
        return posted.result()

    def let_leases_end(self) -> None:
        """Turn the clock of every lease of requests and jobs: what waiting for its end would do."""
        for table, held in (
            ("usage_requests", "result_state = 'dispatched'"),
            ("jobs", "state = 'running'"),
        ):
            self.rows(
                f"UPDATE bz_{table} SET lease_expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"
                f" WHERE {held}"
            )

    def plan(self, name: str, has_fired: Any) -> None:
        """Note a fault that must have happened when the case is verified."""
        self.faults.append(Fault(name, has_fired))

    def provider_does(self, behaviour: str, operation: str, **params: Any) -> None:
        """What the provider does with the next call of an operation; planned as a fault."""
        self.provider.next(behaviour, marker=operation, **params)
        self.plan(
            f"provider: {behaviour}",
            lambda: any(c.behaviour == behaviour for c in self.provider.calls(operation)),
        )

    def on_commit(self, *, containing: str, action: str) -> Rule:
        """What the proxy does with the COMMIT of a transaction; planned as a fault."""
        rule = self.proxy.on_commit(containing=containing, action=action)
        self.plan(str(rule), lambda: rule.fired_count > 0)
        return rule

    @contextlib.contextmanager
    def office(self) -> Iterator[None]:
        """The product's verbs in this process and thread, on the case's database."""
        with django_on(self.url):
            yield

    # --- what is really there -----------------------------------------------------------------

    @property
    def schema(self) -> str:
        """The name of the case's schema."""
        return urlsplit(self.url).path.removeprefix("/")

    def look_anew(self) -> None:
        """Connect to the server that the case looks at, e.g. when it was started again."""
        self._beside = self.server.connect(self.schema, cursorclass=MySQLdb.cursors.DictCursor)

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a SELECT on a connection beside every verb; sees what is committed now."""
        with self._looking:
            cursor = self._beside.cursor()
            cursor.execute(statement, values)
            return list(cursor.fetchall())

    def request(self, operation: str) -> dict[str, Any]:
        """The request row of an operation; {} when there is none."""
        found = self.rows("SELECT * FROM bz_usage_requests WHERE operation_id = %s", operation)
        if not found:
            return {}
        row = found[0]
        self.identities.setdefault(operation, set()).add(row["id"])
        return row

    def states(self, operation: str) -> tuple[str, str, str]:
        """Result state, billing state and pending reason."""
        row = self.request(operation)
        return row["result_state"], row["billing_state"], row["pending_reason"]

    def wait_states(self, operation: str, *states: str, deadline: float = WAIT_SECONDS) -> None:
        """Until result state (and billing state, and reason) are these."""
        wait_until(
            lambda: self.request(operation) and self.states(operation)[: len(states)] == states,
            deadline,
            about=f"{operation} is {' / '.join(states)}",
            look_every=0.05,
        )

    def account(self) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM bz_usage_accounts WHERE id = %s", lives.ACCOUNT)
        return row

    def ledger(self, operation: str) -> list[dict[str, Any]]:
        """The ledger rows of an operation."""
        return self.rows(
            "SELECT l.* FROM bz_usage_ledger l JOIN bz_usage_requests r ON r.id = l.request_id"
            " WHERE r.operation_id = %s",
            operation,
        )

    def wait_for_a_lock(self, statement: str = "") -> None:
        """Until a transaction of this case (whose statement begins so) waits for a lock."""
        wait_until(
            lambda: self.rows(
                "SELECT 1 FROM information_schema.innodb_trx t"
                " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
                " WHERE p.db = %s AND t.trx_state = 'LOCK WAIT' AND t.trx_query LIKE %s",
                self.schema,
                f"{statement}%",
            ),
            WAIT_SECONDS,
            about=f"a statement ({statement}...) waits for a lock",
            look_every=0.2,  # the server keeps this table's contents for 0.1 s after each look
        )

    def wait_maintained(self, kernel: KernelProcess) -> None:
        """Until the only kernel that still runs has ended a settlement and a recovery pass."""
        (now,) = self.rows("SELECT UTC_TIMESTAMP(6) AS at")
        assert [each for each in self._kernels if each.is_running()] == [kernel]
        wait_until(
            lambda: (
                self.rows(
                    "SELECT COUNT(*) AS n FROM bz_pass_status"
                    " WHERE name IN ('settlement', 'recovery') AND started_at > %s"
                    " AND finished_at > started_at",
                    now["at"],
                )[0]["n"]
                == 2
            ),
            WAIT_SECONDS,
            about="settlement and recovery have run",
            look_every=0.05,
        )

    def result_bytes(self, request_id: str) -> bytes:
        """The stored result, piece by piece."""
        pieces = self.rows(
            "SELECT data FROM bz_usage_bodies WHERE request_id = %s AND kind = 'result'"
            " ORDER BY sequence",
            request_id,
        )
        return b"".join(piece["data"] for piece in pieces)

    # --- what must be true (K2) ---------------------------------------------------------------

    def verify(self) -> None:
        """Every planned fault fired, and every promise of K2 holds. Raises Violation."""
        self.verified = True
        missed = [fault.name for fault in self.faults if not fault.has_fired()]
        assert not missed, f"planned and never fired: {missed}"
        broken = promises.broken(self)
        if broken and not self.mutant:
            self._record.violations += broken
        if broken:
            raise Violation("; ".join(broken))
