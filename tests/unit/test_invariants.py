"""Each invariant holds on sound tables, and is broken by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lance.table_pb2 import DataFragment, IndexSection, Manifest
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.errors import DamagedError, StopError
from lakefold_table.invariants import faults
from lakefold_table.lance.invariants import INVARIANTS, Step, check
from lakefold_table.lance.manifests.chunks import Chunk, FragmentSums
from lakefold_table.lance.manifests.features import flags_of
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.lance.rows.row_versions import one_version
from lakefold_table.lance.rows.rowids import row_id_range
from lakefold_table.marks.marks import MARK, Marks, Rebinding, RebindReason
from lakefold_table.position import LogId, Position
from tests.folding import append, column, created
from tests.whole_versions import WHOLE, broken_invariants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakefold_table.lance.state import LanceState


def built(
    state: LanceState,
    head: Callable[[Manifest], object] = lambda _: None,
    fragments: Callable[[list[DataFragment]], object] = lambda _: None,
    indices: IndexSection | None = None,
) -> LanceState:
    """A copy of the state, edited."""
    new = Manifest()
    new.CopyFrom(state.head)
    listed = list(state.fragments)
    fragments(listed)
    made = Fragments.of(Numbered.of(fragment) for fragment in listed)
    new.reader_feature_flags, new.writer_feature_flags = flags_of(new, deletions=made.has_deletions)
    head(new)
    section = state.index_section if indices is None else indices.SerializeToString()
    return replace(state, head=new, fragments=made, index_section=section)


def sections(
    uuids: Sequence[bytes], fields: Sequence[int] = (0,), covered: Sequence[int] = (0,)
) -> IndexSection:
    section = IndexSection()
    for uuid in uuids:
        index = section.indices.add(
            name="a_idx", fields=fields, fragment_bitmap=encode_bitmap(Bitmap(covered))
        )
        index.uuid.uuid = uuid
    return section


def unreadable() -> IndexSection:
    section = sections([b"j" * 16])
    section.indices[0].fragment_bitmap = b"?"
    return section


def delete_two(fragments: list[DataFragment]) -> None:
    fragments[0].deletion_file.num_deleted_rows = 2


def pair(*, stable: bool = True) -> tuple[LanceState, LanceState]:
    """Two versions that follow each other: four fragments, in the first of which two rows are deleted."""
    table = created(stable_row_ids=stable)
    table.fold(append("f", fragments=3))
    before = built(table.state, fragments=delete_two, indices=sections([b"i" * 16]))
    table.fold(append("g"))
    after = built(table.state, fragments=delete_two, indices=sections([b"i" * 16]))
    return before, after


BEFORE, AFTER = pair()
DELETED = {0: Bitmap([0, 2])}


def broken_by(after: LanceState, before: LanceState | None = BEFORE, deleted: object = DELETED) -> list[str]:
    """Returns the names of all invariants that a step breaks."""
    return list(broken_invariants(before, after, deleted))  # type: ignore[arg-type]


def marked(epoch: int) -> Callable[[Manifest], object]:
    def edit(head: Manifest) -> None:
        head.table_metadata[MARK] = head.table_metadata[MARK].replace('"epoch":1', f'"epoch":{epoch}')

    return edit


def with_marks(marks: Marks, head: Manifest) -> None:
    for key, value in marks.encode().items():
        head.table_metadata[key] = value


def set_version(head: Manifest) -> None:
    head.version += 1


def set_time(head: Manifest) -> None:
    head.timestamp.seconds -= 3600


def lower_next_row_id(head: Manifest) -> None:
    head.next_row_id = 3


def orphan(head: Manifest) -> None:
    head.fields.append(column("child", 9, parent=8))


def two_bases(head: Manifest) -> None:
    for name in ("one", "other"):
        head.base_paths.add(id=1, name=name, path=f"/{name}")


def on_base(fragments: list[DataFragment]) -> None:
    fragments[1].files[0].base_id = 7


def deletions_on_base(fragments: list[DataFragment]) -> None:
    fragments[0].deletion_file.base_id = 7


def twice(fragments: list[DataFragment]) -> None:
    fragments[1].files.add(path="x.lance", fields=[1], column_indices=[0])


def named_alike(fragments: list[DataFragment]) -> None:
    fragments[3].files[0].path = fragments[1].files[0].path


def all_deleted(fragments: list[DataFragment]) -> None:
    fragments[1].deletion_file.num_deleted_rows = 3


def undeleted(fragments: list[DataFragment]) -> None:
    fragments[0].ClearField("deletion_file")


def fewer_deleted(fragments: list[DataFragment]) -> None:
    fragments[0].deletion_file.num_deleted_rows = 1


def set_rows(rows: int) -> Callable[[list[DataFragment]], object]:
    return lambda fragments: setattr(fragments[3], "physical_rows", rows)


def with_ids(number: int, first: int, rows: int = 3) -> Callable[[list[DataFragment]], object]:
    return lambda fragments: setattr(fragments[number], "inline_row_ids", row_id_range(first, rows))


def with_versions(name: str, rows: int, version: int) -> Callable[[list[DataFragment]], object]:
    return lambda fragments: setattr(fragments[3], f"inline_{name}_at_versions", one_version(rows, version))


def no_ids(fragments: list[DataFragment]) -> None:
    fragments[3].ClearField("inline_row_ids")


def garbage_ids(fragments: list[DataFragment]) -> None:
    fragments[3].inline_row_ids = b"\xff\xff"


def switched_off(head: Manifest) -> None:
    head.reader_feature_flags &= ~2
    head.writer_feature_flags &= ~2


def misplaced(chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    return (*chunks[:-1], replace(chunks[-1], ids=[number + 1 for number in chunks[-1].ids]))


def clone(state: LanceState, **changes: object) -> LanceState:
    return replace(state, **changes)  # type: ignore[arg-type]


BROKEN: dict[str, list[LanceState]] = {
    "version-follows": [built(AFTER, set_version), built(AFTER, set_time)],
    "ids-stay-used": [
        built(AFTER, lambda head: setattr(head, "max_fragment_id", 2)),
        built(AFTER, lambda head: head.ClearField("max_fragment_id")),
        built(AFTER, lower_next_row_id, lambda fragments: fragments.clear()),
    ],
    "row-ids-stay-stable": [built(AFTER, switched_off)],
    "schema-is-sound": [built(AFTER, orphan)],
    "flags-match-content": [
        built(AFTER, lambda head: setattr(head, "reader_feature_flags", 2)),
        built(AFTER, lambda head: setattr(head, "writer_feature_flags", 3 | 16)),
        built(AFTER, lambda head: head.config.update({"a": "b"})),
    ],
    "bases-are-known": [
        built(AFTER, two_bases),
        built(AFTER, fragments=on_base),
        built(AFTER, fragments=deletions_on_base),
    ],
    "indices-are-consistent": [
        built(AFTER, indices=sections([b"i" * 15])),
        built(AFTER, indices=sections([b"j" * 16, b"j" * 16])),
        built(AFTER, indices=sections([b"j" * 16], fields=[5])),
        built(AFTER, indices=sections([b"j" * 16], covered=[4])),
        built(AFTER, indices=unreadable()),
    ],
    "fragment-ids-ascend": [
        clone(AFTER, fragments=Fragments(AFTER.fragments.chunks * 2, AFTER.fragments.tally)),
        built(AFTER, fragments=lambda fragments: setattr(fragments[3], "id", 2**32)),
    ],
    "fragments-have-rows": [built(AFTER, fragments=set_rows(0)), built(AFTER, fragments=all_deleted)],
    "fields-are-stored-once": [built(AFTER, fragments=twice)],
    "fragments-keep-their-rows": [
        built(AFTER, fragments=lambda fragments: setattr(fragments[1], "physical_rows", 4)),
        built(AFTER, fragments=with_ids(1, 9)),
    ],
    "deleted-rows-stay-deleted": [
        built(AFTER, fragments=undeleted),
        built(AFTER, fragments=fewer_deleted),
    ],
    "row-ids-fit": [
        built(AFTER, fragments=no_ids),
        built(AFTER, fragments=with_ids(3, 9, 2)),
        built(AFTER, fragments=with_ids(3, 10)),
        built(AFTER, fragments=garbage_ids),
        built(AFTER, switched_off),
    ],
    "row-versions-fit": [
        built(AFTER, fragments=with_versions("created", 2, 1)),
        built(AFTER, fragments=with_versions("last_updated", 4, 1)),
        built(AFTER, fragments=with_versions("last_updated", 3, 99)),
    ],
    "files-lie-once": [built(AFTER, fragments=named_alike)],
    "marks-grow": [built(AFTER, marked(0))],
    "counts-add-up": [
        clone(AFTER, fragments=Fragments(AFTER.fragments.chunks, FragmentSums(4, 1, 12, 1, 1))),
        clone(AFTER, fragments=Fragments(misplaced(AFTER.fragments.chunks), AFTER.fragments.tally)),
    ],
    "live-row-ids-are-unique": [built(AFTER, fragments=with_ids(3, 0))],
}
LISTED = [(name, number, state) for name, states in BROKEN.items() for number, state in enumerate(states)]


def test_a_sound_step_breaks_none() -> None:
    assert broken_by(AFTER) == []
    assert broken_by(AFTER, None) == []
    check(BEFORE, AFTER)
    for stable in (True, False):
        table = created(stable_row_ids=stable)
        check(None, table.state)


def test_a_position_goes_back_by_a_move_only() -> None:
    log = LogId("cluster", "topic", 0)
    before, after = Position(log, 5), Position(log, 3)
    marks = Marks("t", version=1, epoch=1, position=before)
    back = replace(marks, version=2, position=after)
    move = Rebinding(RebindReason.LOST, before, after)

    def breaks(now: Marks) -> bool:
        old, new = (built(AFTER, partial(with_marks, marks)) for marks in (marks, now))
        return "marks-grow" in broken_invariants(old, new)

    assert breaks(back)
    assert not breaks(replace(back, moves=(move,)))
    assert breaks(replace(back, moves=(move,), position=Position(log, 2)))


@pytest.mark.parametrize(("name", "state"), [pytest.param(n, s, id=f"{n}-{i}") for n, i, s in LISTED])
def test_each_is_broken_by_hand(name: str, state: LanceState) -> None:
    assert name in broken_by(state)


@pytest.mark.parametrize(
    "deleted",
    [None, {}, {0: Bitmap()}, {0: Bitmap([1])}, {0: Bitmap([1, 3])}],
    ids=["unread", "gone", "empty", "fewer", "beyond"],
)
def test_a_deletion_file_that_says_something_else(deleted: dict[int, Bitmap] | None) -> None:
    assert "deletion-files-match" in broken_by(AFTER, deleted=deleted)


def test_each_invariant_has_its_broken_sample() -> None:
    names = {invariant.name for invariant in INVARIANTS} | WHOLE.keys()
    assert names - BROKEN.keys() == {"deletion-files-match"}


def test_without_stable_row_ids_no_fragment_has_any() -> None:
    before, after = pair(stable=False)
    assert broken_by(after, before) == []
    assert broken_by(built(after, fragments=with_ids(3, 0)), before) == ["row-ids-fit"]


def test_ids_of_rows_deleted_before_may_be_used_again() -> None:
    """An update moves a row with its id to a new fragment, and leaves it deleted in the old fragment."""
    state = built(AFTER, fragments=with_ids(3, 0))
    assert broken_by(state, deleted={0: Bitmap([0, 2]), 1: Bitmap()}) == ["live-row-ids-are-unique"]

    def moved(fragments: list[DataFragment]) -> None:
        fragments[3].physical_rows = 1
        fragments[3].inline_row_ids = row_id_range(0, 1)
        for name in ("created", "last_updated"):
            setattr(fragments[3], f"inline_{name}_at_versions", one_version(1, 1))

    assert broken_by(built(AFTER, fragments=moved)) == []


def test_a_restore_may_bring_rows_back() -> None:
    transaction = Transaction()
    transaction.restore.version = 1
    restored = clone(built(AFTER, fragments=undeleted), transaction=transaction)
    assert broken_by(restored, deleted={}) == []


CHEAP = [item for item in LISTED if item[0] not in WHOLE]


@pytest.mark.parametrize(("name", "state"), [pytest.param(n, s, id=f"{n}-{i}") for n, i, s in CHEAP])
def test_nothing_is_published_that_breaks_a_cheap_one(name: str, state: LanceState) -> None:
    assert name in [invariant.name for invariant, _ in faults(INVARIANTS, next(Step.changed(BEFORE, state)))]
    with pytest.raises(StopError) as caught:
        check(BEFORE, state)
    first = next(invariant.name for invariant, _ in faults(INVARIANTS, next(Step.changed(BEFORE, state))))
    assert f"it would break {first}: " in caught.value.message
    assert "nothing was published" in caught.value.hint


def test_what_was_broken_before_is_damage() -> None:
    before, after = (built(state, fragments=twice) for state in (BEFORE, AFTER))
    check(before, after)
    touched = built(after, fragments=lambda fragments: setattr(fragments[1], "clustering_id", 1))
    with pytest.raises(DamagedError, match=r"fields-are-stored-once.*version 2 breaks it already"):
        check(before, touched)


def test_only_what_changed_is_checked() -> None:
    (step,) = Step.changed(BEFORE, AFTER)
    assert [fragment.id for fragment in step.fragments] == [3]
    assert not step.indices
    assert [fragment.id for fragment in next(Step.changed(None, AFTER)).fragments] == [0, 1, 2, 3]
