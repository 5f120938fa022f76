"""What verbs print of a table moves no cursor and forges no line, and its JSON is one line for each item.

Promise: printed-values (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold import cli
from lakefold_table.storage import open_storage
from tests.proposals import rows
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = [
    "a\nversion 9  insert  id=9",
    "a\r\n  id=9",
    "a\rversion 9",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "tab\tbed \x08\x7f\x00",
    "\x85\u2028\u2029\x0b\x0c\x1c",
    "\u202eabc\u2066",
]
NAME = "na\nme\x1b[1m\u2028"
VERBS = [("changes", "--from", "0"), ("tail", "--from", "earliest", "--rows"), ("show",), ("log",)]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Hostile text as values, below a column, as a column's name, and in what a table says of itself."""
    uri = str(tmp_path / "t")
    table = pa.table({NAME: HOSTILE, "s": [{NAME: [text]} for text in HOSTILE]})
    lance.write_dataset(table, uri)
    dataset = lance.dataset(uri)
    dataset.update_config({NAME: HOSTILE[0]})
    dataset.update_metadata({NAME: HOSTILE[3]})
    return uri


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert cli.run(args) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_text_for_people_holds_no_control_character(
    uri: str, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    name, *options = verb
    for line in printed(capsys, name, uri, *options).split("\n"):
        assert line.isprintable(), line


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_each_line_of_json_is_one_document(
    uri: str, capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    name, *options = verb
    lines = printed(capsys, name, uri, *options, "--json").splitlines()
    documents = [json.loads(line) for line in lines]
    assert len(documents) == {"changes": 8, "tail": 3 + 8, "show": 1, "log": 3}[name]
    assert all(line.isprintable() for line in lines)
    if name == "changes":
        assert [row[NAME] for row in documents] == HOSTILE
        assert [row["s"] for row in documents] == [{NAME: [text]} for text in HOSTILE]


def test_a_row_is_one_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(printed(capsys, "changes", uri, "--from", "0").splitlines()) == len(HOSTILE)
    assert len(printed(capsys, "tail", uri, "--from", "0", "--rows").splitlines()) == 3 + len(HOSTILE)


def test_a_writer_s_app_id_is_one_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Folded(open_storage(tmp_path / "t"))
    table.append(rows(range(3)), app_id=f"app{HOSTILE[0]}{HOSTILE[3]}")
    for verb in ("log", "show"):
        text = printed(capsys, verb, table.uri)
        assert "\\n" in text
        assert all(line.isprintable() for line in text.split("\n"))


def test_an_error_is_one_line_for_its_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({NAME: [1]}), uri)
    assert cli.run(["changes", uri, "--from", "0", "--columns", "other"]) != 0
    for line in capsys.readouterr().err.split("\n"):
        assert line.isprintable(), line
