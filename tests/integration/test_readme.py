"""The README's examples work as printed, block after block, in a folder of their own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.terminal import Terminal, terminal_in

if TYPE_CHECKING:
    from collections.abc import Iterator

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PASTED = "## Use it"
"""The section that a reader pastes. What stands above it is run by CI itself (`make`), or is a drawing."""


def blocks() -> list[tuple[str, str]]:
    """Language and text of the blocks to paste, in order."""
    return BLOCK.findall(README.read_text().partition(PASTED)[2])


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with terminal_in(tmp_path) as terminal:
        yield terminal


def test_each_block_to_paste_works(terminal: Terminal) -> None:
    """Python's blocks are pasted into one session; those of the shell run around it as in the text."""
    kinds = [kind for kind, _ in blocks()]
    assert kinds == ["sh", "python", "python", "python", "python", "sh"], "a block that no test runs"
    shell, *session, rest = [text for _, text in blocks()]
    for line in filter(None, shell.splitlines()):
        terminal.run(line)
    script = terminal.folder / "session.py"
    script.write_text("\n".join([*session, "query.stop()", "spark.stop()", "print('done')"]))
    terminal.run(f"{sys.executable} session.py")
    for line in filter(None, rest.splitlines()):
        terminal.run(line)
