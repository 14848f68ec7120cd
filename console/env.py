"""Reads `.env` into the process environment.

KEY=value lines, no interpolation, nothing overwritten.
"""

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def read_env_file(path: Path) -> dict[str, str]:
    """Returns the pairs of a `.env` file; an absent file is an empty one.

    ImproperlyConfigured, which shows none of it, when it is no text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ImproperlyConfigured(f"{path} must be UTF-8 text without NUL characters.")
    pairs: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#") or "=" not in line:
            continue
        name, value = line.removeprefix("export ").split("=", 1)
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        pairs[name.strip()] = value
    return pairs


def load_env_file(path: Path) -> None:
    """Adds the pairs of `.env` to os.environ; a variable that is already set wins."""
    for name, value in read_env_file(path).items():
        os.environ.setdefault(name, value)
