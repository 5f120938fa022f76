"""What a sink compares, when a batch was folded before, is what the committer would compare.

Promise: different-content (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_ingest.formats import read_view
from lakefold_ingest.lance.data_files import FragmentTarget, write_fragments
from lakefold_ingest.lance.proposals import append
from lakefold_ingest.lance.view import LanceView
from lakefold_ingest.merge.lance.format import OverwriteWritten
from lakefold_ingest.operations.append import AppendRows, AppendWritten
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.fitting import fit
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_protos.lance.file_pb2 import Schema
from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.lance.proposal import LanceProposal
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.content_digest import UNKNOWN, digest_of
from lakefold_table.marks.marks import Marks
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NESTED = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string())), ("z", pa.struct([("q", pa.float32())]))])
ROWS = pa.table(
    {
        "n": pa.array([1, 2]),
        "s": pa.array([{"x": 1, "y": ["a"], "z": {"q": 1.0}}] * 2, NESTED),
        "v": pa.array([[1.0, 2.0]] * 2, pa.list_(pa.float32(), 2)),
        "t": pa.array([1, 2], pa.timestamp("us", "UTC")),
    }
)
KEY = Key("app", 7)


@pytest.fixture(params=["legacy", "2.0", "2.1", "2.2", "2.3"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> LanceView:
    """An empty table with data files of a version."""
    lance.write_dataset(ROWS.schema.empty_table(), tmp_path / "t", data_storage_version=request.param)
    view = read_view(canonical(tmp_path / "t"), {})
    assert isinstance(view, LanceView)
    return view


def remembered(view: LanceView, columns: Sequence[str]) -> LanceView:
    """Returns the table after a batch of two rows with these columns, as the committer remembers it."""
    batch = ROWS.select(columns)
    fitting = fit(batch.schema, view.schema)
    ids = view.field_ids(fitting.schema.names)
    target = FragmentTarget(view.uri, fitting, ids, view.data_storage_version)
    written = list(write_fragments(target, batch.to_batches()))
    content = LanceProposal.of(append(view.uri, KEY, view.version, written)).content()
    mark = AppMark(((7, 7),), recent=((7, 2),), contents=(digest_of(content),))
    return replace(view, marks=Marks(apps={"app": mark}))


def content(view: LanceView, schema: pa.Schema, rows: int) -> str:
    return AppendRows(schema, lambda _: [], count=lambda: rows).content(view)


@pytest.mark.parametrize("columns", [ROWS.column_names, ["n"], ["t", "s"], ["v"]], ids=",".join)
def test_other_columns_or_another_number_of_rows_differ(view: LanceView, columns: list[str]) -> None:
    table, schema = remembered(view, columns), ROWS.select(columns).schema
    assert not table.differs(KEY, content(view, schema, 2))
    assert table.differs(KEY, content(view, schema, 3))
    assert table.differs(KEY, content(view, schema.append(pa.field("new", pa.int64())), 2))
    others = [name for name in ROWS.column_names if name not in columns]
    assert all(
        table.differs(KEY, content(view, schema.append(ROWS.schema.field(name)), 2)) for name in others
    )


def test_files_that_are_written_already_are_compared_too(view: LanceView) -> None:
    fragment = DataFragment(physical_rows=2, files=[DataFile(path="a", fields=[0, 5])])
    target = view.target(ROWS.schema, WriteSettings(view.uri, KafkaConfig("localhost:9"), Topics()))
    columns = Schema(fields=view.fields)
    for operation in (
        AppendWritten([fragment] * 2, target, 1),
        OverwriteWritten([fragment], columns, keeps_schema=True),
    ):
        envelope = operation.build(view, KEY, WriteSettings(view.uri, KafkaConfig("localhost:9"), Topics()))
        assert envelope is not None
        assert operation.content(view) == LanceProposal.of(envelope).content() != ""


def test_what_is_not_known_does_not_differ(view: LanceView) -> None:
    table = remembered(view, ["n"])
    forgotten = replace(table.marks.apps["app"], contents=(UNKNOWN,))
    others = content(view, ROWS.select(["n"]).schema, 9)
    assert not replace(table, marks=Marks(apps={"app": forgotten})).differs(KEY, others)
    assert not table.differs(Key("another", 7), others)
    assert not table.differs(KEY, "")
