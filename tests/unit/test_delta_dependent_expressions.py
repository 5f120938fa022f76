"""Columns that constraints and generated columns use keep their types."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.table_features.dependent_expressions import (
    DependentExpression,
    adds_check,
    dependent_fault,
)
from lakefold_table.entry import Committed, Invalid, Rejected
from tests.delta_logs.actions import Members, data_file, metadata, protocol_with, remove
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import log_id

if TYPE_CHECKING:
    from pathlib import Path

FEATURES = ["typeWidening", "checkConstraints", "generatedColumns", "invariants"]
ON = {"delta.enableTypeWidening": "true"}
GENERATED = {"delta.generationExpression": "x * 2"}


def column(name: str, kind: Any, *changes: tuple[str, str], **keys: object) -> dict[str, Any]:  # noqa: ANN401 - a JSON value
    listed = [{"fromType": old, "toType": new} for old, new in changes]
    more = {"delta.typeChanges": listed} if listed else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": {**keys, **more}}


def described(*columns: dict[str, Any], **configuration: str) -> Members:
    return metadata(json.dumps({"type": "struct", "fields": list(columns)}), **{**ON, **configuration})


def begun(path: Path, *columns: dict[str, Any], **configuration: str) -> Table:
    """Version 1 has a file."""
    table = Table(path)
    created = table.propose(protocol_with(*FEATURES), described(*columns, **configuration))
    assert table.fold(created, log=log_id(1)) == [Committed(0)]
    (stored,) = table.fold(table.propose(data_file(table.path, "a.parquet", 1)), log=log_id(2))
    assert isinstance(stored, Committed), stored
    return table


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("x > 0", True),
        ("`X` > 0", True),
        ("abs(x) > 0", True),
        ("y IN (1, x)", True),
        ("coalesce(y, x.a[0].b) = 1", True),
        ("y > 0", False),
        ("y = 'x'", False),
        ('y = "x\\" x"', False),
        ("y = 'it\\'s x' AND z", False),
        ("s.x > 0", False),
        ("s . `x` > 0", False),
        ("m['k'].x > 0", False),
        ("x(y) > 0", False),
        ("y > x '2026-01-01'", False),
        ("y > 1x", False),
        ("y = 'x", True),
        ("xx > 0 OR `a x` = 1", False),
    ],
)
def test_an_expression_uses_the_columns_that_it_names(text: str, used: bool) -> None:  # noqa: FBT001 - the test names it
    assert DependentExpression("c", text).uses(("x",)) is used


@pytest.mark.parametrize(
    ("text", "name", "used"),
    [
        ("cast(ts AS date) > '2026-01-01'", "date", False),
        ("try_cast(ts as\n`date`) > date", "date", True),
        ("cast(date AS int) > 0", "date", True),
        ("cast(x AS int) > int", "int", True),
        ("x::date IS NULL", "date", False),
        ("date::int > 0", "date", True),
        ("cast(x AS struct<a: int, date: array<decimal(10, 2)>>) IS NULL", "date", False),
        ("size(cast(x AS array<int>)) < date AND y > 1", "date", True),
        ("cast(x AS int) < date AND y > 1", "date", True),
        ("alias > 0 AND day > 0", "day", True),
        ("timestampadd(DAY, 1, ts) > y", "day", False),
        ("timestampadd(DAY, day, ts) > y", "day", True),
        ("TIMESTAMPDIFF (year, a, b) < 3", "year", False),
        ("dateadd(day, 1, ts) > y", "day", False),
        ("date_add(day, 1) > y", "day", True),
        ("datediff(day, ts) IN (1, 2)", "day", True),
        ("datediff(day, ',') > y", "day", True),
        ("date_diff(DAY, a, b) > 3", "day", False),
        ("extract(day FROM ts) > 3", "day", False),
        ("extract(year FROM day) > 3", "day", True),
        ("ts > y + INTERVAL 1 DAY", "day", False),
        ("ts > y + INTERVAL '1 2' DAY TO HOUR", "hour", False),
        ("ts > y + interval 3 days 2 hours", "hours", False),
        ("ts > y + 1 AND day > 3", "day", True),
        ("ts > y + 1 + day", "day", True),
        ("year(day) > 3", "day", True),
        ("year(day) > 3", "year", False),
        ("user = 'me'", "user", True),
    ],
)
def test_types_and_units_are_no_columns(text: str, name: str, used: bool) -> None:  # noqa: FBT001 - as above
    assert DependentExpression("c", text).uses((name,)) is used


@pytest.mark.parametrize(
    "part", ["as a<", "as a<(1 ", "date_add(day,", "'1' day to ", "1 day ", ":: ", "as `"]
)
def test_an_expression_of_hostile_parts_is_read_in_linear_time(part: str) -> None:
    text = part * (8_000 // len(part))
    started = time.process_time()
    DependentExpression("c", text).uses(("x",))
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(("text", "used"), [("s.a > 0", True), ("s IS NULL", True), ("S.B > 0", False)])
def test_a_field_is_used_with_the_struct_that_it_is_in(text: str, used: bool) -> None:  # noqa: FBT001 - the test names it
    assert DependentExpression("c", text).uses(("s", "a")) is used


def test_an_expression_that_is_too_long_to_be_read_may_use_any_column() -> None:
    hostile = DependentExpression("c", '\\"' * 500_000)
    assert hostile.uses(("x",))
    assert not hostile.unknown(["y"])


@pytest.mark.parametrize("text", ['"' + '\\"' * 4_000, "'\\'" * 2_000 + "\\", "`" * 8_001, "a . " * 2_000])
def test_an_expression_is_read_in_linear_time_and_once(text: str) -> None:
    begun = time.process_time()
    expression = DependentExpression("c", text)
    answers = {expression.uses((f"x{number}",)) for number in range(2_000)}
    assert answers == {text.startswith(('"', "'"))}, "quotes that don't end may hide any column"
    assert time.process_time() - begun < 1


WIDER = ("integer", "long")
CHECKED = {"delta.constraints.positive": "x > 0"}


@pytest.mark.parametrize(
    ("before", "configuration", "after", "says"),
    [
        (
            [column("x", "integer")],
            CHECKED,
            [column("x", "long", WIDER)],
            "can't get the type long instead of integer: the constraint positive uses it, which is 'x > 0'",
        ),
        (
            [column("x", "integer"), column("y", "long", **GENERATED)],
            {},
            [column("x", "long", WIDER), column("y", "long", **GENERATED)],
            "the generated column y uses it, which is 'x * 2'",
        ),
        (
            [column("x", "integer"), column("y", "integer")],
            CHECKED,
            [column("x", "integer"), column("y", "long", WIDER)],
            "",
        ),
    ],
    ids=["a constraint", "a generated column", "another column"],
)
def test_the_type_of_a_column_stays_while_an_expression_uses_it(
    tmp_path: Path,
    before: list[dict[str, Any]],
    configuration: dict[str, str],
    after: list[dict[str, Any]],
    says: str,
) -> None:
    table = begun(tmp_path / "t", *before, **configuration)
    (result,) = table.fold(table.propose(described(*after, **configuration), read=1), log=log_id(3))
    if not says:
        assert isinstance(result, Committed), result
        return
    assert isinstance(result, Invalid), result
    assert says in result.message
    assert "drop what uses it" in result.hint
    # The constraint goes with the change of the type, or all rows do.
    if configuration:
        free = table.propose(described(*after), read=2)
    else:
        free = table.propose(described(*after), remove("a.parquet"), read=2, read_whole_table=True)
    (result,) = table.fold(free, log=log_id(4))
    assert isinstance(result, Committed), result


def test_an_expression_that_is_new_is_about_the_new_type(tmp_path: Path) -> None:
    table = begun(tmp_path / "t", column("x", "integer"))
    (result,) = table.fold(
        table.propose(described(column("x", "long", WIDER), **CHECKED), read=1), log=log_id(3)
    )
    assert isinstance(result, Committed), result


def invariant(text: str) -> dict[str, Any]:
    return column("x", "long", **{"delta.invariants": json.dumps({"expression": {"expression": text}})})


@pytest.mark.parametrize(
    ("action", "is_check"),
    [
        (described(column("x", "long"), **CHECKED), True),
        (described(invariant("x > 0")), True),
        (described(column("x", "long"), note="1"), False),
    ],
    ids=["a constraint", "an invariant", "a property"],
)
@pytest.mark.parametrize("level", ["serializable", "write-serializable"])
def test_a_check_is_not_added_over_rows_that_its_writer_has_not_seen(
    tmp_path: Path, action: Members, level: str, *, is_check: bool
) -> None:
    table = begun(tmp_path / "t", column("x", "long"), **{"delta.isolationLevel": "WriteSerializable"})
    action["metaData"]["configuration"] |= {"delta.isolationLevel": "WriteSerializable"}
    file = data_file(table.path, "b.parquet", -1)
    late = table.propose(action, read=1, isolation=level)
    # Also if the rows come shortly before, and would share the version.
    added, result = table.fold(table.propose(file), late, log=log_id(3))
    assert isinstance(added, Committed)
    if not is_check:
        assert isinstance(result, Committed), result
        return
    assert isinstance(result, Rejected), result
    assert result.conflict.keys == ("b.parquet",)
    assert isinstance(table.fold(table.propose(action, read=3), log=log_id(4))[0], Committed)


def test_a_check_is_added_beside_rows_that_are_gone(tmp_path: Path) -> None:
    table = begun(tmp_path / "t", column("x", "long"))
    table.fold(table.propose(data_file(table.path, "b.parquet", -1)), log=log_id(3))
    table.fold(table.propose(remove("a.parquet"), remove("b.parquet"), read=2), log=log_id(4))
    checked = described(column("x", "long"), **CHECKED)
    (result,) = table.fold(table.propose(checked, read=1), log=log_id(5))
    assert isinstance(result, Committed), result


def mapped(name: str, text: str | None) -> Members:
    """A column in a table with column mapping."""
    keys: dict[str, object] = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    if text is not None:
        keys["delta.invariants"] = json.dumps({"expression": {"expression": text}})
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    return described(column(name, "long", **keys), **configuration)


@pytest.mark.parametrize(
    ("before", "after", "adds"),
    [
        (mapped("x", "1 > 0"), mapped("y", "1 > 0"), False),
        (mapped("x", "1 > 0"), mapped("y", "1 > 1"), True),
        (mapped("x", None), mapped("x", "1 > 0"), True),
        (mapped("x", "1 > 0"), mapped("x", None), False),
        (described(column("x", "long")), described(invariant("x > 0")), True),
        (described(invariant("x > 0")), described(invariant("x > 0"), **CHECKED), True),
        (described(invariant("x > 0"), **CHECKED), described(invariant("x > 0"), **CHECKED), False),
        (described(invariant("x > 0"), **CHECKED), described(column("x", "long")), False),
    ],
)
def test_a_column_that_is_renamed_keeps_its_invariant(before: Members, after: Members, *, adds: bool) -> None:
    def parsed(action: Members) -> TableMetadata:
        made = action["metaData"]
        return TableMetadata(made["id"], made["schemaString"], configuration=made["configuration"])

    assert adds_check(parsed(before), parsed(after)) is adds


@pytest.mark.parametrize(("name", "is_refused"), [("date", False), ("day", False), ("ts", True)])
@pytest.mark.parametrize("new", ["another", None], ids=["renamed", "dropped"])
def test_a_column_with_the_name_of_a_type_or_unit_goes(
    name: str, new: str | None, *, is_refused: bool
) -> None:
    checked = {"delta.constraints.late": "cast(ts AS date) < timestampadd(DAY, 1, ts)"}
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}

    def columns(*names: str | None) -> Members:
        given = [
            column(
                each,
                "timestamp",
                **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"},
            )
            for number, each in enumerate(names, 1)
            if each is not None
        ]
        return described(*given, **checked, **mapping)

    names = ("date", "day", "ts")
    before, after = (
        TableMetadata("id", action["metaData"]["schemaString"], configuration={**checked, **mapping})
        for action in (columns(*names), columns(*(new if each == name else each for each in names)))
    )
    assert (dependent_fault(before, after) is not None) is is_refused
