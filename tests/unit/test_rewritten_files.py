"""A proposal without app id is known by its files also once a Rewrite (a compaction) has replaced them.

Promise: keyless-repeats (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Duplicate, Invalid
from lakefold_table.lance.conflicts import history
from lakefold_table.lance.conflicts.footprint import FileDigests
from lakefold_table.marks.marks import MAX_UUIDS
from tests.folding import (
    add_fragment,
    append,
    creation,
    entry,
    fold_at,
    opened,
    parsed_packed,
    versions_at,
    with_packed,
)
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.entry import Entry, Result
    from lakefold_table.lance.state import LanceState

NAME = "rewritten"
HERE = f"memory://{NAME}/t"


@pytest.fixture(autouse=True)
def _store() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


class Compacted:
    """A table in memory whose fragments are compacted, with those who fold it."""

    def __init__(self) -> None:
        self.offset = 0
        self.owned = opened(HERE)
        self.fold(creation())

    @property
    def state(self) -> LanceState:
        state = self.owned.table.state
        assert state is not None
        return state  # type: ignore[return-value]

    def fold(self, *envelopes: Envelope) -> list[Result]:
        """What becomes of these, folded as a group."""
        for envelope in envelopes:
            envelope.table = HERE
        outcomes = fold_at(self.owned, envelopes, self.offset)
        self.offset += len(envelopes)
        return [outcome.result for outcome in outcomes]

    def fold_entry(self, item: Entry) -> Result:
        """What becomes of an entry that was made for `offset`."""
        self.offset += 1
        (outcome,) = self.owned.fold([item]).outcomes
        return outcome.result

    def take_over(self) -> None:
        """Another committer continues, which knows what the newest and the earlier versions contain."""
        self.owned = opened(HERE)

    def forget_uuids(self) -> None:
        """As many others come without app id as there are uuids remembered."""
        read = self.state.version
        others = [append(f"other-{self.offset}-{number}", read=read) for number in range(MAX_UUIDS)]
        assert {type(result) for result in self.fold(*others)} == {Committed}

    def compact(self) -> int:
        """All fragments become a single one; returns the version."""
        state = self.state
        made = Envelope(table=HERE)
        made.lance.uuid, made.lance.read_version = f"compaction-{state.version}", state.version
        group = made.lance.rewrite.groups.add()
        group.old_fragments.extend(state.fragments)
        rows = sum(fragment.physical_rows for fragment in group.old_fragments)
        add_fragment(group.new_fragments.add(id=0), f"compacted-{state.version}", rows)
        (result,) = self.fold(made)
        assert isinstance(result, Committed), result
        return result.version

    def files(self) -> list[str]:
        return sorted(file.path for fragment in self.state.fragments for file in fragment.files)


def is_known(result: Result, file: str, version: int) -> bool:
    """Whether it was refused for this file, which the Rewrite of this version replaced."""
    text = f"data file {file} was in the table until the Rewrite of version {version} replaced it"
    return isinstance(result, Invalid) and text in result.message


@pytest.mark.parametrize("takes_over", [False, True], ids=["running", "started again"])
def test_a_proposal_is_not_folded_again_after_a_compaction(*, takes_over: bool) -> None:
    table = Compacted()
    assert table.fold(append("one", fragments=2)) == [Committed(2, rows_added=6, num_fragment_ids=2)]
    version = table.compact()
    assert table.fold(append("one", fragments=2)) == [Duplicate(2)]
    table.forget_uuids()
    if takes_over:
        table.take_over()
    assert is_known(table.fold(append("one", fragments=2))[0], "one-0.lance", version)
    again = table.fold(append("fresh"), append("one", fragments=2), append("late"))
    assert [type(result) for result in again] == [Committed, Invalid, Committed]
    assert not {"one-0.lance", "one-1.lance"} & set(table.files())


def test_each_of_several_compactions_counts() -> None:
    table = Compacted()
    table.fold(append("one"))
    first = table.compact()
    table.fold(append("two", read=first))
    second = table.compact()
    table.forget_uuids()
    table.take_over()
    assert is_known(table.fold(append("one"))[0], "one-0.lance", first)
    assert is_known(table.fold(append("two", read=first))[0], "two-0.lance", second)


def test_a_large_append_is_known_by_any_of_its_files() -> None:
    table = Compacted()
    table.fold(append("one", fragments=50))
    version = table.compact()
    table.forget_uuids()
    small, fragments = parsed_packed(encode(append("one", fragments=50)))
    assert fragments is not None
    large = with_packed(entry(small, table.offset), small, fragments)
    assert is_known(table.fold_entry(large), "one-0.lance", version)


def test_a_writer_that_read_the_compacted_version_adds_other_rows_and_a_key_decides_by_itself() -> None:
    """A file may come again on top of the Rewrite, since a repeat is built on what it was built on."""
    table = Compacted()
    table.fold(append("one"))
    version = table.compact()
    table.forget_uuids()
    keyed = append("one", app="a", batch=1)
    assert isinstance(table.fold(keyed)[0], Committed)
    newest = table.compact()
    assert newest > version
    assert isinstance(table.fold(append("one", read=newest))[0], Committed)
    assert isinstance(table.fold(append("honest"))[0], Committed)


def test_versions_that_are_gone_cause_no_refusal() -> None:
    """What a clean-up removed took its files with it: then a repeat is refused for the missing files."""
    table = Compacted()
    table.fold(append("one"))
    table.compact()
    table.forget_uuids()
    for number in range(1, table.state.version):
        MemoryStorage(HERE).delete(versions_at(HERE).path(number))
    table.take_over()
    assert isinstance(table.fold(append("honest"))[0], Committed)


def test_a_forgotten_compaction_is_brought_from_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_BYTES", 1)
    table = Compacted()
    table.fold(append("one"))
    first = table.compact()
    for number in range(3):
        table.fold(append(f"more-{number}", read=table.state.version))
        table.compact()
    table.forget_uuids()
    assert is_known(table.fold(append("one"))[0], "one-0.lance", first)


ACTS = st.lists(
    st.tuples(st.sampled_from(["new", "again", "compact", "take over"]), st.integers(0, 9)), max_size=25
)


@settings(max_examples=60)
@given(acts=ACTS)
def test_whatever_comes_a_proposal_without_app_id_is_folded_once(acts: list[tuple[str, int]]) -> None:
    """Only two uuids are remembered, so most repeats have to be known by their files."""
    MemoryStorage.forget(NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakefold_committer.fold.keys.MAX_UUIDS", 2)
        table, sent = Compacted(), list[int]()
        for act, number in acts:
            if act == "compact" and table.state.fragments.count:
                table.compact()
            elif act == "take over":
                table.take_over()
            elif act == "new":
                read = max(1, table.state.version - number)
                assert isinstance(table.fold(append(f"p{len(sent)}", read=read))[0], Committed)
                sent.append(read)
            elif act == "again" and sent:
                chosen = number % len(sent)
                result = table.fold(append(f"p{chosen}", read=sent[chosen]))[0]
                assert isinstance(result, Duplicate | Invalid)
        assert sum(fragment.physical_rows for fragment in table.state.fragments) == 3 * len(sent)


@given(st.sets(st.text(max_size=5)), st.sets(st.text(max_size=5)))
def test_digests_hold_the_names_that_they_were_made_of(names: set[str], others: set[str]) -> None:
    digests = FileDigests.of(names)
    assert {text for text in names | others if text in digests} == names
    assert len(digests.digests) == 16 * len(names)
