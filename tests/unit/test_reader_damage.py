"""Versions with impossible content give an error of ours, never a traceback or wrong rows."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from lakefold_reader.formats import source_on
from lakefold_reader.lance.changed_rows import ChangedRows
from lakefold_reader.snapshot.snapshot import table_of
from lakefold_reader.tail.tail import tail_of
from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.codec import decode_file
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.marks.record import TIME
from tests.encoding import encode_file
from tests.folding import FORMAT, column
from tests.foreign import commit
from tests.memory_storage import MemoryStorage
from tests.tables import Folded, fragments_only

if TYPE_CHECKING:
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_reader.format.source import Source

COUNTER = itertools.count()


@pytest.fixture
def source() -> Source:
    """A table of two versions."""
    storage = MemoryStorage(f"memory://damage-{next(COUNTER)}/t")
    Folded(storage).fold(fragments_only(storage.uri, 2))
    return source_on(storage)


@pytest.mark.parametrize("seconds", [2**62, -(2**62)])
def test_a_time_beyond_all_numbers_is_the_first_of_all(source: Source, seconds: int) -> None:
    """As pylance has it (Lance fact 2.6)."""

    def change(head: Manifest) -> None:
        head.timestamp.seconds = seconds

    commit(source.uri, "update_config", change)
    assert table_of(source).timestamp == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_time_beyond_all_years(source: Source) -> None:
    def change(head: Manifest) -> None:
        head.timestamp.seconds = 253_402_300_800

    commit(source.uri, "update_config", change)
    with pytest.raises(DamagedError, match="time is not in the years"):
        _ = table_of(source).timestamp
    with pytest.raises(DamagedError, match="time is not in the years"):
        list(table_of(source).history())
    with pytest.raises(DamagedError, match="time is not in the years"):
        list(tail_of(source, 2))


@pytest.mark.parametrize("parent", [7, 9])
def test_columns_that_are_their_own_parents(source: Source, parent: int) -> None:
    fields = [column("x", 7, "struct", parent=parent), column("y", 9, "struct", parent=7)]

    def change(head: Manifest) -> None:
        del head.fields[:]
        head.fields.extend([column("c", 0), *fields])

    commit(source.uri, "project", change)
    with pytest.raises(DamagedError):
        repr(table_of(source))
    with pytest.raises(DamagedError):
        list(tail_of(source, 2))


@pytest.mark.parametrize("files", [0, 1])
def test_an_append_that_its_version_does_not_hold(source: Source, files: int) -> None:
    """The list of fragments names other files, or none."""
    state = decode_file(source.versions.read(2))
    assert state.transaction is not None
    fragments = list(state.fragments)
    for fragment in fragments:
        del fragment.files[files:]
        for file in fragment.files:
            file.path = f"other-{file.path}"
    listed = Fragments().added(
        [Numbered(fragment.id, fragment.SerializeToString(), 1) for fragment in fragments]
    )
    source.storage.put(source.versions.path(2), encode_file(state.head, listed, b"", state.transaction))
    (change,) = tail_of(source, 1)
    assert isinstance(change._effect, ChangedRows)
    with pytest.raises(DamagedError, match="fragment of its own transaction"):
        change._effect._id_of(state.transaction.append.fragments[0])


@pytest.mark.parametrize("text", ["9" * 5000, "-1", "٣", ""])
def test_a_head_whose_time_is_no_number_is_not_trusted(source: Source, text: str) -> None:
    state = FORMAT.decode(source.versions.path(2), source.versions.read(2))
    assert state.transaction is not None
    state.transaction.transaction_properties[TIME] = text
    data = encode_file(state.head, state.fragments, b"", state.transaction)
    source.storage.put(source.versions.path(2), data)
    step = source.summary(2)
    assert step is not None
    assert step.metadata is not None
    assert step.time_us == state.time_us
