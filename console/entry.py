"""What each entry (manage.py, the web server, Celery) does first: set Django up, or say why not."""

import importlib
import os

import django
from django.core.exceptions import ImproperlyConfigured


def reason_not_to_start() -> str:
    """What is wrong with the settings, as one line; '' when nothing is and Django is set up.

    Each of them names its variable, its limits and the way out; none repeats a secret. Read before
    Django looks at the command, so that every command says the same.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    try:
        importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    except ImproperlyConfigured as error:  # any other error is a defect, and shows where it is
        return str(error)
    try:
        django.setup()
    except ImproperlyConfigured as error:
        if "mysqlclient" in str(error):
            return "The driver for MySQL and MariaDB is not installed: run `make mysql` once."
        return " ".join(str(error).split())
    return ""
