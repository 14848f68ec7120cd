"""What an entry says before Django runs: one line for a wrong setting, everything for a defect."""

import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from console.entry import reason_not_to_start
from console.env import read_env_file

DEFECT = """
def twice(pair):
    first, second = pair
    return first

VALUE = twice((1, 2, 3))
"""
SETTING = """
from django.core.exceptions import ImproperlyConfigured

raise ImproperlyConfigured("BAILING_X must be a number.")
"""


def start_with(text: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    name = f"settings_of_{folder.name}"
    (folder / f"{name}.py").write_text(text)
    patch.syspath_prepend(str(folder))
    patch.setenv("DJANGO_SETTINGS_MODULE", name)
    patch.delitem(sys.modules, name, raising=False)
    return reason_not_to_start()


def test_a_wrong_setting_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start_with(SETTING, tmp_path, monkeypatch) == "BAILING_X must be a number."


def test_a_defect_in_the_settings_is_not_taken_for_a_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="too many values to unpack"):
        start_with(DEFECT, tmp_path, monkeypatch)


@pytest.mark.parametrize("content", [b"BAILING_X=\xff\xfe", b"BAILING_X=a\x00b"])
def test_an_env_file_that_is_no_text_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(ImproperlyConfigured) as refusal:
        read_env_file(tmp_path / ".env")
    assert str(tmp_path / ".env") in str(refusal.value) and "BAILING_X" not in str(refusal.value)
