"""Pairs that meet in indices, base paths and shards, committed by pylance's own calls."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

import lance
import pytest
from lance import DatasetBasePath
from lance.dataset import Index

from lakefold_protos.lance.table_pb2 import FragmentReuseIndexDetails, IndexMetadata, IndexSection
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap, decode_bitmap, encode_bitmap
from lakefold_table.entry import Conflict
from lakefold_table.lance.conflicts import COMPATIBLE, Rebase, footprint_of
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE
from lakefold_table.lance.kinds import Kind
from tests.oracle.manifests import manifest_files, read_sections
from tests.oracle.pair_operations import (
    BY_HAND,
    KEYED,
    by_hand,
    created,
    index,
    keyed,
    mem_wal,
    operations,
    reuse,
    update_column,
)
from tests.oracle.pairs import (
    Base,
    Operation,
    Theirs,
    at_version_2,
    committed,
    history_of,
    last_transaction,
    rows,
    transaction_of,
)


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable row ids"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
        yield Base(tmp_path_factory.mktemp("rows") / "t", stable=request.param)


DEFERRED = at_version_2(
    lambda table: table.optimize.compact_files(target_rows_per_fragment=20, defer_index_remap=True)
)
REMAPPED = at_version_2(lambda table: table.optimize.compact_files(target_rows_per_fragment=20))
NGRAMS = ("/lance.index.pb.NGramIndexDetails", b"")
TRIM = created(reuse(2, [0], [9]), removed=[reuse(3, [0], [9])])
TRIM_AND_MORE = created(reuse(2, [0], [9]), index("x", 0, [2]))


def indexed(table: lance.LanceDataset) -> None:
    table.create_scalar_index("a", "BTREE")


@pytest.fixture(scope="module")
def indexed_base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("indexed") / "t", second=indexed)


@pytest.mark.parametrize(("theirs", "carries"), [(DEFERRED, 1), (REMAPPED, 0)], ids=["deferred", "remapped"])
def test_what_follows_a_compaction(
    theirs: Callable[[str], object], carries: int, indexed_base: Base, tmp_path: Path
) -> None:
    """A fragment-reuse index records where rows went, so that new indices need no retry."""
    table = committed(indexed_base, tmp_path / "t", theirs)
    rewrites = [version for version, did in table.history.chains[Kind.REWRITE].after(2) if did.carries_reuse]
    assert len(rewrites) == carries
    ours = {
        "index": created(index("z", 0, [0, 1])),
        "index of nothing": created(index("z", 0, [])),
        "n-grams": created(index("z", 1, [0, 1], details=NGRAMS)),
        "n-grams of nothing": created(index("z", 1, [], details=NGRAMS)),
        "trim": TRIM,
        "trim and more": TRIM_AND_MORE,
        **{name: each for name, each in operations(indexed_base).items() if name.startswith("rewrite")},
    }
    for name, operation in ours.items():
        verdict = table.verdict_of_pylance(operation)
        # It would forget what the compaction records, whatever the other index is.
        verdict = "incompatible" if carries and name == "trim and more" else verdict
        assert (name, table.our_verdict(transaction_of(indexed_base, operation))) == (name, verdict)
    judged = table.history.verdict(footprint_of(transaction_of(indexed_base, TRIM)), 2)
    assert judged == (Rebase(reuse=frozenset(rewrites)) if carries else COMPATIBLE)


def test_a_compaction_after_others(indexed_base: Base, tmp_path: Path) -> None:
    matrix = operations(indexed_base)
    theirs = {
        "index of half a group": created(index("z", 0, [0, 1, 2])),
        "index of a fragment": created(index("z", 0, [1])),
        "index of all": created(index("z", 0, [0, 1, 2, 3])),
        "index of nothing": created(index("z", 0, [])),
        "drop": created(removed=[index("z", 0, [0])]),
        "deferred": DEFERRED,
        "remapped": REMAPPED,
        **{name: matrix[name] for name in ("delete f0", "append", "merge")},
    }
    for act, carries in [(DEFERRED, True), (REMAPPED, False)]:
        ours = last_transaction(committed(indexed_base, tmp_path / f"ours {carries}", act).path)
        for name, operation in theirs.items():
            table = committed(indexed_base, tmp_path / f"{name} {carries}", operation)
            verdict = table.verdict_of_pylance(act)
            assert (name, table.our_verdict(ours, carries_reuse=carries)) == (name, verdict)


def reuse_entry(path: Path) -> IndexMetadata:
    """The fragment-reuse index of the newest version."""
    section = IndexSection.FromString(read_sections(manifest_files(path)[-1]).index or b"")
    return next(indice for indice in section.indices if indice.name == FRAGMENT_REUSE)


def as_python(entry: IndexMetadata, *, trimmed: bool = False) -> Index:
    """The entry for pylance's Python; trimmed it has another uuid and records no rows any more."""
    details = FragmentReuseIndexDetails()
    details.inline.SetInParent()
    value = details.SerializeToString() if trimmed else entry.index_details.value
    made = index(
        entry.name, 0, decode_bitmap(entry.fragment_bitmap), details=(entry.index_details.type_url, value)
    )
    made.fields = list(entry.fields)
    if not trimmed:
        made.uuid = str(UUID(bytes=entry.uuid.uuid))
    return made


