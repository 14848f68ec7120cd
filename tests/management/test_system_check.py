"""Django's checks find nothing, on the database itself as well."""

import pytest
from django.apps import apps
from django.core.management import call_command


@pytest.mark.usefixtures("kernel_db")
def test_the_models_hold_nothing_this_database_would_silently_leave_out() -> None:
    # MySQL and MariaDB create no conditional constraint and say so only in a check of the database.
    call_command("check", databases=["default"], fail_level="WARNING")


@pytest.mark.usefixtures("kernel_db")
def test_the_migrations_hold_every_model() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_no_model_of_ours_has_a_conditional_key() -> None:
    # models.W036 is silenced for allauth's tables alone.
    conditional = [
        f"{model.__name__}.{key.name}"
        for model in apps.get_app_config("kernel").get_models()
        for key in model._meta.constraints
        if getattr(key, "condition", None) is not None
    ]
    assert conditional == []
