"""What differs from what the log gives is named: by field, fragment, record, file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.differences import differences
from lakefold_table.lance.manifests.codec import decode_file
from lakefold_table.lance.manifests.fragments import Fragments
from lakefold_table.marks.record import RECORD
from lakefold_table.versions.stored_table import StoredTable
from tests.changing import MemoryRows
from tests.encoding import encode_file
from tests.folding import (
    FORMAT,
    add_fragment,
    entries,
    opened,
    versions_at,
)
from tests.memory_storage import MemoryStorage
from tests.replaying import HERE, NAME, Listed, fold_all, replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def tamper(version: int, change: Callable[[Manifest, Transaction], object], *, without: bool = False) -> None:
    """Writes the version's file again with a change; `without` its fragments."""
    versions = versions_at(HERE)
    state = decode_file(versions.read(version))
    assert state.transaction is not None
    change(state.head, state.transaction)
    fragments = Fragments() if without else state.fragments
    data = encode_file(state.head, fragments, state.index_section, state.transaction)
    versions.storage.put(versions.path(version), data)


TAMPERED: dict[str, Callable[[Manifest, Transaction], object]] = {
    "manifest.config[x]: stored 'y', folded absent": lambda head, _: head.config.update(x="y"),
    "manifest.timestamp: stored": lambda head, _: head.timestamp.FromSeconds(5),
    "manifest.branch: stored 'b', folded absent": lambda head, _: setattr(head, "branch", "b"),
    "transaction.uuid: stored 'x'": lambda _, made: setattr(made, "uuid", "x"),
    "transaction.append: stored": lambda _, made: add_fragment(made.append.fragments.add(), "more"),
    "transaction.transaction_properties[lakefold.time-us]: stored '5'": lambda _, made: (
        made.transaction_properties.update({"lakefold.time-us": "5"})
    ),
    "transaction.transaction_properties[more]: stored 'y', folded absent": lambda _, made: (
        made.transaction_properties.update(more="y")
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_changed_file_is_named_by_what_was_changed_in_it(what: str) -> None:
    fold_all(2, 1, 5)
    tamper(2, TAMPERED[what])
    replays = replayed()
    assert [each.verdict for each in replays] == [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME]
    (difference,) = replays[1].differences
    assert str(difference).startswith(what)


def test_a_lost_fragment_is_named() -> None:
    fold_all(2, 1, 5)
    tamper(2, lambda *_: None, without=True)
    (difference,) = replayed()[1].differences
    assert str(difference) == "fragment 0: stored absent, folded there"


def test_a_changed_record_is_named_by_answer() -> None:
    """It holds another version's record: each field of it differs by name."""
    fold_all(2, 1, 5)
    versions = versions_at(HERE)
    other = StoredTable(FORMAT, versions).read_state(2).properties[RECORD]
    tamper(3, lambda _, made: made.transaction_properties.update({RECORD: other}))
    replays = replayed()[2]
    assert replays.verdict is Verdict.DIFFERENT
    assert "record.base_version: stored 1, folded 2" in map(str, replays.differences)


def test_bytes_that_are_no_manifest_any_more_are_a_difference_and_the_next_version_is_still_compared() -> (
    None
):
    fold_all(2, 1, 5)
    versions = versions_at(HERE)
    data = versions.read(2)
    versions.storage.put(versions.path(2), [data[:-8] + b"x" * 8])
    replays = replayed()
    assert [each.verdict for each in replays] == [Verdict.SAME, Verdict.DIFFERENT, Verdict.SAME]
    assert [difference.what for difference in replays[1].differences] == ["file"]


def test_a_record_taken_away_is_no_foreign_version() -> None:
    fold_all(2, 1, 5)
    tamper(2, lambda _, made: made.transaction_properties.clear())
    replays = replayed()
    assert replays[1].verdict is Verdict.DIFFERENT
    assert str(replays[1].differences[0]).startswith("record: stored absent")


def test_equal_files_have_no_differences_and_a_layout_is_one() -> None:
    fold_all(2, 1)
    data = versions_at(HERE).read(2)
    assert differences(data, data) == []
    (difference,) = differences(b"no manifest", data)
    assert difference.what == "file"


def test_files_that_a_version_needs_are_compared_too() -> None:
    table = MemoryRows()
    offset = table.offset
    first, second = table.delete({0: [1]}), table.delete({0: [2]})
    group = entries([first, second], offset)
    publication = opened(table.uri).fold(group).publication
    assert publication is not None
    versions, log = versions_at(table.uri), Listed(group)
    (reported,) = replay(StoredTable(BUILT_IN.first, versions), log, 3)
    assert (reported.verdict, reported.committed) == (Verdict.SAME, 2)
    ((path, size),) = [(file.path, len(file.data)) for file in publication.before]
    table.storage.put(path, [b"other bytes"])
    (reported,) = replay(StoredTable(BUILT_IN.first, versions), log, 3)
    assert reported.verdict is Verdict.DIFFERENT
    assert [str(difference) for difference in reported.differences] == [
        f"file {path}: stored 11 bytes, folded {size} bytes"
    ]
    table.storage.delete(path)
    (reported,) = replay(StoredTable(BUILT_IN.first, versions), log, 3)
    assert [str(difference) for difference in reported.differences] == [
        f"file {path}: stored absent, folded {size} bytes"
    ]
