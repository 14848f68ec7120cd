"""The command line behind manage.py: help lists our commands first."""

from django.core.management import ManagementUtility

OURS = "[kernel]"


class CommandLine(ManagementUtility):
    """Django's own, with a list of commands that begins with ours."""

    def main_help_text(self, commands_only: bool = False) -> str:
        """The text of `manage.py help`; names alone, for `help --commands`."""
        text = super().main_help_text(commands_only)
        if commands_only:
            return text
        usage, title, *groups = text.split("\n\n")
        return "\n\n".join([usage, title, *sorted(groups, key=lambda group: OURS not in group)])
