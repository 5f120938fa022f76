"""The blocks of code in the README and in docs/, and the rule that says which of them a test runs.

Blocks of `sh` and `python` are run in the order of their page (`tests/integration/test_pages.py`), unless the
first line is a comment that begins with "# needs": it says to the reader what the block needs, such as a
cluster, and `tests/integration/test_blocks_with_needs.py` says how far it is tried. A block that is a whole
program of `examples/` is run by the examples' test. `text` and `mermaid` are not code. The page of Python's
names has the code of docstrings, which `tests/integration/test_docstrings.py` runs.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT: Final = Path(__file__).parents[1]
RUN: Final = ("sh", "python")
NO_CODE: Final = ("text", "mermaid")
NEEDS: Final = "# needs "
_INDENTED: Final = re.compile(r"(?<=\n\n)(?:(?: {4}.*)?\n)+", re.MULTILINE)
_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page. `line`: where it begins."""

    language: str
    text: str
    line: int

    @property
    def is_run(self) -> bool:
        """Whether it is run with its page."""
        return self.language in RUN and not self.text.startswith(NEEDS) and self.text not in programs()

    def commands(self) -> list[str]:
        """The commands of a shell block; one that ends with a backslash continues on the next line."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line]


@dataclass(frozen=True)
class Page:
    """A page with its blocks. `name`: its path in the repository."""

    name: str
    blocks: tuple[Block, ...]


@cache
def programs() -> frozenset[str]:
    """The texts of the examples."""
    return frozenset(path.read_text() for path in (ROOT / "examples").glob("*.py"))


def blocks_in(text: str) -> tuple[Block, ...]:
    """The blocks of a page's text, without the indentation of a list that they are in."""
    return tuple(
        Block(match[2], re.sub(f"(?m)^{match[1]}", "", match[3]), text.count("\n", 0, match.start()) + 1)
        for match in _BLOCK.finditer(text)
    )


def pages() -> list[Page]:
    """The pages that a reader pastes from."""
    paths = [*ROOT.glob("*.md"), ROOT / "tests" / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [Page(str(path.relative_to(ROOT)), blocks_in(path.read_text())) for path in sorted(paths)]


def public_objects(module: ModuleType) -> Iterator[tuple[str, object]]:
    """A module, its public names, and the public methods of its classes, each with its name."""
    yield module.__name__, module
    for name in module.__all__:
        value = getattr(module, name)
        yield f"{module.__name__}.{name}", value
        for each, member in vars(value).items() if inspect.isclass(value) else ():
            if not each.startswith("_"):
                yield f"{module.__name__}.{name}.{each}", member


def code_in_docstrings(module: ModuleType) -> dict[str, str]:
    """The code of the docstrings that the page of Python's names shows, by the name: their indented lines."""
    texts = {name: inspect.getdoc(value) or "" for name, value in public_objects(module)}
    blocks = {
        name: "\n\n".join(textwrap.dedent(block) for block in _INDENTED.findall(f"{text}\n"))
        for name, text in texts.items()
    }
    return {name: code for name, code in blocks.items() if code}
