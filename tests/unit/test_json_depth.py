"""Files of JSON that are nested too deep for Arrow's parser, which would end the process, are refused."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from lakefold.writing.files import file_rows
from lakefold_ingest.rows.json_depth import MOST_DEPTH, check_depth, depth_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from pathlib import Path


def nested(levels: int) -> str:
    """An object of so many levels."""
    return '{"a":' * (levels - 1) + '{"a": 1}' + "}" * (levels - 1)


@pytest.mark.parametrize("levels", [MOST_DEPTH + 1, 10_000])
@pytest.mark.parametrize("before", ["", '{"a": 1}\n', '{"text": "}}}"}\n' * 1000])
@pytest.mark.parametrize("break_", ["", "\n"], ids=["one line", "many lines"])
def test_values_that_are_nested_too_deep_are_refused(levels: int, before: str, break_: str) -> None:
    text = before + nested(levels).replace("{", "{" + break_)
    with pytest.raises(InvalidError, match=f"nested more than {MOST_DEPTH} levels deep"):
        check_depth(io.BytesIO(text.encode()), "here")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        nested(MOST_DEPTH),
        (json.dumps({"a": "{" * 600, "b": '"[\\'}) + "\n") * 3,
        (json.dumps({"a": [1, {"b": []}]}, indent=1) + "\n") * 600,
        ('{"open": "{[{["}\r\n' * 600),
        '{"a": [' + "[1]," * 1000 + "[]]}\n",
    ],
    ids=["empty", "blank", "deep", "brackets in texts", "indented", "carriage returns", "side by side"],
)
def test_other_values_are_not(text: str) -> None:
    check_depth(io.BytesIO(text.encode()), "here")


def test_a_value_that_spans_parts_of_the_file_is_counted_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefold_ingest.rows.json_depth._BLOCK", 7)
    deep = nested(MOST_DEPTH + 1).replace("{", "{\n")
    with pytest.raises(InvalidError, match="levels deep"):
        check_depth(io.BytesIO(deep.encode()), "here")
    check_depth(io.BytesIO(nested(MOST_DEPTH).replace("{", "{\n").encode()), "here")


def test_the_depth_of_a_text_counts_no_brackets_in_its_texts() -> None:
    assert depth_of(rb'{"a": "[[[\"[[[", "b": [[]]}') == 3
    assert depth_of(b"") == 0


def test_a_file_that_would_end_the_process_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text('{"a": 1}\n' + '{"a": ' + "[" * 10_000 + "]" * 10_000 + "}\n")
    with pytest.raises(InvalidError, match=r"deep\.jsonl: the file can't be read: it is nested more than"):
        file_rows([path], None)
    path.write_text('{"a": ' + "[" * 400 + "]" * 400 + "}\n")
    assert file_rows([path], None).read_all().num_rows == 1
