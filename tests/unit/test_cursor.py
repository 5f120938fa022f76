"""A cursor's text can be parsed to the same cursor, for any name of a branch.

Promise: made-anew (docs/operations/promises.md).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_reader.versions.cursor import Cursor
from lakefold_table.errors import InvalidError


@given(
    st.uuids().map(str) | st.just(""),
    st.text(),
    st.integers(0, 2**63),
    st.binary(max_size=16).map(bytes.hex),
    st.text(),
)
def test_the_text_gives_the_cursor_back(
    table_id: str, branch: str, version: int, mark: str, fork: str
) -> None:
    cursor = Cursor(table_id, branch, version, mark, fork)
    assert Cursor.parse(str(cursor)) == Cursor.parse(f" {cursor}\n") == cursor


def test_the_text_is_stable() -> None:
    assert str(Cursor("15348d8c", "a/b", 12)) == "lf1:15348d8c:a%2Fb:12"
    assert str(Cursor("", "", 3)) == "lf1:::3"
    assert str(Cursor("t", "b", 3, "0a", "f1")) == "lf1:t:b:3:0a:f1"
    assert str(Cursor("t", "", 3, "0a")) == "lf1:t::3:0a:"


def test_a_cursor_of_an_older_release_is_read() -> None:
    assert Cursor.parse("lf1:15348d8c:a%2Fb:12") == Cursor("15348d8c", "a/b", 12)


@pytest.mark.parametrize(
    "text",
    [
        *["", "12", "lf2:::1", "lf1:::", "lf1:::-2", "lf1::1", "lf1:::1:2", "lf1:::²", f"lf1:::{10**99}"],
        *["lf1:::1:Z:", "lf1:::1:a:b:c", "lf1:::-2:a:b"],
    ],
)
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidError, match="this is not a cursor"):
        Cursor.parse(text)
