"""`--engine`: fragments are rewritten in the process itself, and another engine is refused."""

from __future__ import annotations

import pytest

from lakefold.cli import run

USAGE = 2


@pytest.mark.parametrize("verb", ["compact", "maintain"])
def test_an_engine_that_is_not_built_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "/nowhere/t", "--engine", "spark"]) == USAGE
    assert "isn't built yet" in capsys.readouterr().err
