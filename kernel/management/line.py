"""The command line behind manage.py: wrong settings are one line, help lists our commands first."""

import importlib
import os

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import ManagementUtility

OURS = "[kernel]"


def reason_not_to_start() -> str:
    """What is wrong with the settings, as one line; '' when nothing is.

    Each of them names its variable, its limits and the way out; none repeats a secret. Read before
    Django looks at the command, so that every command says the same.
    """
    try:
        importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    except (ImproperlyConfigured, ValueError) as error:
        return str(error)
    try:
        django.setup()
    except ImproperlyConfigured as error:  # such as a database driver that is not installed
        return " ".join(str(error).split())
    return ""


class CommandLine(ManagementUtility):
    """Django's own, with a list of commands that begins with ours."""

    def main_help_text(self, commands_only: bool = False) -> str:
        """The text of `manage.py help`; names alone, for `help --commands`."""
        text = super().main_help_text(commands_only)
        if commands_only:
            return text
        usage, title, *groups = text.split("\n\n")
        return "\n\n".join([usage, title, *sorted(groups, key=lambda group: OURS not in group)])
