"""Errors name options as their user gave them: those of Spark, of verbs, of Python's functions."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from lakefold.cli import run
from lakefold.console.options import verb
from lakefold.spark_format import LakefoldFormat
from lakefold.writing.options import write_settings
from lakefold_ingest.cdc.change_format import change_format
from lakefold_ingest.cdc.events import read_rows
from lakefold_ingest.merge.batch_keys import BatchKeys, check_orders
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.operations.keyed_parts import PartFault
from lakefold_ingest.options.write_options import SPARK_NAMES
from lakefold_ingest.rows.row_faults import BadRowsError, RowFaults
from lakefold_ingest.writer.batching import BatchLimits
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    LakefoldError,
    OptionName,
    OutnumberedError,
    options_named,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DELETE = {"path": "memory://named", "writeMode": "delete", "keys": "id", "orderBy": "at"}
BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
UPSERT = {"path": "memory://named", "writeMode": "upsert", "keys": "id"} | BROKERS


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (DELETE, "orderBy"),
        (
            UPSERT | {"whenNotMatchedBySourceSet": "b=1"},
            "whenNotMatchedBySourceSet and whenNotMatchedBySourceUpdate",
        ),
        (UPSERT | {"badRecordsColumns": "a"}, "badRecordsColumns"),
    ],
)
def test_a_write_of_spark_names_its_options(options: dict[str, str], names: str) -> None:
    schema = StructType([StructField("id", LongType())])
    with pytest.raises(InvalidError) as raised:
        LakefoldFormat(options).writer(schema, overwrite=False)
    assert raised.value.where == names
    assert "_" not in raised.value.hint


def test_a_function_names_its_parameters() -> None:
    with pytest.raises(InvalidError) as raised:
        merge_of("delete", "id", "at")
    assert raised.value.where == "order_by"


def test_the_mode_of_other_clients_is_refused_with_what_replaces_rows() -> None:
    with pytest.raises(InvalidError) as raised:
        write_settings("memory://named", {"mode": "overwrite"})  # type: ignore[typeddict-unknown-key] # the point
    assert "lakefold.overwrite replaces them" in raised.value.hint
    with pytest.raises(InvalidError) as raised:
        write_settings("memory://named", {"no_such_name": 1})  # type: ignore[typeddict-unknown-key] # as above
    assert raised.value.hint == "help(lakefold.WriteOptions) lists the options"


def test_a_verb_names_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}")
    options = ["--keys", "id", "--update-columns", "a", "--when-matched-delete", "true"]
    assert run(["upsert", str(tmp_path / "t"), str(rows), *options]) == 2
    said = capsys.readouterr().err
    assert "--update-columns and --when-matched-update: one of them has no meaning" in said
    assert "when_" not in said


def test_a_verb_says_of_an_option_that_it_lacks_where_it_is() -> None:
    @verb()
    @click.option("--order-by")
    def some(order_by: str) -> None:
        names = (OptionName("order_by"), " or ", OptionName("merge_schema"))
        raise InvalidError(("give ", *names), hint=order_by)

    with pytest.raises(InvalidError) as raised:
        some.main(["--order-by", "a"], standalone_mode=False)
    assert raised.value.message == "give --order-by or merge_schema (in Python)"


def test_the_cause_of_an_error_names_options_as_the_error_does() -> None:
    cause = InvalidError((OptionName("order_by"), " has no value"))
    with pytest.raises(InvalidError, match="a batch fails") as raised, options_named(SPARK_NAMES):
        raise InvalidError("a batch fails") from cause
    assert str(raised.value.__cause__) == "orderBy has no value"


def test_only_options_are_named_and_not_columns_of_the_same_name() -> None:
    with pytest.raises(InvalidError) as raised, options_named(SPARK_NAMES):
        check_orders(pa.schema({"order_by": pa.list_(pa.int64())}))
    assert raised.value.message == "rows can't be ordered by order_by, which is list<item: int64>"
    assert raised.value.where == "orderBy"


def test_a_write_of_spark_names_the_option_of_a_missing_column() -> None:
    rows = pa.table({"id": [1]})
    with pytest.raises(InvalidError) as raised, options_named(SPARK_NAMES):
        read_rows(rows, change_format("id", operation_column="op"), RowFaults(rows.num_rows))
    assert raised.value.where == SPARK_NAMES["operation_column"] != "operation_column"


@pytest.mark.parametrize("name", ["max_rows", "max_bytes", "max_delay_s"])
def test_a_limit_of_a_writer_is_a_number(name: str) -> None:
    limits: dict[str, Any] = {name: float("nan")}
    with pytest.raises(InvalidError):
        replace(BatchLimits(), **limits)


def test_a_fault_of_a_task_names_options_as_the_user_of_its_driver() -> None:
    rows = pa.table({"id": pa.array([1, 1], pa.int64())})
    with pytest.raises(InvalidError) as raised:
        BatchKeys(rows, "memory://named").check_unique()
    fault = pickle.loads(pickle.dumps(PartFault.of(raised.value)))  # noqa: S301 - as Spark hands it on
    with pytest.raises(InvalidError, match="in orderBy: the last row counts"), options_named(SPARK_NAMES):
        raise fault.error()
    with pytest.raises(InvalidError, match="in order_by: the last row counts"):
        raise PartFault.read(fault.text).error()


@pytest.mark.parametrize(
    "error",
    [
        InvalidError(("leave ", OptionName("order_by"), " out"), where=OptionName("order_by"), hint="a hint"),
        BadRowsError("b", columns=["a"], rows=2, examples=[{"a": 1}], hint=(OptionName("bad_records"),)),
        OutnumberedError("another has more", generation=3),
        DamagedError("it ends early", where="a.lance"),
    ],
)
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],  # noqa: S301 - as process pools do
)
def test_an_error_is_the_same_in_another_process(
    error: LakefoldError, copied: Callable[[LakefoldError], LakefoldError]
) -> None:
    with pytest.raises(type(error)), options_named(SPARK_NAMES):
        raise error
    error.add_note("a note")
    other = copied(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert "_" not in str(other)
    assert vars(other) == vars(error)


PACKAGES = ("table", "log", "ingest", "reader", "committer", "maintenance")
OF_SPARK = ("spark", "options")
"""The folders whose errors only users of Spark get, or that say how options are called."""


def sentences(path: Path) -> Iterator[str]:
    """The texts of a module that may be shown: neither docstrings nor names of options."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            others |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            yield node.value


