"""Texts that are surely no expression of SQL, and those that may be one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_table.delta.table_features.malformed_sql import malformed_part
from lakefold_table.entry import Committed, Invalid
from tests.delta_logs.actions import metadata, protocol_with
from tests.unit.test_delta_format import OTHER_ID, THIRD_ID, Table

if TYPE_CHECKING:
    from pathlib import Path

CHECK = "delta.constraints.positive"
PROTOCOL = protocol_with("appendOnly", "invariants", "checkConstraints")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x >", "it ends after '>'"),
        ("  ", "it is empty"),
        ("x > > 1", "'>' was not expected at character 5: '> 1'"),
        ("= 1", "'=' was not expected at character 1"),
        ("(x > 1", "'(' is not closed"),
        ("x > 1)", "')' was not expected at character 6"),
        ("x in (1,)", "')' was not expected at character 9"),
        ("f(,1)", "',' was not expected at character 3"),
        ("x, y", "',' was not expected at character 2"),
        ("a[0) = 1", "')' was not expected at character 4"),
        ("x > 'y", "the quote is not closed that begins at character 5"),
        ("`x > 1", "the quote is not closed that begins at character 1"),
        ("x + / y", "'/' was not expected at character 5"),
    ],
)
def test_what_is_surely_no_expression(text: str, says: str) -> None:
    assert says in malformed_part(text)


@pytest.mark.parametrize(
    "text",
    [
        "x > 1 and (y or not z)",
        "count(*) > count(distinct *)",
        "struct(t.*) is null",
        "cast(a as array<map<int,array<int>>>) = b",
        "a::map<int,array<int>> is null",
        "a << 1 >> 2 >>> 3",
        "exists(a, x -> x > -1)",
        "f(a => 1) = g()",
        "a !> 1 or ! b",
        "a like '%\\'' and c = 'it''s' or r'\\' = d",
        "m['k'][0].b = 1e-5",
        "a > .5 and b < 1. and - - 1 > 0",
        "interval '1' day > b and date'2020-01-01' <=> c",
        "case when a then b end",
        "a:b.c = :name",
        "x > -- and the rest",
        "x > /* what */",
        # Malformed, but with words alone.
        "x > 1 and",
    ],
)
def test_what_may_be_an_expression(text: str) -> None:
    """Spark parses all of these but the last three."""
    assert not malformed_part(text)


def test_a_table_gets_no_constraint_that_is_none(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    (refused,) = table.fold(table.propose(PROTOCOL, metadata(**{CHECK: "x >"}), read=0), log=OTHER_ID)
    assert isinstance(refused, Invalid)
    assert "the constraint positive is no expression of SQL, it ends after '>'" in refused.message
    assert refused.hint
    # Not understood here, so its writers have to know it.
    given = {CHECK: "aggregate(array(x), 0, (a, b) -> a + b) > 0"}
    (accepted,) = table.fold(table.propose(PROTOCOL, metadata(**given), read=1), log=THIRD_ID)
    assert isinstance(accepted, Committed)


def test_a_constraint_that_another_client_has_set_is_kept(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.begin()
    commit = table.path / "_delta_log" / f"{1:020}.json"
    commit.write_bytes(table.propose(PROTOCOL, metadata(**{CHECK: "x >"})).delta.actions)
    changed = table.propose(metadata(**{CHECK: "x >", "mine": "1"}), read=1)
    assert table.fold(changed, log=OTHER_ID) == [Committed(2)]
