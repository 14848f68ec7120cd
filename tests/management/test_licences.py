"""docs/licences.md names every locked package with its version and licence."""

import pytest
from django.core.management import CommandError, call_command

from kernel.management.commands import licences


def test_the_document_fits_the_locked_requirements() -> None:
    call_command("licences", check=True)


def test_a_document_that_is_out_of_date_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "render", lambda _requirements: "another text")
    with pytest.raises(CommandError, match="out of date"):
        call_command("licences", check=True)
