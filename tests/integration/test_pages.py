"""The code of the README and of docs/ works as printed, block after block, in a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.code_blocks import Page, pages
from tests.integration.python_session import PythonSession
from tests.integration.terminal import Terminal, terminal_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Pages start Spark: a minute on an idle machine, and several on one that is busy with other tests.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("_quick_workers")]

WITH_CODE = [page for page in pages() if any(block.is_run for block in page.blocks)]
STOPPED = "query.stop()\nspark.stop()\n"
"""What ends the README's streaming query, which a person ends by leaving Python."""
ENDS_BROKER = "lakefold down"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with terminal_in(tmp_path) as terminal:
        yield terminal


def test_some_pages_have_code() -> None:
    assert {page.name for page in WITH_CODE} >= {"README.md", "docs/tutorial.md"}


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_each_block_of_a_page_works(terminal: Terminal, page: Page) -> None:
    """Python's blocks are pasted into one session, those of the shell run in between as in the text."""
    streams = any("awaitTermination" in block.text for block in page.blocks)
    with PythonSession(terminal.folder, terminal.variables) as session:
        for block in page.blocks:
            if block.is_run and block.language == "python":
                session.run(block.text, f"{page.name}, line {block.line}")
            elif block.is_run:
                if streams and ENDS_BROKER in block.text:
                    # A batch would wait for the broker.
                    session.run(STOPPED, "the end of the query")
                for command in block.commands():
                    terminal.run(command)
