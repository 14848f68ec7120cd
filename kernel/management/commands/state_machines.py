"""`manage.py state_machines`: renders docs/state-machines.md from kernel/states.py."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel.states import MACHINES, Machine

HEAD = """# State machines

Made by `manage.py state_machines` from `kernel/states.py`; do not edit. A test keeps it true.

A row moves only by compare-and-set: the verb names the states it may start from, and finds out
whether it was the one that moved the row. A state that nothing moves a row out of is final.
"""


class Command(BaseCommand):
    help = "Write docs/state-machines.md: every state, who moves a row out of it, every move."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="write nothing; fail when the file is out of date"
        )

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        path = settings.BASE_DIR / "docs" / "state-machines.md"
        text = render()
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            self.stdout.write(f"Wrote {path}.")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise CommandError(f"{path} is out of date: run manage.py state_machines.")


def render() -> str:
    """The whole document."""
    return "\n".join([HEAD, *(_machine(each) for each in MACHINES)])


def _machine(machine: Machine) -> str:
    moves = [
        f"| `{move.source}` | `{move.target}` | {_cell(move.verb)} | {_cell(move.requirement)} |"
        for move in machine.moves
    ]
    return "\n".join(
        [
            f"## {machine.name}",
            "",
            f"Column `{machine.column}`.",
            "",
            *_states(machine),
            "",
            "| from | to | moved by | requirement |",
            "|---|---|---|---|",
            *moves,
            "",
            *_diagram(machine),
            "",
        ]
    )


def _states(machine: Machine) -> list[str]:
    return [
        "| state | what it means | who moves a row out of it |",
        "|---|---|---|",
        *(
            f"| `{state.name}` | {_cell(state.means)} | {_cell(state.left_by) or 'nobody: final'} |"
            for state in machine.states
        ),
    ]


def _diagram(machine: Machine) -> list[str]:
    """The moves as mermaid: the first state is where rows begin; final states end."""
    sources = {move.source for move in machine.moves}
    finals = [state.name for state in machine.states if state.name not in sources]
    return [
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {machine.states[0].name}",
        *(
            f"    {move.source} --> {move.target}: {move.verb.replace(':', ' ')}"
            for move in machine.moves
        ),
        *(f"    {name} --> [*]" for name in finals),
        "```",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
