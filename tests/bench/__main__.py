"""python -m tests.bench [--quick] [--rows N]: measures everything and writes docs/benchmarks.md."""

import argparse
import os
import platform
import secrets
import sys
from pathlib import Path

from tests.bench import report
from tests.support.mariadb_server import private_server

OUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def main() -> int:
    """Run the parts one after another on one private server."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer calls; writes nothing")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table")
    parser.add_argument("--only", default="", help="gateway, streams, settlement, pages or start")
    options = parser.parse_args()
    with private_server(buffer_pool_mib=1024) as server:
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        os.environ["DJANGO_SECRET_KEY"] = secrets.token_hex(16)
        with server.schema() as url:
            os.environ["BAILING_TEST_DATABASE_URL"] = url
            from tests.bench import run

            found = run.everything(
                server, quick=options.quick, rows=options.rows, only=options.only
            )
    text = report.render(found, machine=_machine(), server=str(server))
    print(text)
    if not options.quick and not options.only:
        OUT.write_text(text, encoding="utf-8")
        print(f"written: {OUT.name}", file=sys.stderr)
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
