"""Row ids and row versions: pylance's bytes give what it shows, ours are the bytes that it would write."""

import json
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lance.fragment import RowIdMeta
from lance.fragment import RowIdSequence as Sequence

from lakefold_protos.lance.rowids_pb2 import EncodedU64Array, RowIdSequence, U64Segment
from lakefold_protos.lance.table_pb2 import DataFragment, Manifest
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.lance.rows.row_versions import (
    decode_versions,
    encode_versions,
    one_version,
    replaced_versions,
)
from lakefold_table.lance.rows.rowids import count_row_ids, decode_row_ids, encode_row_ids
from tests.oracle.manifests import manifest_files, read_sections

MANY = settings(max_examples=400, deadline=None)
MAX = 2**64 - 1


def theirs(ids: list[int]) -> bytes:
    """The sequence as pylance writes it."""
    return bytes(json.loads(Sequence(ids).to_inline_metadata().json())["Inline"])


def read_by_pylance(data: bytes) -> list[int] | None:
    """The ids as pylance reads them, None if it refuses."""
    text = json.dumps({"Inline": [*data]})
    meta = RowIdMeta.from_json(text)  # type: ignore[call-arg, misc]  # a class method; its stub forgot to say so
    try:
        return list(Sequence.from_inline_metadata(meta).to_pyarrow().to_pylist())
    except RuntimeError:
        return None


