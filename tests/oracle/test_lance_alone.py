"""What pylance does by itself: facts of docs/format/lance.md that no comparison with our code would show.

Each test asks pylance alone. If one fails with a newer release, the fact has changed, and with it what our
code relies on.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from datetime import datetime
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance.bitmap import Bitmap
from lance.dataset import Index
from lance.fragment import FragmentMetadata, write_fragments

from lakefold_protos.lance.table_pb2 import DataFragment, IndexSection, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.manifests.codec import FOOTER, LENGTH, MAGIC, MAJOR, MINOR
from lakefold_table.lance.schemas.schema import RESERVED_NAMES
from tests.foreign import file_as_others_write
from tests.oracle.manifests import manifest_files, read_sections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MORE = pa.table({"a": [100]})
UNKNOWN = b"\x9a\x3f\x03abc"
"""A field 1011 of three bytes, which no message has."""
WRONG_TYPE = b"\x22\x01x"
"""Field 4 as a text; a fragment's `physical_rows` are a number."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four fragments of ten rows."""
    lance.write_dataset(pa.table({"a": range(40)}), str(tmp_path / "t"), max_rows_per_file=10)
    return tmp_path / "t"


def manifest_of(table: Path) -> Manifest:
    """The manifest of the newest version."""
    return Manifest.FromString(read_sections(manifest_files(table)[-1]).manifest)


def rewrite(table: Path, change: Callable[[Manifest, Transaction], object]) -> None:
    """Changes the newest version in its place, as no client would."""
    path = manifest_files(table)[-1]
    sections = read_sections(path)
    head = Manifest.FromString(sections.manifest)
    transaction = Transaction.FromString(sections.transaction or b"")
    change(head, transaction)
    path.write_bytes(file_as_others_write(head, transaction))


def append(table: Path) -> int:
    return int(lance.write_dataset(MORE, str(table), mode="append").version)


def test_a_folder_with_names_of_both_schemes_is_not_opened(tmp_path: Path) -> None:
    lance.write_dataset(MORE, str(tmp_path), enable_v2_manifest_paths=False)
    older = tmp_path / "_versions/1.manifest"
    (tmp_path / f"_versions/{2**64 - 1 - 2}.manifest").write_bytes(older.read_bytes())
    with pytest.raises(ValueError, match="multiple manifest naming schemes"):
        lance.dataset(str(tmp_path))


def test_detached_versions_need_names_that_count_down(tmp_path: Path) -> None:
    dataset = lance.write_dataset(MORE, str(tmp_path), enable_v2_manifest_paths=False)
    operation = lance.LanceOperation.Append(write_fragments(MORE, dataset, mode="append"))
    with pytest.raises(OSError, match="detached commits cannot be used with v1 manifest paths"):
        lance.LanceDataset.commit(str(tmp_path), operation, read_version=1, detached=True)


@pytest.mark.parametrize("hint", [None, "", "no JSON", '{"version":0}', '{"version":99}'])
def test_the_version_hint_decides_nothing(hint: str | None, table: Path) -> None:
    path = table / "_versions/latest_version_hint.json"
    assert json.loads(path.read_text()) == {"version": 1}
    if hint is None:
        path.unlink()
    else:
        path.write_text(hint)
    assert lance.dataset(str(table)).version == 1
    assert append(table) == 2
    assert lance.dataset(str(table)).count_rows() == 41


def test_a_tag_beyond_ascii_breaks_the_listing_of_tags(table: Path) -> None:
    dataset = lance.dataset(str(table))
    dataset.tags.create("é", 1)
    assert lance.dataset(str(table), version="é").version == 1
    with pytest.raises(ValueError, match="Not found"):
        dataset.tags.list()
    with pytest.raises(OSError, match="Not found"):
        dataset.cleanup_old_versions()


def test_what_pylance_does_not_model_is_gone_in_its_next_version(table: Path) -> None:
    def add(head: Manifest, _: Transaction) -> None:
        head.version_aux_data, head.tag = 7, "x"
        head.fragments[0].metadata["k"], head.fragments[0].clustering_id = "v", 3
        head.config["kept"] = head.table_metadata["kept"] = "yes"
        head.MergeFromString(UNKNOWN)

    rewrite(table, add)
    assert append(table) == 2
    head = manifest_of(table)
    assert (head.version_aux_data, head.tag) == (0, "")
    assert not head.fragments[0].metadata
    assert not head.fragments[0].HasField("clustering_id")
    assert UNKNOWN not in head.SerializeToString()
    assert dict(head.config) == dict(head.table_metadata) == {"kept": "yes"}


