"""Whatever JSON the statistics of files hold, they become columns of a checkpoint that Parquet can store."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefold_table.delta.checkpoints.parquet_actions import parquet_file
from lakefold_table.delta.checkpoints.statistics_columns import AS_COLUMNS, StatisticsForm, arrow_column
from tests.delta_logs.actions import LISTED, PRIMITIVES, add, commits, metadata, snapshot_of

KINDS = [*PRIMITIVES, "decimal(5,2)", "decimal(38,0)"]
TIMES = st.sampled_from(
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.999999-14:00",
        "2020-02-30",
        "2020-01-02T03:04:05.678Z",
        "+12020-01-01",
        "1582-10-10",
        "24:00",
    ]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, -(2**63) - 1, 3.5e38])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | TIMES | st.sampled_from(["NaN", "Infinity", "1.50"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KINDS, "s"]), inner, max_size=3)
    ),
    max_leaves=6,
)
BOUNDS = st.dictionaries(st.sampled_from([*KINDS, "s"]), NUMBERS | TIMES | JSON, min_size=3, max_size=9)


def schema() -> str:
    plain = [{"name": kind, "type": kind, "nullable": True, "metadata": {}} for kind in KINDS]
    struct = {"name": "s", "type": {"type": "struct", "fields": plain}, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [*plain, struct]})


@given(st.lists(st.tuples(JSON, BOUNDS, BOUNDS | JSON, JSON), min_size=1, max_size=4))
def test_any_statistics_become_columns(each: list[tuple[object, object, object, object]]) -> None:
    files = []
    for number, (records, least, most, nulls) in enumerate(each):
        stats = {"numRecords": records, "minValues": least, "maxValues": most, "nullCount": nulls}
        files.append(add(str(number), stats=json.dumps(stats)))
    table = metadata(schema(), **{AS_COLUMNS: "true"})
    snapshot = snapshot_of(commits([LISTED, table, *files]))
    form = StatisticsForm.of(snapshot.metadata)
    stored = list(snapshot.files.values())
    for column in form.columns:
        array = arrow_column(column, stored)
        array.validate(full=True)
        assert len(array) == len(stored)
    assert pa.parquet.read_metadata(pa.BufferReader(parquet_file({"add": stored}, form))).num_rows == len(
        stored
    )
