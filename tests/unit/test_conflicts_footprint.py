"""What is taken from a transaction for the conflict rules, and that it stays small."""

import pytest
from pyroaring import BitMap

from lakefold_protos.lance.table_pb2 import MemWalIndexDetails
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import encode_bitmap
from lakefold_table.lance.conflicts import Footprint, footprint_of
from lakefold_table.lance.conflicts.footprint import KeyChanges, RowsTouched
from lakefold_table.lance.indexing.indices import MEM_WAL
from lakefold_table.lance.kinds import Kind

UUID = {"uuid": b"\x01" * 16}


def test_an_append_leaves_its_kind_alone() -> None:
    transaction = Transaction()
    for number in range(1000):
        transaction.append.fragments.add(physical_rows=number)
    assert (
        footprint_of(transaction)
        is footprint_of(Transaction(append=Transaction.Append()))
        == Footprint(Kind.APPEND)
    )


def test_a_version_without_a_transaction() -> None:
    assert footprint_of(None) == Footprint(Kind.UNKNOWN) == footprint_of(Transaction())


@pytest.mark.parametrize("kind", ["delete", "update"])
def test_rows_are_those_that_the_envelope_names(kind: str) -> None:
    transaction = Transaction()
    getattr(transaction, kind).updated_fragments.add(id=3)
    assert footprint_of(transaction).rows is None
    assert footprint_of(transaction, affected_rows={3: BitMap([1])}).rows == {3: BitMap([1])}


def test_rows_of_other_operations_mean_nothing() -> None:
    rows = {3: BitMap([1])}
    assert footprint_of(Transaction(append=Transaction.Append()), affected_rows=rows).rows is None
    assert footprint_of(Transaction(rewrite=Transaction.Rewrite()), affected_rows=rows).rows is None


def test_data_files_show_whether_a_fragment_is_the_same() -> None:
    single, other = Transaction(), Transaction()
    for transaction, size in ((single, 0), (other, 900)):
        fragment = transaction.delete.updated_fragments.add(id=1)
        fragment.files.add(path="f.lance", fields=[0, 1], file_size_bytes=size)
    assert footprint_of(single).files == footprint_of(other).files
    for change in ("path", "fields", "base"):
        changed = Transaction()
        changed.CopyFrom(single)
        file = changed.delete.updated_fragments[0].files[0]
        if change == "path":
            file.path = "g.lance"
        elif change == "fields":
            file.fields[1] = -2
        else:
            file.base_id = 0
        assert footprint_of(single).files != footprint_of(changed).files


def test_what_cannot_be_read_is_not_known() -> None:
    transaction = Transaction()
    transaction.create_index.new_indices.add(name="damaged", uuid=UUID, fragment_bitmap=b"xx")
    transaction.create_index.new_indices.add(name="absent", uuid=UUID)
    good = encode_bitmap(BitMap([1, 2]))
    transaction.create_index.new_indices.add(name="good", uuid=UUID, fragment_bitmap=good)
    indexing = footprint_of(transaction).indexing
    assert indexing is not None
    assert [each.fragments for each in indexing.added] == [None, None, BitMap([1, 2])]
    overlay = Transaction()
    group = overlay.data_overlay.groups.add(fragment_id=4)
    group.overlays.add(dense=good)
    assert footprint_of(overlay).covered == {4: BitMap([1, 2])}
    group.overlays.add(sparse={"offset_bitmaps": [encode_bitmap(BitMap([7])), good]})
    assert footprint_of(overlay).covered == {4: BitMap([1, 2, 7])}
    group.overlays.add(dense=b"damaged")
    assert footprint_of(overlay).covered == {4: None}


def test_the_log_index_names_the_generations_merged() -> None:
    details = MemWalIndexDetails()
    for generation in (4, 9, 2):
        details.compacted_sstables.add(shard_id={"uuid": b"s" * 16}, generation=generation)
    transaction = Transaction()
    index = transaction.create_index.new_indices.add(name=MEM_WAL)
    index.index_details.value = details.SerializeToString()
    assert footprint_of(transaction).shards == {(b"s" * 16).hex(): 9}
    index.index_details.value = b"\xff\xff"
    assert footprint_of(transaction).shards == {}


def test_both_forms_of_a_configuration() -> None:
    new, old = Transaction(), Transaction()
    new.update_config.config_updates.update_entries.add(key="k", value="v")
    new.update_config.config_updates.update_entries.add(key="gone")
    old.update_config.upsert_values["k"] = "v"
    old.update_config.delete_keys.append("gone")
    expected = KeyChanges(frozenset({"k"}), frozenset({"gone"}))
    assert footprint_of(new).config == footprint_of(old).config == expected


def test_only_a_rewrite_carries_a_reuse_index() -> None:
    rewrite = Transaction()
    rewrite.rewrite.groups.add().old_fragments.add(id=5)
    assert footprint_of(rewrite, carries_reuse=True).carries_reuse
    assert not footprint_of(rewrite).carries_reuse
    assert not footprint_of(Transaction(append=Transaction.Append()), carries_reuse=True).carries_reuse


def test_what_several_deletes_touch_is_said_by_one_footprint() -> None:
    parts = [
        Footprint(Kind.DELETE, touched=frozenset({1, 2}), removed=frozenset({2}), files={1: b"a"}, rows={}),
        Footprint(Kind.DELETE, touched=frozenset({1, 3}), files={1: b"a", 3: b"c"}, rows={}),
        Footprint(Kind.DELETE, touched=frozenset({4}), files={4: b"d"}, moves_rows=True),
        Footprint(Kind.DELETE, touched=frozenset({5}), removed=frozenset({5})),
    ]
    together = RowsTouched(parts[0])
    assert together.footprint is parts[0]
    for footprint in parts[1:]:
        together.add(footprint)
    assert together.footprint == Footprint(
        Kind.DELETE,
        touched=frozenset({1, 2, 3, 4, 5}),
        removed=frozenset({2, 5}),
        files={1: b"a", 3: b"c", 4: b"d"},
        moves_rows=True,
    )
    assert parts[0].touched == {1, 2}
    assert parts[0].files == {1: b"a"}
