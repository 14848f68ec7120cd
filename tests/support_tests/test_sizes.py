"""One variable chooses between the everyday proof and the full one."""

import pytest

from tests.support import environment
from tests.support.sizes import SIZE_VARIABLE, sized


@pytest.mark.parametrize(("value", "rounds"), [("", 3), ("everyday", 3), ("full", 500)])
def test_the_size_chooses(monkeypatch: pytest.MonkeyPatch, value: str, rounds: int) -> None:
    monkeypatch.setenv(SIZE_VARIABLE, value)
    assert sized(3, 500) == rounds


def test_without_the_variable_it_is_the_everyday_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SIZE_VARIABLE, raising=False)
    assert sized("few", "many") == "few"


def test_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE_VARIABLE, "big")
    with pytest.raises(ValueError, match="everyday or full, not 'big'"):
        sized(1, 2)


def test_the_size_is_not_taken_for_an_installations_setting() -> None:
    assert not environment.is_foreign(SIZE_VARIABLE)