@pytest.mark.parametrize("seconds", [None, 2**62, -(2**62)])
def test_a_version_without_a_time_is_of_1970(seconds: int | None, table: Path) -> None:
    def change(head: Manifest, _: Transaction) -> None:
        head.ClearField("timestamp")
        if seconds is not None:
            head.timestamp.seconds = seconds

    rewrite(table, change)
    assert lance.dataset(str(table)).versions()[0]["timestamp"] == datetime(1970, 1, 1)  # noqa: DTZ001 - as shown


def test_fragment_ids_end_before_the_last_32_bit_number(table: Path) -> None:
    rewrite(table, lambda head, _: setattr(head, "max_fragment_id", 2**32 - 2))
    assert append(table) == 2
    assert manifest_of(table).max_fragment_id == 2**32 - 1
    with pytest.raises(BaseException, match="PosOverflow"):
        append(table)


def test_a_transaction_that_pylance_can_not_read_stops_who_was_there_before(table: Path) -> None:
    """The version opens, with a warning in the log; what it did is unknown."""

    def mix(_: Manifest, transaction: Transaction) -> None:
        transaction.update_config.upsert_values["older"] = "form"

    lance.dataset(str(table)).update_config({"newer": "form"})
    rewrite(table, mix)
    (table / "_transactions" / manifest_of(table).transaction_file).unlink()
    assert lance.dataset(str(table)).count_rows() == 40
    with pytest.raises(OSError, match="Cannot mix old and new style"):
        lance.dataset(str(table)).read_transaction(2)
    with pytest.raises(OSError, match="Cannot mix old and new style"):
        lance.write_dataset(MORE, lance.dataset(str(table), version=1), mode="append")


def test_a_fragment_with_a_field_of_another_type_ends_the_table(table: Path) -> None:
    path = manifest_files(table)[-1]
    sections = read_sections(path)
    fragment = DataFragment(id=9).SerializeToString() + WRONG_TYPE
    path.write_bytes(raw_file(sections.manifest + b"\x12" + bytes([len(fragment)]) + fragment))
    with pytest.raises(ValueError, match="invalid wire type"):
        lance.dataset(str(table))


def raw_file(manifest: bytes, index: bytes = b"") -> bytes:
    """A manifest file of these very bytes, behind the index section at offset 0, without a transaction."""
    body = LENGTH.pack(len(index)) + index
    return body + LENGTH.pack(len(manifest)) + manifest + FOOTER.pack(len(body), MAJOR, MINOR, MAGIC)


def test_a_data_file_in_two_fragments_doubles_its_rows(table: Path) -> None:
    dataset = lance.dataset(str(table))
    again = json.dumps(dataset.get_fragments()[0].metadata.to_json())
    operation = lance.LanceOperation.Append([FragmentMetadata.from_json(again)])
    dataset = lance.LanceDataset.commit(str(table), operation, read_version=1)
    dataset.validate()
    assert dataset.count_rows() == 50


def test_stable_row_ids_are_chosen_at_the_creation(table: Path) -> None:
    dataset = lance.write_dataset(MORE, str(table), mode="append", enable_stable_row_ids=True)
    assert not dataset.has_stable_row_ids


@pytest.mark.parametrize("flag", [512, 4096, 8192, 131072, 2**40, 2**63])
def test_an_unknown_flag_forbids_reading_or_writing(flag: int, table: Path) -> None:
    rewrite(table, lambda head, _: setattr(head, "writer_feature_flags", flag))
    assert lance.dataset(str(table)).to_table().num_rows == 40
    with pytest.raises(OSError, match=rf"(?s)cannot be written .* Flags: {flag}\b"):
        append(table)
    rewrite(table, lambda head, _: setattr(head, "reader_feature_flags", flag))
    with pytest.raises(ValueError, match=rf"(?s)cannot be read .* Flags: {flag}\b"):
        lance.dataset(str(table))


