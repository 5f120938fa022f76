"""The views on a Lance schema, and what they refuse."""

import tracemalloc

import pytest

from lakefold_protos.lance.file_pb2 import Field
from lakefold_table.errors import DamagedError
from lakefold_table.lance.schemas.schema import (
    TOP,
    Identity,
    by_id,
    changed_ids,
    check_structure,
    children,
    field_ids,
    identities,
    paths,
)


def field(number: int, name: str, kind: str = "int32", parent: int = TOP) -> Field:
    return Field(id=number, name=name, logical_type=kind, parent_id=parent)


TABLE = [
    field(0, "a"),
    field(1, "s", "struct"),
    field(2, "x.y", "int64", 1),
    field(3, "l", "list.struct", 1),
    field(4, "item", "struct", 3),
    field(5, "back`tick", "string", 4),
    field(9, "z"),
]


def test_views() -> None:
    check_structure(TABLE)
    assert field_ids(TABLE) == [0, 1, 2, 3, 4, 5, 9]
    assert by_id(TABLE)[9].name == "z"
    assert {parent: field_ids(below) for parent, below in children(TABLE).items()} == {
        TOP: [0, 1, 9],
        1: [2, 3],
        3: [4],
        4: [5],
    }


def test_a_name_with_a_dot_is_put_in_backticks() -> None:
    assert paths(TABLE)[2] == "s.`x.y`"
    assert paths(TABLE)[5] == "s.l.item.`back``tick`"


def test_an_id_means_name_type_and_all_parents() -> None:
    assert identities(TABLE)[5] == Identity(
        "back`tick", "string", (("s", "struct"), ("l", "list.struct"), ("item", "struct"))
    )


@pytest.mark.parametrize(
    ("number", "change", "changed"),
    [
        (0, field(0, "b"), [0]),
        (0, field(0, "a", "int64"), [0]),
        (1, field(1, "t", "struct"), [1, 2, 3, 4, 5]),
        (3, field(3, "l", "large_list.struct", 1), [3, 4, 5]),
        (6, field(9, "z"), []),
        (6, field(10, "z"), [9, 10]),
    ],
)
def test_ids_that_mean_other_fields_now(number: int, change: Field, changed: list[int]) -> None:
    after = [*TABLE[:number], change, *TABLE[number + 1 :]]
    assert changed_ids(identities(TABLE), identities(after), [*field_ids(TABLE), 10, 77, -2]) == changed


def test_the_same_leaf_below_a_list_is_another_field_than_below_a_struct() -> None:
    before = [field(0, "s", "struct"), field(1, "x", parent=0)]
    after = [field(0, "s", "list"), field(1, "x", parent=0)]
    assert changed_ids(identities(before), identities(after), [1]) == [1]


ENTRIES = [field(0, "m", "map"), field(1, "entries", "struct", 0), field(2, "key", parent=1)]


@pytest.mark.parametrize(
    ("fields", "where", "fault"),
    [
        ([field(0, "a"), field(0, "b")], "b", "is in the schema twice"),
        ([field(-1, "a")], "a", "negative"),
        ([field(0, "a", parent=7)], "a", "not in the schema"),
        ([field(0, "a", "struct", 0)], "a", "before its parent"),
        ([field(0, "a", "struct", 1), field(1, "b", "struct", 0)], "a", "form a cycle"),
        ([field(1, "x", parent=0), field(0, "a", "struct")], "x", "before its parent"),
        ([field(0, "l", "list")], "l", "0 children"),
        ([field(0, "l", "large_list"), field(1, "i", parent=0), field(2, "j", parent=0)], "l", "2 children"),
        ([field(0, "l", "list.struct"), field(1, "i", parent=0)], "l", "instead of one struct"),
        ([field(0, "l", "fixed_size_list:struct:3")], "l", "instead of one struct"),
        ([field(0, "m", "map"), field(1, "i", parent=0)], "m", "instead of one struct"),
        (ENTRIES, "m", "entries of 1 fields"),
        ([field(0, "a"), field(1, "x", parent=0)], "a", "not a nested type"),
        (
            [field(0, "s", "struct"), field(1, "t", "time32:s", 0), field(2, "x", parent=1)],
            "s.t",
            "not a nested type",
        ),
    ],
)
def test_a_list_of_fields_that_is_no_schema(fields: list[Field], where: str, fault: str) -> None:
    with pytest.raises(DamagedError, match=fault) as error:
        check_structure(fields)
    assert error.value.where == where


def test_what_is_not_known_is_not_judged() -> None:
    check_structure([field(0, "a", "quaternion"), field(1, "i", parent=0), field(2, "e", "struct")])
    check_structure([*ENTRIES, field(3, "value", parent=1)])


def test_a_long_name_above_many_fields_costs_no_memory() -> None:
    """The dotted names of all of them together would be gigabytes."""
    schema = [field(0, "n" * 400_000, "struct")]
    schema += [field(number, f"c{number}", parent=0) for number in range(1, 10_000)]
    tracemalloc.start()
    try:
        check_structure(schema)
        with pytest.raises(DamagedError):
            check_structure([*schema, field(10_000, "wrong", "list", 0)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000
