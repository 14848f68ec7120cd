"""What every command shares: acts, the actor, plain errors, tables and JSON documents."""

import argparse
import json
import logging
import os
import pwd
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn

from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
)
from django.db import DatabaseError, InterfaceError

from kernel import audit, schema
from kernel.errors import CommitOutcomeUnknown, InvalidInput, KernelError

EXIT_FAILED = 1
EXIT_SCHEMA = 2
DIFFERENCES_SHOWN_MAX = 50
# Shown as \u....: controls, formats (bidi, zero width), surrogates, separators other than a blank.
ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

Options = dict[str, Any]


class HelpFormatter(DjangoHelpFormatter):
    """Wraps long lines and keeps the others, so that lists and examples stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            textwrap.fill(line, width) if len(line) > width and line[0] != " " else line
            for line in text.splitlines()
        )


class KernelCommand(BaseCommand):
    """A command that calls verbs: it parses, calls, prints. Errors end it with a plain sentence.

    Exit codes: 0 done, 1 refused or failed, 2 the schema is not ready or the options are wrong.
    """

    requires_system_checks = ()
    # Django's own options work, but would bury ours in --help.
    suppressed_base_arguments = {
        "--version",
        "--verbosity",
        "--settings",
        "--pythonpath",
        "--traceback",
        "--no-color",
        "--force-color",
    }
    more = ""  # shown below the options

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(
            prog_name, subcommand, formatter_class=HelpFormatter, epilog=self.more, **kwargs
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with plain_errors():
                _check_characters(options)
                self.run(options)
                self.stdout.flush()
        except BrokenPipeError:  # whoever read the output has seen enough, e.g. `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(EXIT_FAILED) from None

    def run(self, options: Options) -> None:
        """Do what was asked. A command with acts runs the chosen one."""
        options["act"](options)

    @staticmethod
    def acts(parser: CommandParser) -> Any:
        """The place where a command of several acts adds each with `add_act`."""
        return parser.add_subparsers(title="acts", metavar="ACT", required=True)

    @staticmethod
    def add_act(
        acts: Any, name: str, act: Callable[[Options], None], *, help: str, more: str = ""
    ) -> CommandParser:
        """Add one act; `more` is shown below its options."""
        parser: CommandParser = acts.add_parser(
            name,
            help=help,
            description=help,
            epilog=more,
            formatter_class=HelpFormatter,
        )
        parser.set_defaults(act=act)
        return parser

    def say(self, *lines: str) -> None:
        """Print lines; text from outside must have gone through `shown`."""
        for line in lines:
            self.stdout.write(line)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, none: str) -> None:
        """Print aligned columns, or the sentence `none` when there are no rows."""
        texts = [[shown(value) for value in row] for row in rows]
        if not texts:
            self.say(none)
            return
        widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
        for row in (heads, *texts):
            cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            self.say("  ".join(cells).rstrip())

    def document(self, value: Any) -> None:
        """Print one JSON document, in ASCII. Times are ISO 8601."""
        self.stdout.write(json.dumps(value, indent=2, default=_json_value))


def add_json(parser: CommandParser) -> None:
    """The option of commands whose answer a script may want."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def actor() -> audit.Actor:
    """Who acts, for audit rows: the operating system's user of this process (M2)."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run as a number without a name
        name = f"uid-{number}"
    return audit.Actor("command", name)


def shown(value: Any) -> str:
    """A value as it may be printed: '-' for nothing, no control or invisible characters."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return when(value)
    return "".join(
        f"\\u{ord(each):04x}" if unicodedata.category(each) in ESCAPED else each
        for each in str(value)
    )


def when(value: datetime) -> str:
    """A time for people: UTC, to the second."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """An argparse type whose ValueError text reaches the person."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def parse_time(text: str) -> datetime:
    """ISO 8601 date or time; without a zone it is UTC. ValueError."""
    try:
        value = datetime.fromisoformat(text.strip())
    except ValueError:
        example = "2025-01-31 or 2025-01-31T09:30"
        raise ValueError(f"write a time such as {example}, not {text[:40]!r}") from None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def plain(error: KernelError) -> str:
    """A kernel error as one or two sentences: what is wrong, and the way out."""
    message = error.message
    if isinstance(error, InvalidInput):
        word = error.field.removesuffix("_nano").rpartition(".")[2]
        if word not in message:
            message = f"{word}: {message}"
    else:
        message = message[:1].upper() + message[1:]
    sentence = message if message.endswith((".", "?", "!")) else f"{message}."
    return f"{shown(sentence)} {error.way_out}".strip()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn the errors that a person can meet into CommandError; a defect keeps its traceback."""
    try:
        yield
    except CommitOutcomeUnknown as error:
        raise CommandError(
            f"{error.message} It may have taken effect: look before you repeat it.",
            returncode=EXIT_FAILED,
        ) from error
    except KernelError as error:
        code = EXIT_SCHEMA if error.error_code == "schema_not_ready" else EXIT_FAILED
        raise CommandError(plain(error), returncode=code) from error
    except (DatabaseError, InterfaceError) as error:
        raise _database_trouble(error) from error


def schema_trouble(found: schema.SchemaState) -> CommandError:
    """What a command says when the schema is not the one of this version (H2)."""
    return CommandError(
        f"The schema is not ready: {found}. {found.way_out}", returncode=EXIT_SCHEMA
    )


def tables_trouble(wrong: Sequence[str]) -> CommandError:
    """What a command says when tables are not what the migrations made: one line for each (H2)."""
    lines = [f"  - {shown(each)}" for each in wrong[:DIFFERENCES_SHOWN_MAX]]
    if more := len(wrong) - len(lines):
        lines.append(f"  - and {more} more")
    text = "\n".join(["The tables are not what the migrations made:", *lines, schema.BY_HAND])
    return CommandError(text, returncode=EXIT_SCHEMA)


def _database_trouble(error: Exception) -> CommandError:
    try:
        found = schema.state()
    except (DatabaseError, InterfaceError):
        return CommandError(
            f"The database does not answer: {_first_line(error)}."
            " Check BAILING_DATABASE_URL, and that its server runs.",
            returncode=EXIT_FAILED,
        )
    if not found.ready:
        return schema_trouble(found)
    return CommandError(
        f"The database refused this: {_first_line(error)}. Nothing was changed.",
        returncode=EXIT_FAILED,
    )


def _first_line(error: Exception) -> str:
    text = str(error.args[-1] if error.args else error).splitlines() or [type(error).__name__]
    return shown(text[0][:300].rstrip("."))


def _check_characters(options: Options) -> None:
    """Arguments arrive as bytes; what is no UTF-8 becomes surrogates that nothing can store."""
    for name, value in options.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError:
                    raise CommandError(f"{name}: not valid UTF-8") from None


def _json_value(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def leave(command: BaseCommand, error: CommandError) -> NoReturn:
    """End this process now with the error's words and exit code (G3).

    For a close that ran out of time: the interpreter would wait for threads that hang in the
    database, for as long as they like.
    """
    command.stderr.write(f"CommandError: {error}")
    for stream in (command.stdout, command.stderr):
        stream.flush()
    logging.shutdown()
    os._exit(error.returncode)
