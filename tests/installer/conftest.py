"""Synthetic openssl commands: shell scripts that are the only `openssl` on the PATH."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

ROOT = Path(__file__).resolve().parents[2]

# Answers like the real one, and differently at each run: 32 characters that hold the run's number.
GOOD = 'printf "%032d\\n" "$run" | tr 0 A'


@dataclass
class Sandbox:
    """A directory with a synthetic openssl, and the installer run against it."""

    directory: Path
    environment: dict[str, str]
    capture: pytest.CaptureFixture[str]

    @property
    def env_file(self) -> Path:
        return self.directory / "target" / ".env"

    @property
    def runs(self) -> int:
        """How often the synthetic openssl was started."""
        return len(list((self.directory / "runs").iterdir()))

    def openssl(self, body: str) -> None:
        """Make `body` (shell; `$run` counts from 1) the only openssl on the PATH."""
        command = self.directory / "bin" / "openssl"
        command.write_text(
            "#!/bin/sh\n"
            f'cd "{self.directory}/runs" && [ "$*" = "rand -base64 24" ] || exit 64\n'
            'touch "run.$$" && set -- run.* && run=$#\n' + body + "\n"
        )
        command.chmod(0o755)

    def command(self) -> list[str]:
        return [sys.executable, "manage.py", "install", "--path", str(self.env_file)]

    def run_as_process(self) -> subprocess.CompletedProcess[str]:
        """Run `manage.py install` as a person does: its own process, no .env, no secret at hand."""
        return subprocess.run(
            self.command(),
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def install(self) -> tuple[int, str]:
        """The same in this process: exit code and all that was printed, by producers as well."""
        self.capture.readouterr()
        code = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", self.environment["PATH"])
            try:
                call_command("install", path=self.env_file)
            except CommandError as error:
                code = error.returncode
                print(error)
        printed = self.capture.readouterr()
        return code, printed.out + printed.err

    def leftovers(self) -> list[str]:
        """Names in the target directory."""
        return sorted(entry.name for entry in self.env_file.parent.iterdir())


@pytest.fixture
def sandbox(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Sandbox:
    for name in ("bin", "runs", "target"):
        (tmp_path / name).mkdir()
    for tool in ("sh", "touch", "printf", "tr", "sleep", "cat", "yes"):
        found = next(
            path for part in os.defpath.split(os.pathsep) if (path := Path(part, tool)).exists()
        )
        (tmp_path / "bin" / tool).symlink_to(found)
    environment = {
        "PATH": str(tmp_path / "bin"),
        "BAILING_READ_ENV_FILE": "0",
        "HOME": str(tmp_path),
    }
    return Sandbox(tmp_path, environment, capfd)


@pytest.fixture
def failing(sandbox: Sandbox) -> Callable[..., str]:
    """Install with a bad openssl; returns what was printed, after checking that nothing is left."""

    def run(body: str, *, runs: int = 1) -> str:
        sandbox.openssl(body)
        code, printed = sandbox.install()
        assert code == 1
        assert sandbox.leftovers() == []
        assert sandbox.runs == runs
        return printed

    return run