def test_no_shared_text_names_an_option_as_one_surface_does() -> None:
    """Python, Spark and the verbs share these modules: they name options by `OptionName`."""
    of_spark = {name for name in SPARK_NAMES.values() if re.fullmatch("[a-z]+[A-Z][A-Za-z]*", name)}
    root = Path(__file__).parents[2]
    wrong = [
        f"{path.relative_to(root)}: {text}"
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        if not {*path.relative_to(root).parts} & {*OF_SPARK}
        for text in sentences(path)
        if " " in text and (of_spark & {*re.findall(r"\w+", text)} or re.search(r"lakefold\.[a-z_]+\(", text))
    ]
    assert wrong == []


def test_no_shared_text_names_a_flag_alone() -> None:
    """A flag is that of a command which is named as well, or the option is named as in Python, too."""
    root = Path(__file__).parents[2]
    programs = {"spark", "options"}
    wrong = [
        f"{path.relative_to(root)}: {text}"
        for package in ("table", "ingest", "reader", "maintenance")
        for path in (root / package).rglob("*.py")
        if not {*path.relative_to(root).parts} & programs
        for text in sentences(path)
        if " " in text and re.search(r"(?<![\w-])--[a-z]", text)
        if not re.search(r"lakefold [a-z]+|\baws |\w=", text)
    ]
    assert wrong == []
