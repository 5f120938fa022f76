"""Executors that can't write a table are found when a query begins, also if its batches are small."""

from __future__ import annotations

import platform
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

import lance
import pyarrow as pa
import pytest

from lakefold.spark import sink
from lakefold_ingest.merge import conditions
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.few_rows import FewRows
from lakefold_ingest.spark import executors
from lakefold_ingest.spark.data_source import PlannedTasks
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.keyed_plan import plan_merge
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_maintenance.delta import unnamed_files
from lakefold_maintenance.lance import names as lance_names
from lakefold_reader.pylance.release import pylance_release
from lakefold_table.errors import InvalidError
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.storage.local import LocalStorage
from tests.delta_merging import DeltaFolding
from tests.merging import Folding, people

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NO_BROKER = "127.0.0.1:1"
HIDE = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name == {name!r} else find(name, path, target)
PathFinder.find_spec = find_spec
"""


def python_of_executors(folder: Path) -> str:
    """A Python whose first path is `folder`, as a program that Spark starts for its tasks."""
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH"\nexport PYTHONPATH\nexec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def without(folder: Path, name: str) -> None:
    """Makes `folder` hide a package."""
    (folder / "sitecustomize.py").write_text(HIDE.format(name=name))


def with_other_pylance(folder: Path) -> None:
    """Makes `folder` say that another release of pylance is installed."""
    metadata = folder / "pylance-1.2.3.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: pylance\nVersion: 1.2.3\n")


@pytest.mark.parametrize("fault", ["lance", "lakefold_ingest", "other pylance"])
def test_executors_that_lack_a_package_are_found_at_the_first_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    words = {
        "lance": rf"executor on {platform.node()} can't write the table: .*python.* has no pylance",
        "lakefold_ingest": "executors can't run lakefold: No module named 'lakefold_ingest'",
        "other pylance": f"has pylance 1.2.3, but the driver has {pylance_release()}",
    }
    if fault == "other pylance":
        with_other_pylance(tmp_path)
    else:
        without(tmp_path, fault)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python_of_executors(tmp_path))
    for put in (
        sink(tmp_path / "appended", NO_BROKER, "app"),
        sink(tmp_path / "merged", NO_BROKER, "app", write_mode="upsert", keys="id"),
    ):
        with pytest.raises(InvalidError, match=words[fault]) as caught:
            put(spark.range(1), 0)
        assert "lakefold[ingest]" in caught.value.hint
        assert "PYSPARK_PYTHON" in caught.value.hint


def test_a_table_that_executors_can_not_see_is_found_and_nothing_is_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors have another disk: here the driver says it has written a file that they don't find."""
    table = tmp_path / "t"
    lance.write_dataset(people([1]), str(table))
    before = set((table / "data").iterdir())
    put = sink(table, NO_BROKER, "app", write_mode="delete", keys="id")
    monkeypatch.setattr(executors, "_CONTENT", b"another file")
    with pytest.raises(InvalidError, match=r"a file that the driver has written to .* does not exist"):
        put(spark.range(1), 0)
    assert set((table / "data").iterdir()) == before


def test_queries_that_begin_at_once_check_a_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second query begins while the check of the first one runs."""
    lance.write_dataset(people([1]), str(tmp_path / "t"))
    session, settings = SimpleNamespace(sparkContext=Mock()), Folding(tmp_path / "t").settings()
    checks = list[str]()

    def begin() -> None:
        executors.check_executors(cast("SparkSession", session), settings, merges=False)

    second = threading.Thread(target=begin)

    def check(*given: object) -> None:
        checks.append(str(given[-1]))
        if len(checks) == 1:
            second.start()
            # It waits for this check. If it doesn't, it has ended soon.
            second.join(0.2)

    monkeypatch.setattr(executors, "_check", check)
    begin()
    second.join()
    assert len(checks) == 1


@pytest.mark.parametrize("exists", [False, True])
def test_only_merges_of_a_delta_table_need_pylance_on_executors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, exists: bool
) -> None:
    folding = DeltaFolding(tmp_path / "t")
    if exists:
        folding.create(people([1]).schema, {})
    settings, asked = replace(folding.settings(), format="delta"), list[object]()
    session = cast("SparkSession", SimpleNamespace(sparkContext=Mock()))
    monkeypatch.setattr(executors, "_check", lambda *given: asked.append(given[2]))
    executors.check_executors(session, settings, merges=False)
    executors.check_executors(session, settings, merges=True)
    assert asked == [None, pylance_release()]
    none = iter(list[pa.RecordBatch]())
    monkeypatch.setitem(sys.modules, "lance", None)
    (row,) = executors._check_in_task(None, settings.table, {}, "", none)
    assert row.column("fault")[0].as_py() is None


def test_a_pylance_that_can_not_be_loaded_is_found_before_a_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its library lacked a symbol: it is installed, and fails when it is imported."""
    lance.write_dataset(people([1]), str(tmp_path / "t"))
    monkeypatch.setitem(sys.modules, "lance", None)
    release, table = pylance_release() or "", (tmp_path / "t").as_uri()
    (row,) = executors._check_in_task(release, table, {}, "", iter(list[pa.RecordBatch]()))
    own = executors.own_fault(Folding(tmp_path / "t").settings(), release) or ("", "", "")
    for message in (row.column("fault")[0].as_py(), own[0]):
        assert f"executor on {platform.node()} can't write the table: {sys.executable} can't load" in message
    with pytest.raises(InvalidError, match="can't load its pylance: ModuleNotFoundError"):
        conditions.check(["source.id = 1"], {"source": people([1]).schema})


