"""Tables that pylance made, with all that it can put into a table: our log continues each, and loses nothing.

What a manifest of pylance holds passes through our codec as it is (`test_manifests`). Here our log continues
such a table: what the new version doesn't change is still in it, down to fields that no release knows yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import blob_array, blob_field
from lance.dataset import AutoCleanupConfig

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import IndexSection, Manifest
from lakefold_table.entry import Committed
from lakefold_table.uri import canonical
from tests.oracle import arrays
from tests.oracle.columns import DICTIONARIES, EXTENSIONS, LISTS, MAPS, SIMPLE, STRUCTS
from tests.oracle.committing import fold, owned, proposal, state, written
from tests.oracle.manifests import manifest_files, read_sections
from tests.oracle.operations import Version, differences
from tests.oracle.test_messages import unknown
from tests.properties.audits import audit
from tests.properties.copies import proposed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from google.protobuf.message import Message

    from tests.properties.acts import Run

UNKNOWN = b"\x9a\x3f\x03abc"
"""A field 1011 of three bytes, which no message has."""
ROWS = 300
SCALAR: tuple[Any, ...] = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")


def plain(start: int, rows: int) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table({"k": list(numbers), "t": [f"word {number % 17}" for number in numbers]})


def every_type(table: Path) -> None:
    kinds = [*SIMPLE, *STRUCTS[:1], *LISTS, *MAPS[:4], *DICTIONARIES[:2], *EXTENSIONS]
    schema = pa.schema(
        [pa.field("k", pa.int64()), *[pa.field(f"c{n}", kind) for n, kind in enumerate(kinds)]]
    )
    lance.write_dataset(arrays.rows(schema, 5), str(table))


def blobs(table: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64()), blob_field("b")])
    values = [b"x" * size for size in (1, 100_000, 5_000_000)]
    rows = pa.table([pa.array([1, 2, 3]), blob_array(values)], schema=schema)
    lance.write_dataset(rows, str(table), data_storage_version="2.2")


def older_blobs(table: Path) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("k", pa.int64()), blob])
    rows = pa.table([pa.array([1, 2]), pa.array([b"x", b"y" * 10_000], pa.large_binary())], schema=schema)
    lance.write_dataset(rows, str(table), data_storage_version="2.1")


def several_file_versions(table: Path) -> None:
    versions: tuple[tuple[Any, str], ...] = (
        ("2.0", "create"),
        ("2.1", "append"),
        ("2.2", "append"),
        ("2.3", "append"),
    )
    for version, mode in versions:
        lance.write_dataset(plain(0, 5), str(table), mode=mode, data_storage_version=version)


def older_names(table: Path) -> None:
    for mode in ("create", "append", "append"):
        lance.write_dataset(plain(0, 5), str(table), mode=mode, enable_v2_manifest_paths=False)


def indexed(table: Path) -> None:
    vectors = np.random.default_rng(1).random((ROWS, 8), dtype=np.float32)
    rows = plain(0, ROWS).append_column(
        "v", pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8)
    )
    rows = rows.append_column("l", pa.array([[number % 3, number % 5] for number in range(ROWS)]))
    lance.write_dataset(rows, str(table), max_rows_per_file=100)
    texts: tuple[Any, ...] = ("INVERTED", "NGRAM")
    for kind in SCALAR:
        lance.dataset(str(table)).create_scalar_index("k", kind, name=f"k_{kind}")
    for kind in texts:
        lance.dataset(str(table)).create_scalar_index("t", kind, name=f"t_{kind}")
    lance.dataset(str(table)).create_scalar_index("l", "LABEL_LIST")
    lance.dataset(str(table)).create_index("v", "IVF_FLAT", name="flat", num_partitions=1)
    lance.dataset(str(table)).create_index("v", "IVF_HNSW_SQ", name="graph", num_partitions=1)


def tagged_and_branched(table: Path) -> None:
    dataset = lance.write_dataset(plain(0, 20), str(table), max_rows_per_file=10)
    dataset.delete("k = 3")
    dataset.tags.create("release", 1)
    branch = dataset.create_branch("line", 2)
    lance.write_dataset(plain(20, 5), branch, mode="append")
    branch.delete("k = 4")


def clone_of_a_clone(table: Path) -> None:
    origin, between = table.with_name("origin"), table.with_name("between")
    lance.write_dataset(plain(0, 20), str(origin), max_rows_per_file=10).create_scalar_index("k", "BTREE")
    lance.dataset(str(origin)).shallow_clone(str(between), 2)
    lance.write_dataset(plain(20, 5), str(between), mode="append").delete("k = 21")
    lance.dataset(str(between)).shallow_clone(str(table), 4)


def described(table: Path) -> None:
    dataset = lance.write_dataset(
        plain(0, 5), str(table), auto_cleanup_options=AutoCleanupConfig(interval=3, older_than_seconds=100)
    )
    dataset.update_config({"a": "b"})
    dataset.update_metadata({"c": "d"})
    dataset.update_schema_metadata({"e": "f"})
    dataset.update_field_metadata({"k": {"g": "h"}})


WAYS: list[Callable[[Path], None]] = [
    every_type,
    blobs,
    older_blobs,
    several_file_versions,
    older_names,
    indexed,
    tagged_and_branched,
    clone_of_a_clone,
    described,
]


def newest(table: Path) -> Version:
    """The newest version, by its layout alone, however versions are named."""
    names = sorted((table / "_versions").glob("*.manifest"), key=lambda path: path.stat().st_mtime_ns)
    sections = read_sections(names[-1])
    indices = IndexSection.FromString(sections.index or b"")
    return Version(Manifest.FromString(sections.manifest), indices, None)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", WAYS, ids=lambda method: method.__name__)
def test_our_log_goes_on_with_it(make: Callable[[Path], None], tmp_path: Path) -> None:
    table = tmp_path / "table"
    make(table)
    dataset = lance.dataset(str(table))
    before = newest(table)
    rows = dataset.take([0, 1]) if "b" not in dataset.schema.names else None
    read, count = dataset.version, dataset.count_rows()
    more = dataset.schema.empty_table() if rows is None else rows
    envelope = proposal(table, written(table, more) if more.num_rows else [], read)
    (result,) = fold(owned(table), [envelope], 0)
    assert isinstance(result, Committed)
    after = newest(table)
    assert differences(before, after).keys() <= {"version", "fragments", "max_fragment_id"}
    listed = list(before.manifest.fragments)
    assert list(after.manifest.fragments)[: len(listed)] == listed
    dataset = lance.dataset(str(table))
    dataset.validate()
    assert (dataset.version, dataset.count_rows()) == (read + 1, count + more.num_rows)
    lance.write_dataset(more, dataset, mode="append")
    assert lance.dataset(str(table)).count_rows() == count + 2 * more.num_rows


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", WAYS, ids=lambda method: method.__name__)
def test_none_of_its_versions_breaks_an_invariant(make: Callable[[Path], None], tmp_path: Path) -> None:
    """Or our own versions on top of it would not be published."""
    table = tmp_path / "table"
    make(table)
    lines = [folder.parent for folder in tmp_path.rglob("_versions") if folder.parent.name != "between"]
    assert table in lines
    for line in lines:
        bases = {base.path for base in state(line).head.base_paths}
        numbers = [state(line).version] if bases else range(1, state(line).version + 1)
        for number in numbers:
            audit(line, state(line, number - 1) if number > 1 and not bases else None, state(line, number))


def strange(message: Message) -> None:
    """Gives a message and every message in it an unknown field."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        for each in value if descriptor.is_repeated else [value]:
            strange(each)
    message.MergeFromString(UNKNOWN)


