"""Play one plan of a random history again: `python -m tests.histories.replay <file or string>`.

The plan is what a failed history printed. `--mutant NAME` seeds that mistake first. The database is
the one pytest would use: SQLite, or what BAILING_TEST_DATABASE says. Exit status 0: every promise
holds; 1: the plan breaks one, which is printed.
"""

import argparse
import os
import sys
from pathlib import Path

# Not BAILING_...: the settings of tests take those away.
PLAN_VARIABLE, MUTANT_VARIABLE = "HISTORY_PLAN", "HISTORY_MUTANT"
CASE = Path(__file__).with_name("replayed.py")


def main(arguments: list[str]) -> int:
    """Run the plan in a pytest of its own, which brings the database."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories.replay")
    parser.add_argument("plan", help="a file, or the plan itself")
    parser.add_argument("--mutant", default="", help="a seeded mistake (tests/support/*mutants.py)")
    chosen = parser.parse_args(arguments)
    is_text = chosen.plan.lstrip().startswith("[")
    os.environ[PLAN_VARIABLE] = chosen.plan if is_text else Path(chosen.plan).read_text()
    os.environ[MUTANT_VARIABLE] = chosen.mutant
    # A process of its own, so that the settings are read with pytest's environment.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASE)]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