def test_a_reuse_index_that_grows_and_is_trimmed(tmp_path: Path) -> None:
    """Trimmed after it has grown it is to name both; pylance forgets what was added (Lance fact 10.7)."""
    path = Base(tmp_path / "t", second=indexed).path
    DEFERRED(str(path))
    for first in (100, 110, 120, 130):
        lance.write_dataset(rows(first), str(path), mode="append")
    lance.dataset(str(path)).create_scalar_index("a", "BTREE", replace=True)
    since, entry = lance.dataset(str(path)).version, reuse_entry(path)
    trim = created(as_python(entry, trimmed=True), removed=[as_python(entry)])
    drop = created(removed=[as_python(entry)])

    def grow(where: str) -> None:
        lance.dataset(where, version=since).optimize.compact_files(
            target_rows_per_fragment=20, defer_index_remap=True
        )

    def judged(name: str, first: Operation) -> tuple[Theirs, Theirs]:
        """The table after the first, and a copy on which the compaction was committed instead."""
        for copy in (tmp_path / name, tmp_path / f"{name} grown"):
            shutil.copytree(path, copy)
        if callable(first):
            first(str(tmp_path / name))
        else:
            lance.LanceDataset.commit(str(tmp_path / name), first, read_version=since)
        grow(str(tmp_path / f"{name} grown"))
        return tuple(  # type: ignore[return-value]
            Theirs(copy, history_of(copy, since)) for copy in (tmp_path / name, tmp_path / f"{name} grown")
        )

    cases: list[tuple[str, Operation, str]] = [("trim", trim, "compatible"), ("drop", drop, "retryable")]
    for name, first, verdict in cases:
        table, grown = judged(name, first)
        ours = footprint_of(last_transaction(grown.path), carries_reuse=True)
        assert table.verdict_of_pylance(grow) == verdict
        actual = table.history.verdict(ours, since)
        expected = Rebase(reuse=frozenset({since + 1}))
        assert actual == expected if verdict == "compatible" else isinstance(actual, Conflict)
    _, grown = judged("grown", grow)
    assert grown.verdict_of_pylance(trim) == "compatible"
    trimming = by_hand("create_index")
    trimming.create_index.new_indices.add().CopyFrom(entry)
    trimming.create_index.removed_indices.add().CopyFrom(entry)
    assert grown.history.verdict(footprint_of(trimming), since) == Rebase(reuse=frozenset({since + 2}))