@pytest.mark.parametrize("side", ["reader_feature_flags", "writer_feature_flags"])
@pytest.mark.parametrize(
    ("flag", "name"),
    [(256, "mixed data-file-version"), (16384, "Managed Blob"), (65536, "zone write seed")],
)
def test_some_flags_must_be_set_on_both_sides(flag: int, name: str, side: str, table: Path) -> None:
    rewrite(table, lambda head, _: setattr(head, side, flag))
    with pytest.raises(ValueError, match=f"only one of the {name} reader and writer feature bits"):
        lance.dataset(str(table))


def out_of_order(head: Manifest) -> None:
    second = DataFragment()
    second.CopyFrom(head.fragments[1])
    head.fragments[1].CopyFrom(head.fragments[2])
    head.fragments[2].CopyFrom(second)


def one_byte_less(head: Manifest) -> None:
    head.fragments[1].files[0].file_size_bytes -= 1


RIGHT = [0, 15, 39]
# The damage; what `validate` says, how many rows are counted, scanned and filtered, what is taken, and
# whether an append is refused. A text is what the error says.
DAMAGES: list[
    tuple[Callable[[Manifest], object], str | None, int, int | str, int | str, list[int] | str, bool]
] = [
    (out_of_order, "not sorted", 40, 40, 36, [0, 25, 39], False),
    (lambda head: setattr(head.fragments[2], "id", 1), "Duplicate fragment id", 40, 40, 36, RIGHT, True),
    (
        lambda head: setattr(head.fragments[1], "physical_rows", 9),
        "incorrect physical_rows",
        *(39, 39, 35, "non-existent fragment", False),
    ),
    (
        lambda head: setattr(head.fragments[1], "physical_rows", 0),
        None,
        *(40, 40, "missing row count", RIGHT, False),
    ),
    (lambda head: setattr(head, "max_fragment_id", 1), None, 40, 40, 36, RIGHT, True),
    (lambda head: head.ClearField("max_fragment_id"), None, 40, 40, 36, RIGHT, False),
    (lambda head: setattr(head.fragments[1].files[0], "file_size_bytes", 0), None, 40, 40, 36, RIGHT, False),
    (one_byte_less, "invalid magic", 40, "invalid magic", "invalid magic", "invalid magic", False),
]


@pytest.mark.parametrize(("damage", "message", "counted", "scanned", "filtered", "taken", "ends"), DAMAGES)
def test_what_pylance_notices_of_a_damaged_manifest(
    damage: Callable[[Manifest], object],
    message: str | None,
    counted: int,
    scanned: int | str,
    filtered: int | str,
    taken: list[int] | str,
    ends: bool,  # noqa: FBT001 - a parameter of the test
    table: Path,
) -> None:
    rewrite(table, lambda head, _: damage(head))

    def check(look: Callable[[lance.LanceDataset], object], expected: object) -> None:
        if isinstance(expected, str):
            with pytest.raises((OSError, ValueError), match=re.escape(expected)):
                look(lance.dataset(str(table)))
        else:
            assert look(lance.dataset(str(table))) == expected

    check(lance.LanceDataset.validate, message)
    check(lance.LanceDataset.count_rows, counted)
    check(lambda dataset: dataset.to_table().num_rows, scanned)
    check(lambda dataset: dataset.to_table(filter="a > 3").num_rows, filtered)
    check(lambda dataset: dataset.take(RIGHT)["a"].to_pylist(), taken)
    check(lambda _: append(table), "two fragments with id" if ends else 2)


def chain(levels: int) -> Callable[[Manifest, Transaction], object]:
    """A second column of so many levels, each below the level before."""

    def change(head: Manifest, _: Transaction) -> None:
        for number in range(1, levels + 1):
            kind = "struct" if number < levels else "int64"
            above = number - 1 if number > 1 else -1
            head.fields.add(id=number, parent_id=above, name=f"n{number}", logical_type=kind, nullable=True)

    return change


