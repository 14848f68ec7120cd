#!/usr/bin/env python3
"""The command line: `manage.py help` lists every command."""

import os
import signal
import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["standalone"]:
        # Asked to end before it runs: nothing has begun, so that is a clean exit. Set before the
        # imports, which take most of the first second; the command sets its own later.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
