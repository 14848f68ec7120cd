"""One line is one JSON object, whatever is logged; ids in it, secrets not (E5, L2)."""

import json
import logging
import sys

import pytest
from structlog.contextvars import bound_contextvars

from console.logs import CUT, LineFormatter, secrets_of
from kernel.conf import override

ENVIRON = {
    "SHOP_API_KEY": "canary/shop+key",
    "BAILING_DATABASE_URL": "mysql://bailing:p%40ss-of-the-database@db/bailing",
    "PATH": "/usr/bin:/bin",
    "TINY_TOKEN": "abc",
    "BROKEN_URL": "http://[::1",
}


def line_of(message, *args, error=None, environ=ENVIRON):
    """The text of one logged line and the object in it."""
    exc_info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("kernel.x", logging.WARNING, "x.py", 7, message, args, exc_info)
    text = LineFormatter(environ).format(record)
    return text, json.loads(text)


@pytest.mark.parametrize(
    "hostile",
    [
        "fine\n2026-11-29 ERROR kernel forged",
        "\r\n\x00\x1b[31mred\x7f\x85\u2028\u2029\u202e",
        '", "level": "ERROR',
        "lone \ud800 surrogate",
        "ü 漢 😀",
    ],
)
def test_no_text_forges_a_line_or_a_field(hostile):
    text, line = line_of("said %s", hostile)
    assert text.isascii()
    assert text.isprintable()
    assert line["event"] == f"said {hostile}"
    assert (line["level"], line["logger"]) == ("WARNING", "kernel.x")


def test_a_huge_value_is_cut():
    with override(log_value_bytes_max=300):
        text, line = line_of("%s", "x" * 10_000_000)
    assert line["event"] == "x" * 300 + CUT
    assert len(text) < 1000


def test_a_traceback_is_part_of_its_line():
    try:
        raise ValueError("broken\nforged")
    except ValueError as error:
        text, line = line_of("it failed", error=error)
    assert "\n" not in text
    assert line["traceback"].endswith("ValueError: broken\nforged\n")


def test_lines_of_a_request_name_it():
    with bound_contextvars(request_id="web_1"):
        assert line_of("x")[1]["request_id"] == "web_1"
    assert "request_id" not in line_of("x")[1]


def test_a_line_that_cannot_be_formatted_is_one_line_too():
    text, line = line_of("%d %s", "only one\nforged")
    assert "\n" not in text
    assert line["level"] == "ERROR"


def test_known_secrets_do_not_get_out():
    for secret in ("canary/shop+key", "p%40ss-of-the-database", "p@ss-of-the-database"):
        text, line = line_of("key=%s.", secret, error=ValueError(secret))
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text
        assert line["event"] in ("key=[SHOP_API_KEY].", "key=[BAILING_DATABASE_URL].")
    assert set(secrets_of(ENVIRON)) == {
        "canary/shop+key",
        "p%40ss-of-the-database",
        "p@ss-of-the-database",
    }


def test_each_former_secret_key_is_replaced():
    environ = {"DJANGO_SECRET_KEY_FALLBACKS": "the-first-former-key,the-second-former-key"}
    text, _ = line_of("signed with %s", "the-second-former-key", environ=environ)
    assert "former-key" not in text and "[DJANGO_SECRET_KEY_FALLBACKS]" in text


def test_the_product_writes_such_lines(settings, capsys):
    handler = settings.LOGGING["handlers"]["stderr"]
    formatter = settings.LOGGING["formatters"][handler["formatter"]]
    assert formatter["()"] == "console.logs.LineFormatter"
    assert settings.LOGGING["root"]["handlers"] == ["stderr"]
    found = logging.getLogger().handlers
    assert any(isinstance(one.formatter, LineFormatter) for one in found), sys.modules.keys()