def test_a_compaction_that_adds_nothing_to_the_reuse_index_of_the_table(tmp_path: Path) -> None:
    """The table has such an index either way; only if the compaction added to it can an index follow."""
    path = Base(tmp_path / "t", second=indexed).path
    DEFERRED(str(path))
    for first in (100, 110, 120, 130):
        lance.write_dataset(rows(first), str(path), mode="append")
    fragments = [fragment.fragment_id for fragment in lance.dataset(str(path)).get_fragments()]
    late = operation_on(fragments[2:])
    actual = {}
    for name, covers, deferred in [
        ("covered", True, True),
        ("remapped", True, False),
        ("not covered", False, True),
    ]:
        copy = tmp_path / name
        shutil.copytree(path, copy)
        if covers:
            lance.dataset(str(copy)).create_scalar_index("a", "BTREE", replace=True)
        since = lance.dataset(str(copy)).version
        lance.dataset(str(copy)).optimize.compact_files(
            target_rows_per_fragment=20, defer_index_remap=deferred
        )
        assert reuse_entry(copy).name == FRAGMENT_REUSE
        table = Theirs(copy, history_of(copy, since))
        actual[name] = table.verdict_of_pylance(late[0]), table.our_verdict(late[1])
    assert actual == {
        "covered": ("compatible", "compatible"),
        "remapped": ("retryable", "retryable"),
        "not covered": ("retryable", "retryable"),
    }


def operation_on(fragments: Sequence[int]) -> tuple[Operation, Transaction]:
    """An index over some fragments, for pylance and for us."""
    bitmap = encode_bitmap(Bitmap(fragments))
    return (
        created(index("z", 0, fragments)),
        by_hand("create_index", new_indices=[{"name": "z", "fields": [0], "fragment_bitmap": bitmap}]),
    )


def test_a_new_index_leaves_fragments_that_were_changed_in_place(base: Base, tmp_path: Path) -> None:
    both = created(index("s_idx", 1, [0, 1]), index("a_idx", 0, [0, 1]))
    table = committed(base, tmp_path / "t", update_column(base, 0, "s"))
    judged = table.history.verdict(footprint_of(transaction_of(base, both)), 2)
    assert isinstance(judged, Rebase)
    lance.LanceDataset.commit(str(table.path), both, read_version=2)
    for first, before in zip(
        last_transaction(table.path).create_index.new_indices, ({0, 1}, {0, 1}), strict=True
    ):
        left = before - judged.uncovers.get(first.uuid.uuid.hex(), set())
        assert set(decode_bitmap(first.fragment_bitmap)) == left
    assert [sorted(fragments) for fragments in judged.uncovers.values()] == [[0]]


def bases(*paths: tuple[int, str | None, str]) -> Callable[[str], object]:
    new = [DatasetBasePath(path, name, id=number) for number, name, path in paths]
    return at_version_2(lambda table: table.add_bases(new))


def test_base_paths(base: Base, tmp_path: Path) -> None:
    """A base path without an id gets one; one id, name or path can't be given twice."""
    known = [
        (1, "one", "/one"),
        (2, "one", "/two"),
        (3, "three", "/one"),
        (1, "four", "/four"),
        (5, None, "/five"),
    ]
    for number, first in enumerate(known):
        theirs = by_hand("update_bases", new_bases=[{"id": first[0], "name": first[1], "path": first[2]}])
        table = committed(base, tmp_path / f"{number}", theirs)
        for other in known:
            ours = by_hand("update_bases", new_bases=[{"id": other[0], "name": other[1], "path": other[2]}])
            verdict = table.verdict_of_pylance(bases(other))
            judged = table.our_verdict(ours)
            assert (other, judged == "compatible") == (other, verdict == "compatible")


def logged(table: lance.LanceDataset) -> None:
    lance.LanceDataset.commit(table.uri, created(mem_wal()), read_version=1)


def test_generations_of_a_shard(tmp_path: Path) -> None:
    base = Base(tmp_path / "t", schema=KEYED, second=logged)

    def compacted(generation: int) -> Callable[[str], object]:
        return at_version_2(
            lambda table: (
                table.merge_insert("a")
                .when_not_matched_insert_all()
                .mark_sstables_as_compacted([lance.CompactedSsTable(str(UUID(bytes=b"s" * 16)), generation)])
                .conflict_retries(0)
                .execute(keyed([100 + generation]))
            )
        )

    for merged in (2, 3, 4):
        table = committed(base, tmp_path / f"{merged}", BY_HAND["mem wal"])
        ours = last_transaction(committed(base, tmp_path / f"ours {merged}", compacted(merged)).path)
        assert (merged, table.our_verdict(ours)) == (merged, table.verdict_of_pylance(compacted(merged)))
