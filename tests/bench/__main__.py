"""python -m tests.bench [--quick] [--rows N] [--only PART] [--against COMMIT]

Measures, and writes docs/benchmarks.md.
"""

import argparse
import os
import platform
import secrets
import sys
import time
from pathlib import Path

from tests.bench import document
from tests.support.mariadb_server import private_server

OUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
BUFFER_POOL_MIB = 2048


def main() -> int:
    """Run the parts one after another on one private server; each is written when it is there."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute; writes nothing")
    parser.add_argument("--rows", type=int, default=0, help="rows of the large table")
    parser.add_argument("--only", default="", choices=("", *document.PARTS), help="one part")
    parser.add_argument("--against", default="", help="compare with this commit, only that")
    options = parser.parse_args()
    started = time.monotonic()
    with private_server(buffer_pool_mib=BUFFER_POOL_MIB) as server:
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        os.environ["DJANGO_SECRET_KEY"] = secrets.token_hex(16)
        os.environ["BAILING_TEST_DATABASE_URL"] = server.url("none_yet")
        from tests.bench import run

        rows = options.rows or (run.QUICK_ROWS if options.quick else 1_000_000)
        head = document.head(machine=_machine(), server=str(server.version))
        if options.against:
            found = iter([(document.COMPARISON, run.comparison(server, options.against))])
        else:
            found = run.sections(server, quick=options.quick, rows=rows, only=options.only)
        for name, text in found:
            print(text, flush=True)
            print(f"{name}: {time.monotonic() - started:.0f} s so far", file=sys.stderr, flush=True)
            if not options.quick:
                old = OUT.read_text(encoding="utf-8") if OUT.exists() else ""
                OUT.write_text(document.replaced(old, head, name, text), encoding="utf-8")
    if options.quick:
        print(run.QUICK_LEAVES_OUT)
    print(f"{time.monotonic() - started:.0f} s in all", file=sys.stderr)
    return 0


def _machine() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{os.cpu_count()} cores ({model}), Linux, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
