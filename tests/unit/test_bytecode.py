"""What `make test` compiles before it tests is what the test processes load."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from _pytest.assertion import rewrite

from tests.bytecode import compile_all

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pytest_loads_what_was_compiled(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "test_a.py"
    source.write_text("VALUE = 7\n")
    assert compile_all([source], pytestconfig)
    monkeypatch.delattr(rewrite, "_rewrite_test")
    spec = importlib.util.spec_from_file_location("test_a", source)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    rewrite.AssertionRewritingHook(pytestconfig).exec_module(module)
    assert module.VALUE == 7


def test_an_error_is_printed_and_the_other_modules_are_compiled(
    tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("test_a.py", "if"), ("b.py", "if"), ("c.py", "VALUE = 7"), ("test_d.py", "")):
        (tmp_path / name).write_text(text)
    assert not compile_all(sorted(tmp_path.iterdir()), pytestconfig)
    printed = capsys.readouterr()
    assert "test_a.py:1" in printed.err
    assert "b.py" in printed.out
    compiled = {each.name.partition(".")[0] for each in (tmp_path / "__pycache__").iterdir()}
    assert compiled == {"c", "test_d"}
