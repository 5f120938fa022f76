"""A path whose links are replaced at that moment is looked at again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lakefold_table.uri import canonical, real_path

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), OSError(22, "no link")])
def test_a_link_that_is_replaced_meanwhile_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "t").symlink_to(tmp_path / "old")
    readlink, moments = os.readlink, [error, error]

    def replaced(path: str) -> str:
        if moments:
            raise moments.pop()
        return readlink(path)

    monkeypatch.setattr(os, "readlink", replaced)
    assert real_path(str(tmp_path / "t")) == str(tmp_path / "old")
    moments.append(error)
    assert canonical(tmp_path / "t") == f"file://{tmp_path / 'old'}"


def test_a_path_that_is_never_still_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").symlink_to(tmp_path)

    def gone(path: str) -> str:
        raise FileNotFoundError(2, path)

    monkeypatch.setattr(os, "readlink", gone)
    with pytest.raises(FileNotFoundError):
        real_path(str(tmp_path / "t"))
