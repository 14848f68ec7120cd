"""Options of several lines: written out, or read from a file named as @path."""

from pathlib import Path

BYTES_MAX = 1024 * 1024


def text_or_file(text: str) -> str:
    """The text itself, or the content of `@path`. ValueError when it cannot be read."""
    if not text.startswith("@"):
        return text
    path = Path(text[1:])
    try:
        if path.stat().st_size > BYTES_MAX:
            raise ValueError(f"{path} has more than {BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
