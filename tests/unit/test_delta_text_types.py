"""`char(n)` and `varchar(n)`: how their types are read, and which files their values can be in."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from lakefold_table.columns.text_types import TextType, in_full, text_type
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.predicates.file_values import FileValues
from lakefold_table.delta.predicates.matching import FileFilter
from lakefold_table.delta.table_features.text_types import KEY, text_types

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH = 4
CHARACTERS = "\x01 !ab"
OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda text, other: text == other,
    "!=": lambda text, other: text != other,
    "<": lambda text, other: text < other,
    "<=": lambda text, other: text <= other,
    ">": lambda text, other: text > other,
    ">=": lambda text, other: text >= other,
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("char(3)", {(): TextType(3, is_padded=True)}),
        ("varchar( 20 )", {(): TextType(20, is_padded=False)}),
        (
            "struct<a:char(2),b:array<varchar(2)>,c:decimal(5,2),`d:e`:map<char(1),struct<>>>",
            {
                ("a",): TextType(2, is_padded=True),
                ("b", "element"): TextType(2, is_padded=False),
                ("d:e", "key"): TextType(1, is_padded=True),
            },
        ),
        ("map<int,varchar(3)>", {("value",): TextType(3, is_padded=False)}),
        ("string", {}),
        ("interval day to second", {}),
        ("char(0)", None),
        ("char", None),
        ("varchar(9999999999)", None),
        ("char(16385)", None),
        ("varchar(16385)", {(): TextType(16385, is_padded=False)}),
        ("array<char(2)", None),
        ("list<char(2)>", None),
        ("struct<a char(2)>", None),
        ("char(2)>", None),
        ("", None),
        ("array<" * 5_000 + "int" + ">" * 5_000, None),
    ],
)
def test_a_type_is_read_with_all_that_is_in_it(
    name: str, expected: dict[tuple[str, ...], TextType] | None
) -> None:
    assert text_types(name) == expected


def test_a_type_has_its_name() -> None:
    for name in ("char(3)", "varchar(20)"):
        known = text_type(name)
        assert known is not None
        assert known.name == name


def metadata(kind: str, *partitions: str) -> TableMetadata:
    field = {"name": "c", "type": "string", "nullable": True, "metadata": {KEY: kind}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    return TableMetadata("id", schema, partition_columns=partitions)


def file(values: list[str]) -> AddFile:
    stats = {"numRecords": 9, "minValues": {"c": min(values)}, "maxValues": {"c": max(values)}}
    return AddFile("a", {}, 1, 1, data_change=True, stats=json.dumps(stats))


def texts(chance: random.Random) -> str:
    return "".join(chance.choices(CHARACTERS, k=chance.randrange(LENGTH + 1)))


def test_a_file_is_left_out_only_if_no_value_can_match_with_any_spaces() -> None:
    """Clients compare values and constants as they are, or both with their spaces."""
    chance, decided = random.Random(7), 0
    filters = metadata("char(4)")
    for _ in range(3000):
        values, constant = [texts(chance) for _ in range(2)], texts(chance)
        operator, compares = chance.choice(list(OPERATORS.items()))
        met = any(
            compares(value, constant) or compares(in_full(value, LENGTH), in_full(constant, LENGTH))
            for value in values
        )
        may = FileFilter([f"c {operator} '{constant}'"], filters).may_match(file(values))
        assert may or not met, (values, operator, constant)
        decided += not may
    assert decided > 200


def test_a_value_of_a_partition_is_found_with_and_without_its_spaces() -> None:
    for stored in ("ab", "ab  "):
        added = AddFile("a", {"c": stored}, 1, 1, data_change=True)
        for constant, may in (("ab", True), ("ab  ", True), ("a", False), ("abc", False)):
            assert FileFilter([f"c = '{constant}'"], metadata("char(4)", "c")).may_match(added) is may
    varchar = FileFilter(["c = 'ab '"], metadata("varchar(4)", "c"))
    assert not varchar.may_match(AddFile("a", {"c": "ab"}, 1, 1, data_change=True))


def test_bounds_include_values_with_their_spaces() -> None:
    chance = random.Random(3)
    for _ in range(1000):
        stored = texts(chance)
        least, most = FileValues(file([stored]), {"c": "char(4)"}, ()).bounds("c") or ("", "")
        assert least <= stored <= in_full(stored, LENGTH) <= most
