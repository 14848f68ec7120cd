"""What the tests need from the operating system: installed through apt when we may, else named.

    python3 -m tests.support.system_packages build test

Runs with any Python 3 and its standard library only. Server programs come from packages without a
service unit, so nothing is started or enabled.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

Need = tuple[tuple[str, ...], Callable[[], bool]]


def _command(*names: str) -> Callable[[], bool]:
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    return lambda: any(shutil.which(name, path=search) for name in names)


def _python_headers() -> bool:
    return Path(sysconfig.get_path("include"), "Python.h").exists()


def _client_headers() -> bool:
    known = ("libmariadb", "mariadb", "mysqlclient")
    return bool(shutil.which("pkg-config")) and any(
        subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0
        for name in known
    )


# Package names in order of preference (distributions differ), and whether the machine has it.
NEEDS: dict[str, list[Need]] = {
    "build": [
        (("python3-venv",), lambda: find_spec("ensurepip") is not None),
        (("python3-dev",), _python_headers),
        (("gcc",), _command("gcc", "cc")),
        (("pkg-config",), _command("pkg-config")),
        (("libmariadb-dev",), _client_headers),
    ],
    "test": [
        (("openssl",), _command("openssl")),
        (("curl",), _command("curl")),  # the documented calls are made with it
        (("mariadb-server-core",), _command("mariadbd", "mysqld")),
        (("mariadb-client-core",), _command("my_print_defaults")),
        (("mariadb-client",), _command("mariadb-dump")),
        # redis-tools has the server's program too, without its service unit.
        (("redis-tools",), _command("redis-server", "redis-check-rdb")),
        (("chromium", "chromium-browser"), _command("chromium", "chromium-browser")),
    ],
}


def main(groups: list[str]) -> int:
    """Exit code 0 when everything the groups name is there, perhaps after installing it."""
    needs = [need for group in groups for need in NEEDS[group]]
    missing = [names for names, is_there in needs if not is_there()]
    if not missing:
        return 0
    packages = [names[0] for names in missing]
    prefix = _privilege()
    if prefix is None or shutil.which("apt-get") is None:
        print("This machine lacks what the tests need. Run once, then try again:", file=sys.stderr)
        print(f"  sudo apt-get install -y {' '.join(packages)}", file=sys.stderr)
        return 1
    _apt(prefix, "update", quiet=True)
    packages = [_available(names) for names in missing]
    print(f"Installing through apt: {' '.join(packages)}", flush=True)
    if _apt(prefix, "install", "-y", "--no-install-recommends", *packages) != 0:
        print("apt-get could not install these packages.", file=sys.stderr)
        return 1
    still = [names[0] for names, is_there in needs if not is_there()]
    if still:
        print(f"Installed, but not usable here: {' '.join(still)}.", file=sys.stderr)
    return 1 if still else 0


def _privilege() -> list[str] | None:
    """How to become root: nothing to add, sudo without a password, or not at all (None)."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    may = shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True, check=False)
    return sudo if may and may.returncode == 0 else None


def _apt(prefix: list[str], *words: str, quiet: bool = False) -> int:
    command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", *words]
    stderr = subprocess.DEVNULL if quiet else None
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, check=False
    ).returncode


def _available(names: tuple[str, ...]) -> str:
    """The first of several names that this distribution can install."""
    for name in names:
        policy = ["apt-cache", "policy", name]
        words = subprocess.run(policy, capture_output=True, text=True, check=False).stdout
        if "Candidate:" in words and "Candidate: (none)" not in words:
            return name
    return names[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