def test_schemas_that_pylance_can_not_read(tmp_path: Path) -> None:
    for name in ("same", "nulls", "deep", "deeper"):
        lance.write_dataset(pa.table({"a": pa.array([1, None])}), str(tmp_path / name))

    def same_name(head: Manifest, _: Transaction) -> None:
        head.fields.add(id=1, parent_id=-1, name="a", logical_type="int64", nullable=True)

    rewrite(tmp_path / "same", same_name)
    with pytest.raises(RuntimeError, match="aborted"):
        lance.dataset(str(tmp_path / "same")).to_table()
    rewrite(tmp_path / "nulls", lambda head, _: setattr(head.fields[0], "nullable", False))
    with pytest.raises(pa.ArrowInvalid, match="nulls for non-nullable"):
        lance.dataset(str(tmp_path / "nulls")).to_table()
    rewrite(tmp_path / "deep", chain(63))
    assert lance.dataset(str(tmp_path / "deep")).schema.names == ["a", "n1"]
    rewrite(tmp_path / "deeper", chain(64))
    with pytest.raises(pa.ArrowInvalid, match="Recursion level"):
        assert lance.dataset(str(tmp_path / "deeper")).schema


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "", "a.b"])
def test_names_of_columns_that_pylance_can_not_read(name: str, tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path))
    rewrite(tmp_path, lambda head, _: setattr(head.fields[0], "name", name))
    dataset = lance.dataset(str(tmp_path))
    assert dataset.schema.names == [name]
    with pytest.raises((RuntimeError, ValueError)):
        dataset.to_table()


def test_segments_that_overlap_are_committed_and_then_called_corrupt(table: Path) -> None:
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    (folder,) = (table / "_indices").iterdir()
    number = str(uuid.uuid4())
    shutil.copytree(folder, table / "_indices" / number)
    entry = Index(
        uuid=number,
        name="a_idx",
        fields=[0],
        dataset_version=1,
        fragment_ids=Bitmap([0, 1, 2, 3]),
        index_version=0,
        index_details=("/lance.table.BTreeIndexDetails", b""),
    )
    operation = lance.LanceOperation.CreateIndex([entry], [])
    lance.LanceDataset.commit(str(table), operation, read_version=2)
    with pytest.raises(OSError, match="corrupt"):
        lance.dataset(str(table)).validate()


def test_an_index_made_in_a_far_future_makes_pylance_panic(table: Path) -> None:
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    path = manifest_files(table)[-1]
    sections = read_sections(path)
    index = IndexSection.FromString(sections.index or b"")
    index.indices[0].created_at = 2**60
    head = Manifest.FromString(sections.manifest)
    head.ClearField("transaction_section")
    head.index_section = 0
    path.write_bytes(raw_file(head.SerializeToString(), index.SerializeToString()))
    with pytest.raises(BaseException, match="Invalid timestamp in index metadata"):
        lance.dataset(str(table)).list_indices()


def test_without_the_fragment_reuse_index_a_search_finds_nothing(table: Path) -> None:
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    lance.dataset(str(table)).optimize.compact_files(defer_index_remap=True)
    assert lance.dataset(str(table)).to_table(filter="a = 25").num_rows == 1
    lance.dataset(str(table)).drop_index("__lance_frag_reuse")
    assert lance.dataset(str(table)).to_table(filter="a = 25").num_rows == 0


def test_a_star_means_all_columns(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1], "*": [2]}), str(tmp_path))
    assert dataset.to_table(columns=["*"]).column_names == ["a", "*"]


def test_filters_that_pylance_can_not_read(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [-(2**63)], "b`c": [1]}), str(tmp_path))
    with pytest.raises(ValueError, match='No field named "b`c"'):
        dataset.to_table(filter="a < 5")
    assert dataset.to_table(columns=["a"], filter="a < 5").num_rows == 1
    with pytest.raises(ValueError, match="literal Float64"):
        dataset.to_table(columns=["a"], filter=f"a = {-(2**63)}")


def test_what_pylance_can_not_do_with_files_from_before_2(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(tmp_path), data_storage_version="legacy")
    with pytest.raises(pa.ArrowInvalid, match="FilteredRead on v1 files"):
        dataset.to_table(filter="_rowaddr in (0)")
    with pytest.raises(pa.ArrowInvalid, match="No data files found"):
        dataset.to_table(columns=[])


def test_nulls_of_numbers_in_files_from_before_2(tmp_path: Path) -> None:
    table = pa.table({"f": [1.0, None, None, None], "id": range(4)})
    dataset = lance.write_dataset(table, str(tmp_path), data_storage_version="legacy", max_rows_per_file=2)
    assert dataset.to_table()["f"].to_pylist() == [1.0, 0.0, 0.0, 0.0]
    document = {
        where: dataset.to_table(columns=["id"], filter=where)["id"].to_pylist()
        for where in ("f IS NULL", "f < 0.5", "f = 1")
    }
    assert document == {"f IS NULL": [2, 3], "f < 0.5": [], "f = 1": [0, 1]}