@st.composite
def id_lists(draw: st.DrawFn) -> list[int]:
    """Distinct ids: dense, scattered or far from each other, in order or not."""
    size, first = draw(st.integers(0, 400)), draw(st.sampled_from([0, 1, 127, 2**16, 2**32 - 5, 2**63]))
    spread = draw(st.sampled_from([1, 2, 8, 17, 700, 2**16, 2**40, 2**50]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    ids = np.unique(random.integers(0, size * spread, size=size, endpoint=True, dtype=np.uint64)) + np.uint64(
        first
    )
    if draw(st.booleans()):
        ids = np.arange(first, first + size, dtype=np.uint64)
    holes = draw(st.lists(st.integers(0, 399), max_size=9))
    ids = np.delete(ids, [hole for hole in holes if hole < ids.size])
    if draw(st.integers(0, 3)) == 0:
        random.shuffle(ids)
    return [int(number) for number in ids]


@MANY
@given(id_lists())
@example([0, MAX])
@example([0, *range(3, 40)])
@example([*range(16), *range(17, 25)])
@example([*range(16), *range(17, 26)])
@example([MAX - 1])
@example([MAX])
@example([MAX - 2, MAX - 1, MAX])
@example([*range(MAX - 40, MAX - 3), MAX - 1, MAX])
def test_the_bytes_that_pylance_would_write(ids: list[int]) -> None:
    data = encode_row_ids(np.array(ids, dtype=np.uint64))
    assert data == theirs(ids)
    assert decode_row_ids(data, len(ids)).tolist() == ids


SMALL = st.integers(0, 40)
LISTED = st.builds(
    EncodedU64Array,
    u16_array=st.none()
    | st.builds(
        EncodedU64Array.U16Array,
        base=SMALL | st.just(MAX - 1),
        offsets=st.lists(st.integers(0, 9), max_size=6).map(lambda ns: np.sort(np.array(ns, "<u2")).tobytes())
        | st.binary(max_size=5),
    ),
    u32_array=st.none() | st.builds(EncodedU64Array.U32Array, base=SMALL, offsets=st.binary(max_size=9)),
    u64_array=st.none() | st.builds(EncodedU64Array.U64Array, values=st.binary(max_size=17)),
)
BOUNDS = {"start": SMALL, "end": SMALL | st.just(60)}
SEGMENTS = st.one_of(
    st.builds(U64Segment, range=st.builds(U64Segment.Range, **BOUNDS)),
    st.builds(
        U64Segment, range_with_holes=st.builds(U64Segment.RangeWithHoles, holes=st.none() | LISTED, **BOUNDS)
    ),
    st.builds(
        U64Segment,
        range_with_bitmap=st.builds(U64Segment.RangeWithBitmap, bitmap=st.binary(max_size=4), **BOUNDS),
    ),
    st.builds(U64Segment, sorted_array=LISTED),
    st.builds(U64Segment, array=LISTED),
    st.just(U64Segment()),
)


@MANY
@given(st.lists(SEGMENTS, max_size=3))
def test_pylance_and_we_read_and_refuse_the_same(segments: list[U64Segment]) -> None:
    data = RowIdSequence(segments=segments).SerializeToString()
    expected = read_by_pylance(data)
    try:
        values = decode_row_ids(data, count_row_ids(data)).tolist()
    except DamagedError:
        values = None
    assert values == expected


def fragments(table: Path) -> list[DataFragment]:
    return [*Manifest.FromString(read_sections(manifest_files(table)[-1]).manifest).fragments]


def check(table: Path) -> Iterator[DataFragment]:
    """Holds each fragment's sequences against what pylance shows of its rows."""
    dataset = lance.dataset(str(table))
    columns = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
    shown = dataset.to_table(columns=columns).to_pydict()
    address = np.array(shown["_rowaddr"], dtype=np.uint64)
    for fragment in fragments(table):
        here = address >> np.uint64(32) == fragment.id
        offsets = (address[here] & np.uint64(2**32 - 1)).astype(np.int64)
        decoded = {
            "_rowid": decode_row_ids(fragment.inline_row_ids, fragment.physical_rows),
            columns[2]: decode_versions(fragment.inline_created_at_versions, fragment.physical_rows),
            columns[3]: decode_versions(fragment.inline_last_updated_at_versions, fragment.physical_rows),
        }
        for column, numbers in decoded.items():
            assert numbers[offsets].tolist() == np.array(shown[column], dtype=np.uint64)[here].tolist()
        yield fragment


def rows(first: int, last: int, **columns: object) -> pa.Table:
    return pa.table({"a": np.arange(first, last), "v": np.zeros(last - first)} | columns)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    dataset = lance.write_dataset(rows(0, 10), str(tmp_path), enable_stable_row_ids=True)
    lance.write_dataset(rows(10, 20), dataset, mode="append")
    return tmp_path


def test_row_ids_after_updates_merges_and_compactions(table: Path) -> None:
    """Spans are offsets wherever pylance computed them; only compaction leaves others."""
    lance.dataset(str(table)).update({"v": "1.0"}, "a in (1, 3, 12)")
    fresh = pa.table({"a": [2, 4, 50, 51, 13], "v": [7.0] * 5})
    lance.dataset(str(table)).merge_insert(
        "a"
    ).when_matched_update_all().when_not_matched_insert_all().execute(fresh)
    lance.dataset(str(table)).delete("a in (5, 6)")
    for fragment in check(table):
        for data in (fragment.inline_created_at_versions, fragment.inline_last_updated_at_versions):
            assert encode_versions(decode_versions(data, fragment.physical_rows)) == data
    lance.dataset(str(table)).optimize.compact_files()
    (compacted,) = check(table)
    assert len(RowIdSequence.FromString(compacted.inline_row_ids).segments) > 1
    lance.dataset(str(table)).update({"v": "2.0"}, "a in (0, 7, 8, 51)")
    assert len(list(check(table))) == 2


def test_pylance_reads_what_we_merged_and_rewrote(table: Path) -> None:
    lance.dataset(str(table)).update({"v": "1.0"}, "a in (1, 3, 12)")
    old = fragments(table)
    count = sum(fragment.physical_rows for fragment in old)
    joined = b"".join([fragment.inline_row_ids for fragment in old])
    ids = decode_row_ids(joined, count)
    assert ids.tolist() == [*range(20), 1, 3, 12]
    assert read_by_pylance(joined) == ids.tolist() == read_by_pylance(encode_row_ids(ids))


@pytest.mark.parametrize("offsets", [[1, 2], [0], [9], [0, 9], [*range(10)], [0, 2, 4, 6, 8]])
def test_offsets_that_an_update_of_columns_names(table: Path, offsets: list[int]) -> None:
    dataset = lance.dataset(str(table))
    fragment = dataset.get_fragment(0)
    assert fragment is not None
    updated, fields = fragment.update_columns(pa.table({"a": offsets, "v": [5.0] * len(offsets)}), "a", "a")
    operation = lance.LanceOperation.Update(
        updated_fragments=[updated],
        fields_modified=fields,
        update_mode="rewrite_columns",
        updated_fragment_offsets={0: encode_bitmap(Bitmap(offsets))},
    )
    lance.LanceDataset.commit(str(table), operation, read_version=2)
    made = next(check(table))
    assert made.inline_last_updated_at_versions == replaced_versions(
        one_version(10, 1), 10, Bitmap(offsets), 3
    )
    assert made.inline_created_at_versions == one_version(10, 1)
