"""Columns that constraints and generated columns use keep their types."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from lakefold_table.delta.table_features.dependent_expressions import DependentExpression
from lakefold_table.entry import Committed, Invalid, Rejected
from tests.delta_logs.actions import Members, data_file, metadata, remove
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
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": FEATURES[:1],
        "writerFeatures": FEATURES,
    }
    created = table.propose({"protocol": protocol}, described(*columns, **configuration))
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
