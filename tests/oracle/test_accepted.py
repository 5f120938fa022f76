"""pylance opens and continues every table that our fold makes: no entry makes a table unreadable."""

import tempfile
from pathlib import Path

import lance
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_committer.fold.fold import FoldInputs, fold
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.file_pb2 import Field
from lakefold_table.format import Fetched, Publication
from lakefold_table.lance.schemas.data_files import PACKED
from lakefold_table.lance.schemas.schema import LEAVES
from tests.folding import FORMAT, MemoryTable, column, creation, entry

NESTED = [
    column("a", 0),
    column("s", 1, "struct"),
    column("x", 2, parent=1),
    column("l", 3, "list", parent=1),
    column("item", 4, parent=3),
    Field(name="p", id=5, parent_id=-1, logical_type="struct", nullable=True, metadata={PACKED: b"true"}),
    column("q", 6, parent=5),
    column("n", 7, "string"),
]
IDS = st.integers(-3, 9)
INDICES = st.integers(-2, 6)
MANY = settings(max_examples=250, deadline=None)


@st.composite
def files(draw: st.DrawFn) -> dict[str, object]:
    """A data file as a client may describe it: mostly nearly right."""
    ids = draw(st.lists(st.integers(0, 7), max_size=6, unique=True) | st.lists(IDS, max_size=4))
    indices = draw(st.just([*range(len(ids))]) | st.lists(INDICES, min_size=len(ids), max_size=len(ids)))
    parents = draw(st.booleans())
    if parents:
        indices = [-1 if number in {1, 3} else index for number, index in zip(ids, indices, strict=True)]
    return {
        "path": draw(st.sampled_from(["x.lance", "sub/y.lance", "ü b.lance", "a%20b", "c:d", "~", "#"])),
        "fields": ids,
        "column_indices": indices,
        "file_major_version": draw(st.sampled_from([2, 2, 2, 2, 0, 3])),
        "file_minor_version": draw(st.sampled_from([2, 2, 2, 0, 1, 3, 9])),
        "file_size_bytes": draw(st.sampled_from([1, 1000, 2**64 - 1])),
    }


@st.composite
def appends(draw: st.DrawFn) -> Envelope:
    """An Append as a client may send it."""
    envelope = Envelope(table="memory://t")
    envelope.lance.uuid = draw(
        st.sampled_from(["u", "", "../x", "ü", "6f1f4f0e-5c0e-4d2b-9f6e-3c2b1a0d9e8f"])
    )
    envelope.lance.read_version = 1
    envelope.lance.tag = draw(st.sampled_from(["", "", "t", "../t"]))
    envelope.lance.transaction_properties.update(
        draw(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2))
    )
    envelope.lance.append.SetInParent()
    for rows in draw(st.lists(st.lists(files(), min_size=1, max_size=2), max_size=2)):
        fragment = envelope.lance.append.fragments.add()
        fragment.physical_rows = draw(st.sampled_from([1, 3, 2**32 - 1, 0]))
        fragment.id = draw(st.sampled_from([0, 0, 0, 7, 2**24]))
        if draw(st.integers(0, 9)) == 0:
            fragment.metadata["k"] = "v"
        for file in rows:
            fragment.files.add(**file)
    return envelope


def publish(root: Path, publication: Publication) -> None:
    path = root / publication.path
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(publication.buffers))


def check_opens(root: Path) -> lance.LanceDataset:
    dataset = lance.dataset(str(root))
    dataset.count_rows()
    assert dataset.read_transaction(dataset.version) is not None
    upon = lance.LanceDataset.commit(str(root), lance.LanceOperation.Append([]), read_version=1)
    assert upon.version == dataset.version + 1
    return dataset


@MANY
@given(appends(), st.booleans())
def test_an_append_that_we_accept(envelope: Envelope, stable: bool) -> None:  # noqa: FBT001 - drawn
    table = MemoryTable()
    table.fold(creation(NESTED, stable_row_ids=stable))
    folded = fold(FORMAT, table.table, [entry(envelope, 1)], Fetched(), FoldInputs(1))
    if folded.publication is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, data in table.files.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(data)
        publish(root, folded.publication)
        dataset = check_opens(root)
        rows = sum(fragment.physical_rows for fragment in envelope.lance.append.fragments)
        assert dataset.count_rows() == rows


TYPES = st.sampled_from(
    ["int64", "string", "struct", "list", "list.struct", "map", "timestamp:us:UTC", "x", *sorted(LEAVES)]
)
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "a.b", "", "_rowid", "ü"])


@st.composite
def schemas(draw: st.DrawFn) -> list[Field]:
    """A schema as a client may send it."""
    fields: list[Field] = []
    for number in range(draw(st.integers(0, 5))):
        parents = [-1, -1, -1, *[field.id for field in fields if field.logical_type in {"struct", "list"}]]
        field = column(draw(NAMES), number, draw(TYPES), parent=draw(st.sampled_from(parents)))
        field.nullable = draw(st.booleans())
        fields.append(field)
    return fields


@MANY
@given(schemas(), st.booleans(), st.booleans())
def test_a_table_that_we_create(schema: list[Field], stable: bool, older: bool) -> None:  # noqa: FBT001 - drawn
    table = MemoryTable()
    folded = table.fold(creation(schema, stable_row_ids=stable, v1_manifest_paths=older))
    if folded.publication is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        publish(Path(folder), folded.publication)
        dataset = check_opens(Path(folder))
        assert dataset.schema.names == [field.name for field in schema if field.parent_id == -1]
        assert dataset.to_table().num_rows == 0
