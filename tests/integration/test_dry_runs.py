"""Batches that are tried: what they would do is said, and nothing is sent, changed or left behind.

Promise: dry-runs-change-nothing (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefold
from lakefold import cli
from tests.integration.test_revert import in_environment, people

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold import WriteOptions

FORMATS = pytest.mark.parametrize("format_name", ["lance", "delta", "delta-vectors", "delta-feed"])
PROPERTIES = {
    "delta-vectors": {"delta.enableDeletionVectors": True},
    "delta-feed": {"delta.enableChangeDataFeed": True},
}


def files(path: Path) -> set[str]:
    """The files of a table."""
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


@pytest.fixture
def table(tmp_path: Path, options: WriteOptions, format_name: str) -> Path:
    """A table with six rows, of one batch with a key."""
    path = tmp_path / "people"
    begun: WriteOptions = {**options, "format": format_name.partition("-")[0]}
    if format_name in PROPERTIES:
        begun["table_properties"] = PROPERTIES[format_name]
    lakefold.append(path, people(*range(6)), app_id="loader", batch_id=1, **begun)
    return path


@FORMATS
def test_a_dry_run_says_what_a_batch_would_do_and_changes_nothing(table: Path, options: WriteOptions) -> None:
    dry: WriteOptions = {**options, "dry_run": True}
    changes = pa.table({"id": [0, 7], "name": ["a", "b"], "op": ["delete", "insert"]})
    tried: dict[str, Callable[..., Any]] = {
        "append": lambda **given: lakefold.append(table, people(9, 10), **given),
        "upsert": lambda **given: lakefold.upsert(table, people(1, 20, name="new"), keys="id", **given),
        "delete": lambda **given: lakefold.delete(table, where="id > 3", **given),
        "apply_changes": lambda **given: lakefold.apply_changes(
            table, changes, keys="id", operation_column="op", **given
        ),
        "overwrite": lambda **given: lakefold.overwrite(table, people(30), where="id = 30", **given),
        "alter": lambda **given: lakefold.alter(table, add={"age": "int"}, **given),
    }
    for name, put in tried.items():
        before, version = files(table), lakefold.open(table).version
        planned = put(**dry)
        assert planned.kind == "planned", name
        assert files(table) == before, name
        assert lakefold.open(table).version == version
        done = put(**options)
        same = ("version", "rows_added", "rows_deleted")
        assert [getattr(planned, each) for each in same] == [getattr(done, each) for each in same], name


@FORMATS
def test_a_dry_run_says_what_would_be_refused_or_is_there_already(
    table: Path, options: WriteOptions, format_name: str
) -> None:
    del format_name
    dry: WriteOptions = {**options, "dry_run": True}
    wider: WriteOptions = {**dry, "merge_schema": True}
    assert lakefold.append(table, people(*range(6)), app_id="loader", batch_id=1, **dry).kind == "duplicate"
    with pytest.raises(lakefold.ReusedKeyError):
        lakefold.append(table, people(7), app_id="loader", batch_id=1, **dry)
    assert lakefold.delete(table, where="id = 99", **dry).kind == "empty"
    with pytest.raises(lakefold.InvalidError, match="other"):
        lakefold.append(table, pa.table({"other": [1]}), **dry)
    with pytest.raises(lakefold.InvalidError, match="adds no columns"):
        lakefold.append(table, people(1), **wider)
    with pytest.raises(lakefold.NotATableError, match="there is no table to try it on"):
        lakefold.append(table.parent / "none", people(1), **dry)
    with pytest.raises(lakefold.InvalidError, match="it can only write"):
        lakefold.Writer(table, **dry).append(people(1)).result()
    assert not (table.parent / "none").exists()
    given: Any = options
    lakefold.restore(table, version=[*lakefold.history(table)][-1].version, **given)
    with pytest.raises(lakefold.InvalidError, match="was folded before"):
        lakefold.append(table, people(*range(6)), app_id="loader", batch_id=1, **dry)


@pytest.mark.parametrize("format_name", ["lance", "delta"])
def test_verbs_try_it_too(
    table: Path,
    options: WriteOptions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_environment(monkeypatch, options)
    rows = table.parent / "rows.parquet"
    pq.write_table(people(3, 50), rows)
    for words, added, deleted in (
        (["append", str(table), str(rows)], 2, 0),
        (["upsert", str(table), str(rows), "--keys", "id"], 2, 1),
        (["delete", str(table), "--where", "id < 2"], 0, 2),
        (["alter", str(table), "--add", "age=int64"], 0, 0),
    ):
        version = lakefold.open(table).version
        capsys.readouterr()
        assert cli.run([*words, "--dry-run", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert (printed["kind"], printed["rows_added"], printed["rows_deleted"]) == (
            "planned",
            added,
            deleted,
        )
        assert lakefold.open(table).version == version
        assert cli.run([*words, "--dry-run"]) == 0
        assert f"would be committed as version {version + 1}" in capsys.readouterr().out
