"""A plain installation: what needs more names the extra that has it. Reading a Delta table needs no extra."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakefold

if TYPE_CHECKING:
    from pathlib import Path

EXTRAS: Final = (
    "boto3",
    "confluent_kafka",
    "duckdb",
    "lance",
    "obstore",
    "opentelemetry",
    "prometheus_client",
    "pyspark",
)
PROGRAM: Final = """
import sys
for package in {missing!r}:
    sys.modules[package] = None
import pyarrow as pa
import lakefold
rows = pa.table({{"a": [1]}})
try:
    print({expression})
except lakefold.LakefoldError as error:
    print(f"{{error.message}}: {{error.hint}}")
"""
NO_KAFKA: Final = "confluent_kafka is not installed: pip install 'lakefold[kafka]'"
NO_PYLANCE: Final = (
    "lance is not installed: pip install 'lakefold[lance]' (the committer's image leaves pylance out)"
)


def printed(expression: str, folder: Path, missing: tuple[str, ...] = EXTRAS) -> str:
    """Returns what a process prints that lacks these packages."""
    program = PROGRAM.format(missing=missing, expression=expression)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True, timeout=150
    )
    return ended.stdout.strip()


@pytest.mark.parametrize(
    "call",
    [
        "lakefold.append('t.lance', rows)",
        "lakefold.append('t', rows, format='delta')",
        "lakefold.upsert('t.lance', rows, keys=['a'])",
        "lakefold.delete('t.lance', where='a = 1')",
        "lakefold.apply_changes('t.lance', rows, keys='a', operation_column='op')",
        "lakefold.Writer('t.lance', app_id='x')",
        "lakefold.compact('t.lance')",
        "lakefold.overwrite('t.lance', rows)",
        "lakefold.create('n', rows.schema, format='delta')",
        "lakefold.alter('t.lance', add={'b': 'int64'})",
        "lakefold.tag('t.lance', 'x')",
        "lakefold.branch('t.lance', 'x')",
        "lakefold.restore('t.lance', version=1)",
        "lakefold.promote('t.lance', 'x')",
        "lakefold.revert('t.lance', ['x:1'])",
        "lakefold.redrive()",
        "lakefold.explain('t.lance', 'x:1')",
        "lakefold.status()",
        "[*lakefold.tail('t.lance', follow=True, wake=lakefold.OutcomesTopic('localhost:1'))]",
    ],
)
def test_what_needs_the_log_names_the_extra_that_has_its_client(call: str, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    assert printed(call, tmp_path) == NO_KAFKA


def test_each_function_is_called_here() -> None:
    functions = {name for name in lakefold.__all__ if inspect.isfunction(getattr(lakefold, name))}
    text = inspect.getsource(sys.modules[__name__])
    assert {name for name in functions if f"lakefold.{name}(" not in text} == set()


def test_a_catalog_names_the_extra_that_has_its_interface(tmp_path: Path) -> None:
    lacking = ("lance_namespace", "waitress")
    assert printed("lakefold.catalog('.')", tmp_path, lacking) == (
        "lance_namespace is not installed: pip install 'lakefold[catalog]'"
    )


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("lakefold.open('t.lance').count_rows()", "1"),
        ("len([*lakefold.tail('t.lance', start='earliest')])", "1"),
        ("[row.version for row in lakefold.history('t.lance')]", "[1]"),
        ("lakefold.refs('t.lance')['tags']", "[]"),
        ("lakefold.consumers('t.lance')", "[]"),
        ("lakefold.diff('t.lance', 1, 1).columns_added", "()"),
        ("lakefold.cleanup('t.lance').versions", "0"),
        ("lakefold.open('t.lance').to_arrow()", NO_PYLANCE),
        ("lakefold.open('t.lance').count_rows(filter='a > 0')", NO_PYLANCE),
        ("[change.inserted() for change in lakefold.tail('t.lance', start='earliest')]", NO_PYLANCE),
        ("lakefold.changes('t.lance', 0).read_all()", NO_PYLANCE),
    ],
)
def test_the_rows_of_a_lance_table_need_pylance_and_its_versions_do_not(
    call: str, shown: str, tmp_path: Path
) -> None:
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    assert printed(call, tmp_path) == shown


@pytest.mark.parametrize(
    "call",
    [
        "lakefold.open('t').to_arrow(filter='a > 0').num_rows",
        "lakefold.open('t').take([0]).num_rows",
        "sum(change.inserted().num_rows for change in lakefold.tail('t', start='earliest'))",
        "lakefold.changes('t', -1).read_all().num_rows",
    ],
)
def test_a_delta_table_is_read_without_any_extra(call: str, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    assert printed(call, tmp_path) == "1"
