"""A data file belongs to one live fragment: a proposal that names a file which a fragment has is refused.

Promises: files-lie-once, keyless-repeats (docs/operations/promises.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_committer.fold.fold import fold
from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid
from lakefold_table.format import Fetched
from lakefold_table.lance.manifests import live_files
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.lance.manifests.live_files import LiveFiles, hashes_of, level_of
from lakefold_table.marks.marks import MAX_UUIDS
from tests.folding import (
    FORMAT,
    INPUTS,
    URI,
    MemoryTable,
    append,
    created,
    entry,
    parsed_packed,
    results,
    with_packed,
)
from tests.whole_versions import broken_invariants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Result


def named(uuid: str, *files: str, read: int = 1) -> Envelope:
    """A keyless Append of a single fragment for each of these files."""
    envelope = append("x", read=read, fragments=len(files))
    envelope.lance.uuid = uuid
    for fragment, name in zip(envelope.lance.append.fragments, files, strict=True):
        fragment.files[0].path = name
    return envelope


def live(table: MemoryTable) -> list[str]:
    return sorted(file.path for fragment in table.state.fragments for file in fragment.files)


def refused(result: Result, file: str, fragment: int) -> bool:
    return (
        isinstance(result, Invalid) and f"data file {file} belongs to fragment {fragment} " in result.message
    )


def holds(table: MemoryTable) -> bool:
    return "files-lie-once" not in broken_invariants(None, table.state)


def test_a_proposal_without_app_id_is_not_folded_again_however_many_came_between() -> None:
    table = created()
    table.fold(named("one", "a.lance"))
    assert table.result(named("one", "a.lance")) == Duplicate(2)
    others = (named(f"other-{number}", f"{number}.lance") for number in range(MAX_UUIDS))
    table.fold(*others)
    assert refused(table.result(named("one", "a.lance")), "a.lance", 0)
    assert live(table).count("a.lance") == 1


@pytest.mark.parametrize("reopened", [False, True])
def test_another_proposal_may_not_name_a_file_of_the_table(*, reopened: bool) -> None:
    table = created()
    table.fold(named("one", "a.lance", "b.lance"))
    table = table.reopened() if reopened else table
    assert refused(table.result(named("two", "c.lance", "b.lance")), "b.lance", 1)
    assert isinstance(table.result(named("three", "c.lance")), Committed)
    assert holds(table)


def test_two_proposals_of_one_group_may_not_name_one_file() -> None:
    table = created()
    first, second, third = results(
        table.fold(named("one", "a.lance"), named("two", "a.lance"), named("three", "b.lance", "a.lance"))
    )
    assert isinstance(first, Committed)
    assert refused(second, "a.lance", 0)
    assert refused(third, "a.lance", 0)
    assert live(table) == ["a.lance"]


def packed(table: MemoryTable, *envelopes: Envelope) -> list[Result]:
    """Folds large Appends as a group, their fragments encoded."""
    group = []
    for envelope in envelopes:
        small, fragments = parsed_packed(encode(envelope))
        assert fragments is not None
        single = with_packed(entry(envelope, table.offset), small, fragments)
        group.append(single)
        table.offset += 1
    return results(table.fold_group(group))


def test_a_large_append_is_compared_with_the_table_and_others_of_its_group_with_it() -> None:
    table = created()
    table.fold(named("one", "a.lance"))
    many = [f"m{number}.lance" for number in range(100)]
    assert refused(packed(table, named("two", *many, "a.lance"))[0], "a.lance", 0)
    values = packed(table, named("three", *many), named("four", "n.lance", many[40]))
    assert isinstance(values[0], Committed)
    assert refused(values[1], many[40], 41)
    assert refused(table.result(named("five", many[99])), many[99], 100)
    assert live(table) == sorted(["a.lance", *many])


def test_plain_appends_after_a_large_one_of_their_group_are_compared_with_it() -> None:
    table = created()
    small, fragments = parsed_packed(encode(named("one", "a.lance", "b.lance")))
    first = with_packed(entry(small, table.offset), small, fragments)
    group = [
        first,
        *(entry(named(f, f), table.offset + at) for at, f in enumerate(["b.lance", "c.lance"], 1)),
    ]
    values = results(table.fold_group(group))
    assert refused(values[1], "b.lance", 1)
    assert isinstance(values[2], Committed)


def removing(uuid: str, *numbers: int, read: int) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = uuid, read
    envelope.lance.delete.deleted_fragment_ids.extend(numbers)
    return envelope


def test_a_file_whose_fragment_is_gone_may_come_again() -> None:
    table = created()
    table.fold(named("one", "a.lance", "b.lance"))
    both = results(table.fold(removing("two", 0, read=2), named("three", "a.lance", read=2)))
    assert [type(result) for result in both] == [Committed, Committed]
    assert live(table) == ["a.lance", "b.lance"]
    assert refused(table.result(named("four", "a.lance", read=3)), "a.lance", 2)


def test_an_update_may_not_bring_a_file_of_another_fragment() -> None:
    table = created()
    table.fold(named("one", "a.lance", "b.lance"))
    update = Envelope(table=URI)
    update.lance.uuid, update.lance.read_version = "two", 2
    update.lance.update.removed_fragment_ids.append(0)
    update.lance.update.new_fragments.append(named("x", "b.lance").lance.append.fragments[0])
    assert refused(table.result(update), "b.lance", 1)
    update.lance.update.new_fragments[0].files[0].path = "c.lance"
    assert isinstance(table.result(update), Committed)
    assert live(table) == ["b.lance", "c.lance"]


def replacement(uuid: str, read: int, **files: str) -> Envelope:
    """New values of all columns for the fragments `f0`, `f1`, …, each in the file that is given."""
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = uuid, read
    for number, name in files.items():
        group = envelope.lance.data_replacement.replacements.add(fragment_id=int(number[1:]))
        group.new_file.CopyFrom(named("x", name).lance.append.fragments[0].files[0])
    return envelope


def test_a_replaced_file_may_be_no_file_of_another_fragment_and_one_file_is_not_for_two() -> None:
    table = created()
    table.fold(named("one", "a.lance", "b.lance"))
    assert refused(table.result(replacement("two", 2, f0="b.lance")), "b.lance", 1)
    twice = table.result(replacement("three", 2, f0="c.lance", f1="c.lance"))
    assert isinstance(twice, Invalid)
    assert "c.lance would belong to two fragments" in twice.message
    assert isinstance(table.result(replacement("four", 2, f0="c.lance")), Committed)
    assert refused(table.result(named("five", "c.lance", read=3)), "c.lance", 0)
    assert isinstance(table.result(named("six", "a.lance", read=3)), Committed)


def test_an_overwrite_may_keep_files_and_a_restored_file_counts_again() -> None:
    table = created()
    table.fold(named("one", "a.lance", "b.lance"))
    overwrite = Envelope(table=URI)
    overwrite.lance.uuid, overwrite.lance.read_version = "two", 2
    overwrite.lance.overwrite.schema.extend(table.state.schema)
    overwrite.lance.overwrite.fragments.extend(named("x", "a.lance").lance.append.fragments)
    then = table.state
    assert isinstance(table.result(overwrite), Committed)
    assert live(table) == ["a.lance"]
    restore = Envelope(table=URI)
    restore.lance.uuid, restore.lance.read_version, restore.lance.restore.version = "three", 3, 2
    group = [entry(restore, table.offset)]
    table.offset += 1
    folded = fold(FORMAT, table.table, group, Fetched(states={("", 2): then}), INPUTS)
    table = MemoryTable(folded.table, offset=table.offset)
    assert refused(table.result(named("four", "b.lance", read=4)), "b.lance", 1)


def based(uuid: str, name: str, base: int, read: int) -> Envelope:
    envelope = named(uuid, name, read=read)
    envelope.lance.append.fragments[0].files[0].base_id = base
    return envelope


def test_a_file_is_identified_by_its_base_too() -> None:
    table = created()
    bases = Envelope(table=URI)
    bases.lance.uuid, bases.lance.read_version = "bases", 1
    bases.lance.update_bases.new_bases.add(id=1, path="/elsewhere", name="one", is_dataset_root=True)
    bases.lance.update_bases.new_bases.add(id=2, path="/elsewhere/data", name="two")
    table.fold(bases)
    table.fold(named("one", "a.lance", read=2))
    assert isinstance(table.result(based("two", "a.lance", 1, 3)), Committed)
    assert refused(table.result(based("three", "a.lance", 2, 4)), "/elsewhere/data/a.lance", 1)
    assert refused(table.result(based("four", "a.lance", 1, 4)), "/elsewhere/data/a.lance", 1)


def test_files_of_foreign_versions_count() -> None:
    table, theirs = created(), created()
    table.fold(named("one", "a.lance"))
    theirs.fold(named("one", "a.lance"))
    theirs.fold(named("theirs", "b.lance", read=2))
    for known in (False, True):
        state = table.state
        if known:
            assert not list(state.files.candidates(hashes_of(["b.lance"])))
        followed = FORMAT.follow_foreign(state, theirs.reopened().state)
        after = MemoryTable(replace(table.table, state=followed), offset=9)
        assert refused(after.result(named("two", "b.lance", read=3)), "b.lance", 1)


def test_equal_hashes_refuse_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_files, "hash", lambda _: 7, raising=False)
    table = created()
    for number in range(20):
        assert isinstance(table.result(named(f"u{number}", f"f{number}.lance")), Committed)
    assert refused(table.result(named("again", "f11.lance")), "f11.lance", 11)


def fragments_of(names: Iterable[str]) -> list[DataFragment]:
    actual = []
    for number, name in enumerate(names):
        fragment = named("x", name).lance.append.fragments[0]
        fragment.id = number
        actual.append(fragment)
    return actual


def memory_of(files: LiveFiles) -> int:
    """The bytes of its arrays."""
    return sum(level.hashes.nbytes + level.ids.nbytes for level in files._levels or ())


def test_a_million_files_take_twelve_megabytes() -> None:
    count = 50_000
    fragments = fragments_of(f"{number}.lance" for number in range(count))
    files = LiveFiles.of(Fragments.of(map(Numbered.of, fragments)), ())
    assert memory_of(files) == 0, "readers never ask, and never pay"
    asked = hashes_of([f"{number}.lance" for number in range(0, count, 1000)] + ["not there"])
    assert sorted(files.candidates(asked)) == [(at, at * 1000) for at in range(50)]
    assert memory_of(files) == 12 * count


@settings(max_examples=50)
@given(st.lists(st.integers(0, 40), max_size=60))
def test_however_files_were_added_they_are_found_and_are_in_few_arrays(sizes: list[int]) -> None:
    fragments = fragments_of(f"{number}.lance" for number in range(sum(sizes)))
    files = LiveFiles.of(Fragments(), ())
    assert not list(files.candidates(hashes_of(["x"])))
    at = 0
    for size in sizes:
        added = fragments[at : at + size]
        at += size
        files = files.followed(Fragments.of(map(Numbered.of, fragments[:at])), (), [level_of(added, {})])
    asked = hashes_of(f"{number}.lance" for number in range(at))
    assert sorted(files.candidates(asked)) == [(number, number) for number in range(at)]
    assert memory_of(files) == 12 * at
    assert len(files._levels or ()) <= np.log2(at + 1) + 1


ACTS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["append", "remove"]), st.integers(0, 7), st.integers(0, 7)),
        min_size=1,
        max_size=4,
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(groups=ACTS, reopened=st.booleans())
def test_whatever_comes_each_file_is_in_one_live_fragment(
    groups: list[list[tuple[str, int, int]]], *, reopened: bool
) -> None:
    """Against a model: an Append is taken if and only if none of its files is live."""
    table, owners, count = created(), dict[str, int](), 0
    for group in groups:
        read, envelopes, expected = table.state.version, list[Envelope](), list[type]()
        existing = set(owners.values())
        for act, number, other in group:
            count += 1
            if act == "append":
                files = {f"{number}.lance", f"{other}.lance"}
                expected.append(Invalid if files & owners.keys() else Committed)
                envelopes.append(named(f"u{count}", *sorted(files), read=read))
                if expected[-1] is Committed:
                    owners |= dict.fromkeys(files, -1)
            else:
                target = next((number for number in owners.values() if number in existing), None)
                if target is None:
                    continue
                existing.discard(target)
                owners = {name: number for name, number in owners.items() if number != target}
                envelopes.append(removing(f"u{count}", target, read=read))
                expected.append(Committed)
        if not envelopes:
            continue
        assert [type(result) for result in results(table.fold(*envelopes))] == expected
        table = table.reopened() if reopened else table
        owners = {file.path: fragment.id for fragment in table.state.fragments for file in fragment.files}
        assert sorted(owners) == live(table)
        assert holds(table)
