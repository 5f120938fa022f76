"""An Append whose fragments stay encoded is judged and folded, to the byte, as one that is decoded whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefold_committer.fold.fold import Folded, fold
from lakefold_committer.tables.prefetcher import Prefetcher
from lakefold_log.codec.envelope import encode, parsed
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.format import Fetched
from lakefold_table.lance.identity import used
from lakefold_table.lance.manifests import packed_append as packing
from lakefold_table.lance.manifests.chunks import cut, encode_records, new_chunks
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.lance.manifests.naming import PLAIN, are_data_names, is_data_name
from lakefold_table.lance.proposal import LanceProposal, proposal_of
from lakefold_table.lance.rows.numbering import id_fields
from lakefold_table.lance.rows.rowids import lineage, lineages
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from lakefold_table.wire import varint, varints
from tests.folding import (
    FORMAT,
    INPUTS,
    MemoryTable,
    append,
    by_message,
    changed,
    created,
    entry,
    packed_of,
    parsed_packed,
    with_packed,
)
from tests.memory_storage import MemoryStorage
from tests.properties.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_table.entry import Entry

    Change = Callable[[Envelope], object]

STORE = "packed-fragments"
FIRST = "f-0.lance"


@pytest.fixture(autouse=True, scope="module")
def _small_portions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PORTION_BYTES", 100)
        yield
    MemoryStorage.forget(STORE)


def both(envelope: Envelope, offset: int) -> tuple[Entry, Entry]:
    """The entry decoded whole, and with its fragments encoded if possible."""
    whole = entry(envelope, offset)
    small, packed = parsed_packed(encode(envelope))
    return by_message(whole), with_packed(whole, small, packed)


def fetched(table: MemoryTable, item: Entry, sizes: dict[str, int]) -> Fetched:
    """What a committer would fetch from a store with files of these sizes."""
    MemoryStorage.forget(STORE)
    storage = MemoryStorage(f"memory://{STORE}")
    for name, size in sizes.items():
        storage.put(f"data/{name}", [bytes(size)])
    needs = FORMAT.requirements(table.state, [item])
    bringer = Prefetcher(StoredTable(FORMAT, Versions(storage, FORMAT.folder, FORMAT.detect)))
    return Fetched(bringer.sizes(needs.sizes), listed=bringer.listed(needs.listed))


def folded_both_ways(
    table: MemoryTable, envelope: Envelope, sizes: dict[str, int] | None = None
) -> tuple[Folded, Folded, Entry]:
    """The entry folded whole, and packed; and the latter."""
    whole, packed = both(envelope, table.offset)
    seen = [Fetched() if sizes is None else fetched(table, each, sizes) for each in (whole, packed)]
    first = fold(FORMAT, table.table, [whole], seen[0], INPUTS)
    second = fold(FORMAT, table.table, [packed], seen[1], INPUTS)
    return first, second, packed


def file_of(folded: Folded) -> bytes:
    return b"" if folded.publication is None else b"".join(folded.publication.buffers)


def alike(each: Folded, other: Folded) -> None:
    assert each.outcomes == other.outcomes
    assert file_of(each) == file_of(other)


def set_in(number: int, **values: object) -> Change:
    """Changes the first file of a fragment; a list is filled anew."""

    def change(envelope: Envelope) -> None:
        for name, value in values.items():
            file = envelope.lance.append.fragments[number].files[0]
            if isinstance(value, list):
                getattr(file, name)[:] = value
            else:
                setattr(file, name, value)

    return change


def rows_in(number: int, rows: int) -> Change:
    return lambda envelope: setattr(envelope.lance.append.fragments[number], "physical_rows", rows)


def more(data: bytes) -> Change:
    """The fourth fragment holds these fields as well."""
    return lambda envelope: envelope.lance.append.fragments[3].MergeFromString(data)


def two_files(envelope: Envelope) -> None:
    """The third fragment has each column in a file of its own."""
    files = envelope.lance.append.fragments[2].files
    files[0].fields[:], files[0].column_indices[:] = [0], [0]
    files.add().CopyFrom(files[0])
    files[1].path, files[1].fields[:] = "other.lance", [1]


SOUND = {
    "as it is": lambda _: None,
    "rows": rows_in(2, 2**32 - 1),
    "two files": two_files,
    "older files": set_in(1, file_minor_version=1),
    "sizes that nobody says": set_in(1, file_size_bytes=0),
    "a tag": lambda e: setattr(e.lance, "tag", "t"),
    "properties": lambda e: e.lance.transaction_properties.update({"k": "v"}),
}
FAULTY = {
    "an unknown column": set_in(3, fields=[0, 7]),
    "a column twice": set_in(3, fields=[0, 0]),
    "a required column left out": set_in(3, fields=[1], column_indices=[0]),
    "an unknown version": set_in(3, file_major_version=9),
    "an id that is taken": lambda e: setattr(e.lance.append.fragments[3], "id", 1),
    "no rows": rows_in(3, 0),
    "too many rows": rows_in(3, 2**32),
    "a folder": set_in(3, path="a/b.lance"),
    "a hidden file": set_in(3, path=".b.lance"),
    "no name": set_in(3, path=""),
    "a file named twice": set_in(3, path=FIRST),
    "an unknown base": set_in(3, base_id=5),
    "row ids": more(DataFragment(inline_row_ids=b"").SerializeToString()),
    "a deletion file": lambda e: e.lance.append.fragments[3].deletion_file.SetInParent(),
    "an unknown field": more(b"\xf8\x3f\x01"),
    "an unknown field of a file": lambda each: (
        each.lance.append.fragments[3].files[0].MergeFromString(b"\xf8\x3f\x01")
    ),
    "an unknown field of the Append": lambda e: e.lance.append.MergeFromString(b"\xf8\x3f\x01"),
    "no fragments": lambda e: e.lance.append.ClearField("fragments"),
    "a read version to come": lambda e: setattr(e.lance, "read_version", 99),
    "reserved properties": lambda e: e.lance.transaction_properties.update({"lakefold.x": "v"}),
}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("what", SOUND)
def test_sound_ones_give_the_same_version(what: str, stable: bool) -> None:  # noqa: FBT001 - a case
    table = created(stable_row_ids=stable)
    table.fold(append("before", fragments=2))
    envelope = changed(append("f", fragments=9, read=2), SOUND[what])
    folded, other, entry_ = folded_both_ways(table, envelope)
    assert isinstance(folded.outcomes[0].result, Committed)
    fragments = packed_of(entry_)
    assert fragments is not None
    assert len(fragments.portions) > 2
    assert not entry_.envelope.lance.append.fragments
    alike(folded, other)


@pytest.mark.parametrize("what", FAULTY)
def test_faulty_ones_get_the_same_answer(what: str) -> None:
    table = created()
    table.fold(append("before", fragments=2))
    folded, other, _ = folded_both_ways(table, changed(append("f", fragments=9, read=2), FAULTY[what]))
    assert what == "no fragments" or isinstance(folded.outcomes[0].result, Invalid)
    alike(folded, other)


@pytest.mark.parametrize(
    ("name", "size"), [("f-5.lance", None), ("f-5.lance", 999), ("f-0.lance", 1), ("f-8.lance", None)]
)
def test_a_file_that_is_not_as_said_is_found(name: str, size: int | None) -> None:
    table = created()
    sizes = {f"f-{number}.lance": 1000 for number in range(9)}
    envelope = append("f", fragments=9)
    folded, other, packed = folded_both_ways(table, envelope, sizes)
    assert isinstance(other.outcomes[0].result, Committed)
    alike(folded, other)
    del sizes[name]
    folded, other, packed = folded_both_ways(
        table, envelope, sizes if size is None else {**sizes, name: size}
    )
    assert packed_of(packed) is not None
    assert name in str(other.outcomes[0].result)
    alike(folded, other)


def test_of_two_faults_the_first_is_reported() -> None:
    table = created()
    sizes = {f"f-{number}.lance": 1000 for number in range(9) if number != 6}
    for number in (4, 8):
        envelope = changed(append("f", fragments=9), set_in(number, file_minor_version=99))
        folded, other, packed = folded_both_ways(table, envelope, sizes)
        assert packed_of(packed) is not None
        alike(folded, other)


def test_the_columns_that_it_uses_are_returned() -> None:
    table = created()
    envelope = changed(append("f", fragments=9), set_in(3, fields=[0, 1, 17]))
    _, packed = both(envelope, 1)
    fragments = packed_of(packed)
    assert fragments is not None
    transaction = fragments.sample_of(packed.envelope.lance)
    assert used(transaction, table.state) == used(envelope.lance, table.state) == {0, 1, 17}


def test_ids_that_mean_other_columns_now_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table = created()
    table.fold(append("before", fragments=2))
    monkeypatch.setattr(type(table.state.history), "schema_since", 2)
    folded, other, packed = folded_both_ways(table, append("f", fragments=9))
    assert packed_of(packed) is not None
    assert isinstance(folded.outcomes[0].result, Rejected)
    alike(folded, other)


def test_it_may_share_a_version_with_others() -> None:
    table = created()
    plain = [entry(append(name, fragments=2), 1 + at) for at, name in enumerate("abc")]
    packed = [both(each.envelope, each.position.offset)[1] for each in plain]
    whole = fold(FORMAT, table.table, plain, Fetched(), INPUTS)
    for chosen in ((0,), (1,), (2,), (0, 1, 2), (0, 2)):
        group = [packed[at] if at in chosen else each for at, each in enumerate(plain)]
        alike(whole, fold(FORMAT, table.table, group, Fetched(), INPUTS))


def test_the_version_read_back_is_that_in_memory_and_goes_on_alike() -> None:
    table, other = created(), created()
    whole, packed = both(append("f", fragments=2000), 1)
    table.fold_group([whole])
    other.fold_group([packed])
    assert other.state.transaction is not None
    assert not other.state.transaction.append.fragments
    reopened = other.reopened()
    assert not reopened.state.transaction.append.fragments  # type: ignore[union-attr]
    assert reopened.state.properties == table.state.properties
    for each in (table, other, reopened):
        each.offset = 5
        each.fold(append("g", read=2))
    assert table.files == other.files == reopened.files


def test_envelopes_that_protobuf_joins_from_parts_are_read_as_protobuf_reads_them() -> None:
    envelope = append("f", fragments=3)
    lance = envelope.lance.SerializeToString()
    other = Envelope()
    other.lance.delete.predicate = "true"
    twice = Envelope(table=envelope.table).SerializeToString() + encode(append("g")) + encode(envelope)
    parts = [
        twice,
        encode(envelope) + other.SerializeToString(),
        other.SerializeToString() + encode(envelope),
        b"\x52" + varint(2 * len(lance)) + 2 * lance,
        encode(envelope) + b"\x7a\x00",
        b"\x7a\x00" + encode(envelope),
    ]
    for data in parts:
        actual, packed = parsed_packed(data)
        assert packed is None
        assert actual == parsed(data)


def test_a_record_written_otherwise_is_taken_as_every_client_writes_it() -> None:
    envelope = append("f", fragments=3)
    fragment = envelope.lance.append.fragments[0].SerializeToString()
    rows = b"\x20\x83\x80\x00"
    files = fragment[: -len(b"\x20\x03")]
    assert DataFragment.FromString(rows + files) == envelope.lance.append.fragments[0]
    other = rows + files
    rest = Envelope.FromString(encode(envelope))
    del rest.lance.append.fragments[0]
    records = b"\x0a" + varint(len(other)) + other
    body = records + rest.lance.append.SerializeToString()
    rest.lance.ClearField("append")
    lance = rest.lance.SerializeToString() + b"\xa2\x06" + varint(len(body)) + body
    rest.ClearField("lance")
    data = rest.SerializeToString() + b"\x52" + varint(len(lance)) + lance
    actual, packed = parsed_packed(data)
    assert packed is not None
    proposal = LanceProposal(actual, packed).whole()
    assert encode(proposal.envelope) == encode(envelope) != data
    assert proposal.packed is None


@settings(max_examples=200)
@given(st.data())
def test_whatever_is_changed_the_answer_is_the_same(data: st.DataObject) -> None:
    table = created(stable_row_ids=data.draw(st.booleans()))
    table.fold(append("before", fragments=2))
    envelope = append("f", fragments=5, read=2)
    for _ in range(data.draw(st.integers(1, 2))):
        data.draw(mutated(envelope))
    sizes = {f"f-{number}.lance": 1000 for number in range(5)} if data.draw(st.booleans()) else None
    whole, packed = both(envelope, table.offset)
    assert encode(proposal_of(packed).whole().envelope) == encode(whole.envelope)
    folded, other, _ = folded_both_ways(table, envelope, sizes)
    alike(folded, other)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
@example([0, 127, 128, 2**63, 2**64 - 1])
def test_many_numbers_are_written_as_one_is(numbers: list[int]) -> None:
    assert varints(np.array(numbers, dtype=np.uint64)) == [varint(number) for number in numbers]


@given(st.sampled_from([0, 1, 120, 2**14 - 2, 2**32 - 9]), st.integers(0, 9))
def test_ids_are_fields_of_a_fragment(first: int, count: int) -> None:
    fragments = [DataFragment.FromString(field + b"\x20\x03") for field in id_fields(first, count)]
    assert fragments == [DataFragment(id=first + at, physical_rows=3) for at in range(count)]
    assert all(field for field in id_fields(1, count))
    assert id_fields(0, 1) == [b""]


@given(
    st.integers(0, 2**63),
    st.lists(st.sampled_from([1, 3, 127, 128, 2**32 - 1]), max_size=9),
    st.integers(1, 2**40),
)
@example(0, [1, 1], 1)
def test_the_lineage_of_many_is_that_of_each(first: int, rows: list[int], version: int) -> None:
    expected = []
    for count in rows:
        expected.append(lineage(first, count, version))
        first += count
    assert list(lineages(first - sum(rows), rows, version)) == expected


@settings(max_examples=300)
@given(
    st.lists(
        st.text(st.sampled_from(sorted(PLAIN) + list("./\n\\é\0")), max_size=4)
        | st.sampled_from(["x" * 255, "x" * 256, "", "a\n"]),
        max_size=4,
    )
)
def test_many_names_are_judged_as_one_is(names: list[str]) -> None:
    assert are_data_names(names) == all(map(is_data_name, names))


@given(st.integers(0, 200), st.integers(0, 3000), st.integers(0, 40))
def test_a_list_goes_on_with_chunks_as_with_fragments(before: int, many: int, size: int) -> None:
    def numbered(first: int, count: int) -> list[Numbered]:
        file = DataFile(path="x" * size)
        made = [DataFragment(id=first + at, physical_rows=at + 1, files=[file]) for at in range(count)]
        return [Numbered.of(fragment) for fragment in made]

    start = Fragments.of(numbered(0, before))
    added = numbered(before + 5, many)
    chunks = list(
        new_chunks(
            [fragment.encoded for fragment in added],
            before + 5,
            [fragment.physical_rows for fragment in added],
        )
    )
    fragments, expected = start.followed(chunks), start.added(added)
    assert fragments.tally == expected.tally
    assert b"".join(fragments.buffers()) == b"".join(expected.buffers())
    assert list(fragments.ids()) == list(expected.ids())
    assert [chunk.encoded for chunk in fragments.chunks] == [chunk.encoded for chunk in expected.chunks]
    if many:
        with pytest.raises(ValueError, match="ascend"):
            fragments.followed(chunks)
    assert [encode_records(part) for part in cut([fragment.encoded for fragment in added])] == [
        chunk.encoded for chunk in chunks
    ]