def make_strange(table: Path) -> None:
    """Gives the newest version unknown fields at every level."""
    path = manifest_files(table)[-1]
    sections = read_sections(path)
    manifest = Manifest.FromString(sections.manifest)
    indices = IndexSection.FromString(sections.index or b"")
    strange(manifest)
    strange(indices)
    body = b""
    for name, section in (
        ("index_section", indices.SerializeToString()),
        ("transaction_section", sections.transaction),
    ):
        assert section is not None
        setattr(manifest, name, len(body))
        body += len(section).to_bytes(4, "little") + section
    data = manifest.SerializeToString()
    footer = len(body).to_bytes(8, "little") + b"\0\0\2\0LANC"
    path.write_bytes(body + len(data).to_bytes(4, "little") + data + footer)


def strange_places(table: Path) -> set[str]:
    version = newest(table)
    names = [*unknown(version.manifest, "manifest"), *unknown(version.indices, "indices")]
    return {f"{names.count(name)} {name}" for name in names}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A table with something at every level that we decode, and unknown fields in all of it."""
    origin, table = tmp_path / "origin", tmp_path / "table"
    lance.write_dataset(plain(0, 40), str(origin), max_rows_per_file=10)
    lance.dataset(str(origin)).delete("k in (1, 2)")
    lance.dataset(str(origin)).shallow_clone(str(table), 2)
    lance.dataset(str(table)).delete("k = 11")
    lance.dataset(str(table)).create_scalar_index("k", "BTREE")
    lance.dataset(str(table)).update_config({"a": "b"})
    make_strange(table)
    lance.dataset(str(table)).validate()
    return table


def envelope_of(table: Path, run: Run) -> Envelope:
    """What pylance would commit on the newest version, as a proposal."""
    read = lance.dataset(str(table)).version
    versions = len(manifest_files(table))
    (transaction,) = proposed(table, versions, run, table.with_name("copy"))
    envelope = Envelope(table=canonical(str(table)))
    envelope.lance.CopyFrom(transaction)
    envelope.lance.read_version = read
    return envelope


def test_unknown_fields_survive_an_append(odd: Path) -> None:
    strange = strange_places(odd)
    assert len(strange) > 10
    rows = plain(40, 5)
    envelope = envelope_of(odd, lambda ds: lance.write_dataset(rows, ds, mode="append"))
    assert isinstance(fold(owned(odd), [envelope], 0)[0], Committed)
    assert strange - strange_places(odd) == {"1 manifest.writer_version#1011"}
    assert lance.dataset(str(odd)).count_rows() == 42


@pytest.mark.parametrize(
    ("run", "lost"),
    [
        (lambda ds: ds.update_config({"x": "y"}), set()),
        (lambda ds: ds.update_field_metadata({"k": {"x": "y"}}), set()),
        (lambda ds: ds.create_scalar_index("t", "BITMAP"), set()),
        (lambda ds: ds.delete("k = 30"), set()),
    ],
    ids=["config", "field metadata", "index", "delete"],
)
def test_unknown_fields_survive_what_changes_beside_them(odd: Path, run: Run, lost: set[str]) -> None:
    strange = strange_places(odd)
    envelope = envelope_of(odd, run)
    (result,) = fold(owned(odd), [envelope], 0)
    assert isinstance(result, Committed), result
    assert strange - strange_places(odd) == lost | {"1 manifest.writer_version#1011"}
    lance.dataset(str(odd)).validate()
