"""Each block of code in the documents has a language with a rule, and is at least correct in its syntax."""

from __future__ import annotations

import subprocess

import pytest

from tests.code_blocks import NEEDS, NO_CODE, RUN, Block, blocks_in, pages

BLOCKS = [
    pytest.param(block, id=f"{page.name}:{block.line}")
    for page in pages()
    for block in page.blocks
    if block.language not in NO_CODE
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_correct_in_its_syntax(block: Block) -> None:
    assert block.language in RUN, "no test knows what to do with a block of this language"
    if block.text.startswith(NEEDS):
        assert block.text.partition("\n")[0].removeprefix(NEEDS).strip(), (
            "the block doesn't say what it needs"
        )
    if block.language == "python":
        compile(block.text, "block", "exec")
    else:
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```sh\nlakefold up\n```\n", [("sh", True)]),
        ("```sh\n# needs a cluster\nhelm\n```\n", [("sh", False)]),
        ("- a\n\n  ```python\n  x = 1\n  ```\n\n```text\nx\n```\n", [("python", True), ("text", False)]),
    ],
)
def test_the_rule_says_which_blocks_are_run(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(block.language, block.is_run) for block in blocks_in(text)] == expected


def test_a_command_may_continue_on_the_next_line() -> None:
    [block] = blocks_in("```sh\nlakefold log \\\n  a\n\nlakefold down\n```\n")
    assert block.commands() == ["lakefold log    a", "lakefold down"]
