"""A guard around network code that is not ours, for a process that does nothing else (E6).

The interpreter asks the guard before each connect, with the very address that is dialled: a name
that changes its mind after it was checked changes nothing. There is no way back: once installed, it
stays for the life of the process.
"""

import sys
from dataclasses import dataclass
from typing import Any

from kernel.errors import AddressRefused
from kernel.http.addresses import AddressPolicy

DIALS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
# Ways out of this process, past the guard.
STARTS = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"}
)


class Forbidden(OSError):
    """What a guarded process may not do. An OSError: network code expects those."""


@dataclass(slots=True)
class Guard:
    """What the guarded code did: how many addresses it dialled, and the first refusal."""

    policy: AddressPolicy
    dialled: int = 0
    refused: str = ""

    def install(self) -> None:
        """From now on, in every thread."""
        sys.addaudithook(self._look)

    def _look(self, event: str, args: tuple[Any, ...]) -> None:
        if event in STARTS:
            raise self._no(f"it wanted to start another program ({event})")
        if event not in DIALS:
            return
        address = args[1]
        if not (isinstance(address, tuple) and isinstance(address[0], str)):
            raise self._no("it wanted to leave by something that is no internet address")
        try:
            self.policy.check(address[0].partition("%")[0])
        except AddressRefused as error:
            raise self._no(error.message) from None
        self.dialled += 1

    def _no(self, why: str) -> Forbidden:
        self.refused = self.refused or why
        return Forbidden(why)
