"""Installation secrets: writes `.env` once, whole or not at all (I1, I2).

Every credential is its own run of `openssl rand -base64 24`; all of them must end well before a
file is made. The file appears under its name in one step (a hard link, which never replaces
anything), so neither a crash nor a second installer can leave half a file or overwrite another.
"""

import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

CREDENTIALS = (
    ("DJANGO_SECRET_KEY", "signs sessions and forms"),
    (
        "BAILING_ADMIN_PASSWORD",
        "the console's user `admin`; a changed one counts from the next start",
    ),
    ("BAILING_API_TOKEN", "the token of the first account's API calls"),
    ("BAILING_EXECUTOR_TOKEN", "the token of remote workers"),
    ("BAILING_WEBHOOK_SECRET", "signs webhooks"),
    ("MYSQL_PASSWORD", "fills a BAILING_DATABASE_URL that has no password"),
)
PRODUCER = ("rand", "-base64", "24")
PRODUCER_SECONDS_MAX = 10.0
# 24 bytes are exactly 32 Base64 characters, so a padding sign is an error too.
CREDENTIAL = re.compile(rb"[A-Za-z0-9+/]{32}\n?")
OUTPUT_BYTES_MAX = 64


class InstallFailed(Exception):
    """Nothing was written. The text says why and what to do; it never holds a producer's output."""


def install(*, path: Path, timeout_seconds: float = PRODUCER_SECONDS_MAX) -> bool:
    """Create the `.env` file at `path`. True: written, mode 0600; False: it was there, untouched.

    `timeout_seconds` bounds each producer. InstallFailed when a producer fails or the file cannot
    be written; then no file is left (I1). An existing file is kept byte for byte (I2).
    """
    if os.path.lexists(path):
        if not path.is_file():
            raise InstallFailed(
                f"{path} is there but is no file or a broken link; remove or repair it."
            )
        return False
    openssl = shutil.which("openssl")
    if openssl is None:
        raise InstallFailed("The openssl command was not found: install OpenSSL, then try again.")
    values = [
        (name, about, _produce(openssl, name=name, timeout_seconds=timeout_seconds))
        for name, about in CREDENTIALS
    ]
    lines = ["# Made by `manage.py install`. Keep it secret; never commit it."]
    for name, about, value in values:
        lines += [f"# {about}", f"{name}={value}"]
    try:
        return _create_whole(path, ("\n".join(lines) + "\n").encode("ascii"))
    except OSError as error:
        raise InstallFailed(f"{path} could not be written: {error.strerror}.") from error


def _produce(openssl: str, *, name: str, timeout_seconds: float) -> str:
    """One credential from one run of the producer. What the producer says is repeated to nobody."""
    try:
        code, output = _run(openssl, timeout_seconds=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise _failed(name, f"did not finish within {timeout_seconds:g} seconds") from None
    except OSError as error:
        raise _failed(name, f"could not be started ({error.strerror})") from None
    if code != 0:
        raise _failed(name, "ended with an error")
    if not CREDENTIAL.fullmatch(output):
        raise _failed(name, "did not print exactly 32 Base64 characters")
    return output[:32].decode("ascii")


def _failed(name: str, what: str) -> InstallFailed:
    return InstallFailed(
        f"No .env was written: `openssl {' '.join(PRODUCER)}` for {name} {what}."
        " Install a working OpenSSL, then try again."
    )


def _run(openssl: str, *, timeout_seconds: float) -> tuple[int, bytes]:
    """Exit code and the first OUTPUT_BYTES_MAX bytes of output; TimeoutExpired when it hangs."""
    deadline = time.monotonic() + timeout_seconds
    with subprocess.Popen(
        [openssl, *PRODUCER],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    ) as process:
        try:
            output = _read(process, deadline=deadline)
            return process.wait(max(deadline - time.monotonic(), 0.01)), output
        except BaseException:
            # The group, because a producer may have children that hold the pipe.
            os.killpg(process.pid, signal.SIGKILL)
            raise


def _read(process: subprocess.Popen[bytes], *, deadline: float) -> bytes:
    assert process.stdout is not None
    output = b""
    while len(output) < OUTPUT_BYTES_MAX:
        wait_seconds = deadline - time.monotonic()
        if wait_seconds <= 0 or not select.select([process.stdout], [], [], wait_seconds)[0]:
            raise subprocess.TimeoutExpired(PRODUCER, wait_seconds)
        chunk = process.stdout.read(OUTPUT_BYTES_MAX - len(output))
        if not chunk:
            break
        output += chunk
    process.stdout.close()
    return output


def _create_whole(path: Path, content: bytes) -> bool:
    """Make `path` appear with all of `content`, mode 0600. False when somebody else was first."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
    finally:
        draft.unlink()
    _sync_directory(path.parent)
    return True


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
