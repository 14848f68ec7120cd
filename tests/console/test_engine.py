"""Which engine an installation runs on: settings checked at start, the broker's secret kept."""

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from console.engine import Engine, engine

URL = "redis://:hush-hush@10.0.0.5:6380/0"


def test_without_the_setting_nothing_changes_and_no_broker_is_needed() -> None:
    assert engine({}) == Engine()
    assert not engine({"BAILING_ENGINE": "", "BAILING_BROKER_URL": URL}).is_celery
    assert not settings.ENGINE.is_celery


def test_celery_takes_its_broker_and_shows_no_secret() -> None:
    found = engine({"BAILING_ENGINE": "celery", "BAILING_BROKER_URL": URL})
    assert (found.is_celery, found.is_redis, found.broker_url) == (True, True, URL)
    assert found.broker == "redis://10.0.0.5:6380"
    assert "hush-hush" not in f"{found!r} {found}"
    rabbit = "amqps://me:hush-hush@mq.example.com/vhost"
    found = engine({"BAILING_ENGINE": "celery", "BAILING_BROKER_URL": rabbit})
    assert (found.is_redis, found.broker) == (False, "amqps://mq.example.com")


@pytest.mark.parametrize(
    ("name", "url", "says"),
    [
        ("rocket", URL, "BAILING_ENGINE must be celery or not set, not 'rocket'"),
        ("celery", "", "needs BAILING_BROKER_URL"),
        ("celery", "http://:hush-hush@host/0", "must look like redis"),
        ("celery", "redis://", "must look like redis"),
        ("celery", "redis://:hush-hush@host:99999/0", "must look like redis"),
        ("celery", "redis://:hush-hush@host:0/0", "must look like redis"),
        ("celery", "redis://[::1:6379/0", "must look like redis"),
    ],
)
def test_a_wrong_engine_or_broker_is_named_without_its_secret(
    name: str, url: str, says: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=says.replace("[", r"\[")) as found:
        engine({"BAILING_ENGINE": name, "BAILING_BROKER_URL": url})
    assert "hush-hush" not in str(found.value)
    assert found.value.__suppress_context__ or found.value.__context__ is None


def test_standalone_refuses_an_engine_of_several_processes(settings: object) -> None:
    settings.ENGINE = Engine("celery", URL, "redis://10.0.0.5:6380")  # type: ignore[attr-defined]
    with pytest.raises(CommandError, match="several processes"):
        call_command("standalone", port=0)
