"""`manage.py install` writes six fresh credentials or nothing at all (I1, I2)."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from console.env import read_env_file
from kernel.install import CREDENTIALS, InstallFailed, install
from tests.installer.conftest import GOOD, ROOT, Sandbox
from tests.support.wait import wait_until

NAMES = [
    "DJANGO_SECRET_KEY",
    "BAILING_ADMIN_PASSWORD",
    "BAILING_API_TOKEN",
    "BAILING_EXECUTOR_TOKEN",
    "BAILING_WEBHOOK_SECRET",
    "MYSQL_PASSWORD",
]
SECRET = "SecretWordsThatNobodyMaySee"
Failing = Callable[..., str]


def test_six_credentials_come_from_six_runs(sandbox: Sandbox) -> None:
    sandbox.openssl(GOOD)
    ended = sandbox.run_as_process()
    assert ended.returncode == 0, ended.stderr
    values = read_env_file(sandbox.env_file)
    assert list(values) == NAMES == [name for name, _about in CREDENTIALS]
    assert list(values.values()) == [f"{run:032d}".replace("0", "A") for run in range(1, 7)]
    assert sandbox.runs == 6
    assert sandbox.leftovers() == [".env"]


def test_the_real_openssl_gives_six_different_credentials(tmp_path: Path) -> None:
    assert install(path=tmp_path / ".env") is True
    values = read_env_file(tmp_path / ".env").values()
    assert all(re.fullmatch(r"[A-Za-z0-9+/]{32}", value) for value in values)
    assert len(set(values)) == 6


def test_it_says_what_it_did_and_where_the_password_is_but_not_the_password(
    sandbox: Sandbox,
) -> None:
    sandbox.openssl(GOOD)
    _code, printed = sandbox.install()
    assert f"Wrote {sandbox.env_file}" in printed
    assert "BAILING_ADMIN_PASSWORD" in printed
    assert not any(value in printed for value in read_env_file(sandbox.env_file).values())


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_only_the_owner_can_read_it_whatever_the_umask(sandbox: Sandbox, umask: int) -> None:
    sandbox.openssl(GOOD)
    before = os.umask(umask)
    try:
        assert sandbox.install()[0] == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(sandbox.env_file.stat().st_mode) == 0o600


def test_the_file_is_never_readable_by_others_not_even_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real_fchmod = os.fchmod

    def watch(descriptor: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real_fchmod(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", watch)
    before = os.umask(0)
    try:
        install(path=tmp_path / ".env")
    finally:
        os.umask(before)
    assert modes == [0o600]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("exit 1", id="fails without a word"),
        pytest.param(f"{GOOD}; exit 1", id="fails after a good answer"),
        pytest.param(f"echo {SECRET}; echo {SECRET} >&2; exit 3", id="fails and talks"),
        pytest.param(f"{GOOD}; kill -9 $$", id="is killed"),
        pytest.param("exit 0", id="prints nothing"),
        pytest.param("echo", id="prints an empty line"),
        pytest.param(f"echo {SECRET}", id="prints too little"),
        pytest.param(f"printf '%032d%s' 0 {SECRET}", id="prints too much"),
        pytest.param("printf '%033d\\n' 0", id="prints one character too many"),
        pytest.param("printf '%031d\\n' 0", id="prints one character too few"),
        pytest.param("printf '%030d==\\n' 0", id="prints padding: fewer than 24 bytes"),
        pytest.param("printf '%031d-\\n' 0", id="prints a character outside Base64"),
        pytest.param("printf '%031d\\303\\251\\n' 0", id="prints a letter outside ASCII"),
        pytest.param("printf '%032d\\n\\n' 0", id="prints a second, empty line"),
        pytest.param(f"{GOOD}; {GOOD}", id="prints two credentials"),
        pytest.param("printf '%032d\\r\\n' 0", id="prints a carriage return"),
        pytest.param("printf '\\n%032d' 0", id="prints a newline first"),
        pytest.param(f"yes {SECRET}", id="never stops printing"),
    ],
)
def test_a_failed_or_malformed_producer_leaves_nothing_and_is_not_echoed(
    failing: Failing, body: str
) -> None:
    printed = failing(body)
    assert "No .env was written" in printed
    assert "Install a working OpenSSL" in printed
    assert SECRET not in printed
    assert not re.search(r"[0A]{20}", printed)


@pytest.mark.parametrize("bad_run", [2, 6])
def test_a_late_failure_leaves_nothing(failing: Failing, bad_run: int) -> None:
    printed = failing(f"{GOOD}; [ $run -ne {bad_run} ]", runs=bad_run)
    assert NAMES[bad_run - 1] in printed
    assert not re.search(r"A{20}", printed)


def test_a_missing_openssl_says_install_openssl(sandbox: Sandbox) -> None:
    ended = sandbox.run_as_process()
    assert ended.returncode == 1
    assert "install OpenSSL" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert sandbox.leftovers() == []


def test_a_producer_that_is_no_program_leaves_nothing(sandbox: Sandbox) -> None:
    command = sandbox.directory / "bin" / "openssl"
    command.write_bytes(b"\x00\x01 not a program")
    command.chmod(0o755)
    code, printed = sandbox.install()
    assert code == 1
    assert "could not be started" in printed
    assert sandbox.leftovers() == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("exec sleep 60", id="says nothing"),
        pytest.param(f"{GOOD}; exec >&-; exec sleep 60", id="answers but does not end"),
        pytest.param("sleep 60 & exit 0", id="leaves a child that holds the pipe"),
    ],
)
def test_a_hanging_producer_is_ended(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    sandbox.openssl(f"echo $$ > ../pid; {body}")
    monkeypatch.setenv("PATH", sandbox.environment["PATH"])
    with pytest.raises(InstallFailed, match=r"did not finish within 0\.5 seconds"):
        install(path=sandbox.env_file, timeout_seconds=0.5)
    assert sandbox.leftovers() == []
    group = int((sandbox.directory / "pid").read_text())
    wait_until(lambda: not _alive(group), about="the producer's process group to end")


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"BAILING_ADMIN_PASSWORD=changed by the operator\r\n# \xff\x00", id="edited"),
    ],
)
def test_an_existing_file_is_kept_byte_for_byte(sandbox: Sandbox, content: bytes) -> None:
    sandbox.openssl(GOOD)
    sandbox.env_file.write_bytes(content)
    sandbox.env_file.chmod(0o640)
    before = sandbox.env_file.stat()
    code, printed = sandbox.install()
    after = sandbox.env_file.stat()
    assert code == 0
    assert "left exactly as it is" in printed
    assert sandbox.env_file.read_bytes() == content
    assert (after.st_ino, after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    assert sandbox.runs == 0


def test_a_second_install_changes_nothing_and_needs_no_openssl(sandbox: Sandbox) -> None:
    sandbox.openssl(GOOD)
    assert sandbox.install()[0] == 0
    first = sandbox.env_file.read_bytes()
    (sandbox.directory / "bin" / "openssl").unlink()
    assert sandbox.install()[0] == 0
    assert sandbox.env_file.read_bytes() == first


def test_a_symbolic_link_is_kept_and_so_is_the_file_behind_it(sandbox: Sandbox) -> None:
    sandbox.openssl(GOOD)
    behind = sandbox.directory / "elsewhere"
    behind.write_bytes(b"MINE=1\n")
    sandbox.env_file.symlink_to(behind)
    assert sandbox.install()[0] == 0
    assert sandbox.env_file.is_symlink()
    assert behind.read_bytes() == b"MINE=1\n"


def test_a_broken_link_is_refused_and_nothing_appears_behind_it(sandbox: Sandbox) -> None:
    sandbox.openssl(GOOD)
    sandbox.env_file.symlink_to(sandbox.directory / "elsewhere")
    code, printed = sandbox.install()
    assert code == 1
    assert "broken link" in printed
    assert not (sandbox.directory / "elsewhere").exists()


def test_a_missing_directory_is_told_in_plain_words(sandbox: Sandbox) -> None:
    sandbox.openssl(GOOD)
    shutil.rmtree(sandbox.env_file.parent)
    code, printed = sandbox.install()
    assert code == 1
    assert "could not be written" in printed


def test_of_two_installers_at_once_one_writes_and_the_other_keeps_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each producer waits until both installers are past the look for an existing file.
    sandbox.openssl(
        'touch "../started.$PPID"; set -- ../started.*\n'
        "while [ $# -lt 2 ]; do sleep 0.01; set -- ../started.*; done\n"
        f"set -- run.*; run=$#; {GOOD}"
    )
    with ThreadPoolExecutor(2) as pool:
        ended = [
            future.result() for future in [pool.submit(sandbox.run_as_process) for _ in range(2)]
        ]
    assert [one.returncode for one in ended] == [0, 0]
    assert sorted("Wrote" in one.stdout for one in ended) == [False, True]
    assert len(read_env_file(sandbox.env_file)) == 6
    assert sandbox.leftovers() == [".env"]
    assert sandbox.runs == 12


def test_killed_while_a_producer_runs_it_leaves_nothing(sandbox: Sandbox) -> None:
    sandbox.openssl(f"[ $run -lt 6 ] && {{ {GOOD}; exit; }}; echo $$ > ../pid; exec sleep 60")
    process = subprocess.Popen(
        sandbox.command(), cwd=ROOT, env=sandbox.environment, stdout=subprocess.DEVNULL
    )
    pid_file = sandbox.directory / "pid"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), about="the sixth run")
    process.kill()
    process.wait()
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert sandbox.leftovers() == []


@pytest.mark.parametrize("moment", ["os.fsync", "os.link"])
def test_killed_before_the_file_has_its_name_there_is_no_env(tmp_path: Path, moment: str) -> None:
    script = (
        "import os, pathlib, signal\n"
        "from kernel.install import install\n"
        f"{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"install(path=pathlib.Path({str(tmp_path / '.env')!r}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / ".env").exists()
    assert install(path=tmp_path / ".env") is True


def test_the_command_explains_itself(sandbox: Sandbox) -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", "install", "--help"],
        cwd=ROOT,
        env=sandbox.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0
    assert "six fresh credentials" in ended.stdout
    assert "--path" in ended.stdout
