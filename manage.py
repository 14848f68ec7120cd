#!/usr/bin/env python3
"""The command line: `manage.py help` lists every command. Outside a virtual environment it uses
the one that `make run` makes."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

VENV_PYTHON = Path(__file__).resolve().parent / ".venv" / "bin" / "python"

if __name__ == "__main__":
    if sys.prefix == sys.base_prefix and VENV_PYTHON.exists():
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv])
    if sys.argv[1:2] == ["standalone"]:
        # Asked to end before it runs: nothing has begun, so that is a clean exit. Set before the
        # imports, which take most of the first second; the command sets its own later.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if importlib.util.find_spec("django") is None:
        sys.exit(
            "The requirements are not installed for this Python: run `make run` once, or use the"
            " environment that has them (.venv/bin/python manage.py ...)."
        )
    from console.entry import reason_not_to_start
    from kernel.management.line import CommandLine

    if reason := reason_not_to_start():
        sys.exit(reason)
    CommandLine(sys.argv).execute()