def test_what_a_process_can_not_read_or_write_is_its_fault(tmp_path: Path) -> None:
    table = tmp_path / "t"
    lance.write_dataset(people([1]), str(table))
    (file,) = (table / "data").iterdir()

    def fault(probe: str) -> str:
        none = iter(list[pa.RecordBatch]())
        (row,) = executors._check_in_task(pylance_release() or "", table.as_uri(), {}, probe, none)
        return str(row.column("fault")[0].as_py())

    assert "it has another disk or bucket" in fault("data/none_probe.lance")
    assert "it has another disk or bucket" in fault(f"data/{file.name}")
    (table / "data" / "probe").write_bytes(executors._CONTENT)
    assert fault("data/probe") == "None"
    assert {each.name for each in (table / "data").iterdir()} == {file.name, "probe"}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_task_of_the_format_finds_at_its_first_rows_that_its_process_can_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A data source has no tasks but those of its batches. These rows are so few that no file is staged."""
    table = tmp_path / "t"
    lance.write_dataset(people([1]), str(table))
    settings, schema, key = Folding(table).settings(), people([1]).schema, Key("app", 0)
    given = read_write_options({"path": str(table)})
    plan = (
        plan_merge(settings, merge_of("upsert", "id"), schema, key)
        if mode == "upsert"
        else plan_write(given, settings, schema, key, use=WriteUse.BATCH, overwrite=False)
    )

    def fault(pylance: str = pylance_release() or "") -> str | None:
        rows = iter(people([2]).to_batches())
        result = PlannedTasks(plan, pylance).run(rows)
        assert list(rows) == []
        if isinstance(result, FewRows | int) or result.fault is None:
            return None
        with pytest.raises(
            InvalidError, match=f"executor on {platform.node()} can't write the table"
        ) as caught:
            plan.commit(key, [result])  # type: ignore[list-item]  # the plan's own result
        assert "lakefold[ingest]" in caught.value.hint
        return caught.value.message

    assert "but the driver has 1.2.3" in str(fault("1.2.3"))
    table.rename(tmp_path / "on the driver's disk")
    assert "it has another disk or bucket" in str(fault())
    (tmp_path / "on the driver's disk").rename(table)
    files = set((table / "data").iterdir())

    def refuse(storage: LocalStorage, path: str, _parts: object) -> None:
        raise InvalidError("permission denied", where=f"{storage.uri}/{path}")

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "put", refuse)
        assert "permission denied" in str(fault())
    assert fault() is None
    assert set((table / "data").iterdir()) == files


def test_a_task_that_writes_a_delta_table_needs_no_pylance(tmp_path: Path) -> None:
    folding = DeltaFolding(tmp_path / "t")
    folding.create(people([1]).schema, {})
    assert executors.own_fault(folding.settings(), "1.2.3") is None


@pytest.mark.parametrize("table_format", ["lance", "delta"])
@pytest.mark.parametrize("is_of_format", [False, True])
def test_a_writer_needs_no_right_to_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, *, is_of_format: bool
) -> None:
    """What it can't remove is a file that no version names, which a clean-up removes."""
    table = tmp_path / "t"
    if table_format == "delta":
        DeltaFolding(table).create(people([1]).schema, {})
    else:
        lance.write_dataset(people([1]), str(table))
    (table / "data").mkdir(exist_ok=True)
    probe = executors._new_probe(".lance" if table_format == "lance" else ".bin")
    (table / probe).write_bytes(executors._CONTENT)
    before = set((table / "data").iterdir())

    def refuse(storage: LocalStorage, path: str) -> None:
        raise InvalidError("access denied", where=f"{storage.uri}/{path}")

    monkeypatch.setattr(LocalStorage, "delete", refuse)
    if is_of_format:
        assert executors.own_fault(Folding(table).settings(), pylance_release() or "") is None
    else:
        none = iter(list[pa.RecordBatch]())
        (row,) = executors._check_in_task(pylance_release() or "", table.as_uri(), {}, probe, none)
        assert row.column("fault")[0].as_py() is None
    (left,) = set((table / "data").iterdir()) - before
    is_unique = lance_names.is_unique if table_format == "lance" else unnamed_files.is_unique
    assert is_unique(data_path(left.name))
