"""Cost by change: a version of a large table takes the steps that a version of a small table takes.

Steps of the interpreter are counted, not time, so that a busy machine changes nothing.
"""

from __future__ import annotations

import sys
import tracemalloc
from array import array
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from lakefold_committer.fold.fold import FoldedTable, fold
from lakefold_log.codec.envelope import encode
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import DeletionFile
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import Committed
from lakefold_table.format import Fetched
from lakefold_table.lance.invariants.step import AT_ONCE
from lakefold_table.lance.manifests.chunks import MAX_CHUNK_BYTES
from lakefold_table.lance.manifests.naming import Scheme
from lakefold_table.lance.rows.deletions import ARRAY, encode_deletions
from lakefold_table.lance.state import LanceState
from lakefold_table.storage.local import LocalStorage
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, INPUTS, URI, append, created, entry, parsed_packed, with_packed
from tests.properties.hostile import forget_peak, peak
from tests.tables import Recording

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from lakefold_table.lance.manifests.fragments import Fragments

SMALL, LARGE = 20, 100_000
STEPS_PER_FRAGMENT = 400
STEPS_PER_NAME = 150
MANY_BYTES = 6 * MAX_CHUNK_BYTES
FIRST_ROW = encode_deletions(Bitmap([0]), ARRAY)
CHANGES = pytest.mark.parametrize("change", ["append", "delete", "remove"])


@cache
def grown(fragments: int) -> FoldedTable:
    """A table of so many fragments, whose newest version was small."""
    table = created()
    table.fold(append("many", fragments=fragments - 1))
    table.fold(append("one"))
    return table.table


def listed(table: FoldedTable) -> Fragments:
    assert isinstance(table.state, LanceState)
    return table.state.fragments


def proposed(table: FoldedTable, change: str) -> Envelope:
    """An Append of a single fragment, or a Delete in the middle: of a row, or of a whole fragment."""
    state = table.state
    assert isinstance(state, LanceState)
    uuid = f"{change}-{state.version}"
    if change == "append":
        return append(uuid, read=state.version)
    proposal = Envelope(table=URI)
    proposal.lance.uuid = uuid
    proposal.lance.read_version = state.version
    number = list(state.fragments.ids())[state.fragments.count // 2 + state.version]  # each time another
    if change == "remove":
        proposal.lance.delete.deleted_fragment_ids.append(number)
        return proposal
    fragment = state.fragments.get([number])[number]
    fragment.deletion_file.CopyFrom(DeletionFile(read_version=1, id=7, num_deleted_rows=1))
    proposal.lance.delete.updated_fragments.append(fragment)
    return proposal


def folded(table: FoldedTable, proposal: Envelope) -> FoldedTable:
    """The table after the proposal, up to the buffers of its version."""
    state = table.state
    assert isinstance(state, LanceState)
    group = [entry(proposal, state.version)]
    needs = FORMAT.requirements(state, group)
    fetched = Fetched(contents=dict.fromkeys(needs.contents, FIRST_ROW))
    result = fold(FORMAT, table, group, fetched, INPUTS)
    assert all(isinstance(outcome.result, Committed) for outcome in result.outcomes), result.outcomes
    return result.table


def steps(act: Callable[[], object]) -> int:
    """How many instructions the interpreter executes for it."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        act()
    finally:
        sys.settrace(before)
    return count


@CHANGES
def test_a_version_of_a_large_table_takes_no_more_steps(change: str) -> None:
    counted = []
    for size in (SMALL, LARGE):
        table = grown(size)
        table = folded(table, proposed(table, change))  # what is loaded once for all is not counted
        counted.append(steps(partial(folded, table, proposed(table, change))))
    assert counted[1] < counted[0] * 1.1


@CHANGES
def test_a_version_of_a_large_table_shares_all_but_few_bytes(change: str) -> None:
    table = grown(LARGE)
    before, proposal = listed(table), proposed(table, change)
    tracemalloc.start()
    try:
        after = listed(folded(table, proposal))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    shared = {id(chunk.encoded) for chunk in before.chunks}
    assert sum(len(chunk.encoded) for chunk in after.chunks if id(chunk.encoded) not in shared) < MANY_BYTES
    assert peak < MANY_BYTES < after.size / 2


def claimed(fragments: int) -> bytes:
    """An envelope too large for a message, as it is stored beside its table."""
    return encode(append("claimed", read=2, fragments=fragments))


def committed(table: FoldedTable, data: bytes) -> int:
    """Folds such an envelope with the sizes of all its files. Returns the bytes of its version."""
    envelope, packed = parsed_packed(data)
    single = with_packed(entry(envelope, 9), envelope, packed)
    assert isinstance(table.state, LanceState)
    needs = FORMAT.requirements(table.state, [single])
    sizes = {key: array("q", (1000 for paths in files for _ in paths)) for key, files in needs.listed.items()}
    assert [len(size) for size in sizes.values()] == [packed.count if packed else 0]
    result = fold(FORMAT, table, [single], Fetched(listed=sizes), INPUTS)
    assert isinstance(result.outcomes[0].result, Committed)
    assert result.publication is not None
    return sum(map(len, result.publication.buffers))


def test_each_fragment_of_a_large_proposal_takes_few_steps() -> None:
    """A million of them take seconds: nothing is done twice, and most of it not one by one."""
    table = grown(SMALL)
    few, many = claimed(AT_ONCE), claimed(3 * AT_ONCE)
    committed(table, few)
    counted = [steps(partial(committed, table, data)) for data in (few, many)]
    assert (counted[1] - counted[0]) / (2 * AT_ONCE) < STEPS_PER_FRAGMENT


def large_proposal_memory() -> tuple[int, int]:
    """The bytes that this process takes to fold a large proposal, and the bytes of its version."""
    table, data = grown(SMALL), claimed(LARGE)
    committed(table, claimed(1))
    before = forget_peak()
    size = committed(table, data)
    return peak() - before, size


def test_a_large_proposal_takes_memory_by_the_bytes_of_its_version() -> None:
    """As the kernel counts it: decoded messages are in memory that Python doesn't count.

    A process of its own measures it: in one that ran other tests before, the allocator takes more. The
    process takes 3.1 times the version's bytes.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        taken, size = process.submit(large_proposal_memory).result(timeout=120)
    assert size < taken < 4 * size


def test_opening_a_table_asks_nothing_about_its_old_versions(tmp_path: Path) -> None:
    """A hundred thousand names are listed in a tenth of a second, once; each costs little."""
    (tmp_path / FORMAT.folder).mkdir()
    store = Recording(LocalStorage(tmp_path))
    versions = Versions(store, FORMAT.folder, FORMAT.detect)
    counted: list[int] = []
    asked: list[list[str]] = []
    for count in (3, 500, 1000):
        for number in range(1, count + 1):
            (tmp_path / Scheme.V2.path(number)).touch()
        store.calls.clear()
        counted.append(steps(versions.latest))
        asked.append(list(store.calls))
        assert versions.latest() == count
    assert asked == [["list"]] * 3
    assert (counted[2] - counted[1]) / 500 < STEPS_PER_NAME


def deleting(table: FoldedTable, count: int) -> Callable[[], object]:
    """Folds so many Deletes as a group, each of a row of another fragment."""
    state = table.state
    assert isinstance(state, LanceState)
    proposals = []
    for number in range(count):
        proposal = proposed(table, "delete")
        proposal.lance.uuid = f"delete-{number}"
        (fragment,) = proposal.lance.delete.updated_fragments
        fragment.CopyFrom(state.fragments.get([number])[number])
        fragment.deletion_file.CopyFrom(DeletionFile(read_version=1, id=7, num_deleted_rows=1))
        proposals.append(proposal)
    group = [entry(envelope, state.version + location) for location, envelope in enumerate(proposals)]
    fetched = Fetched(contents=dict.fromkeys(FORMAT.requirements(state, group).contents, FIRST_ROW))

    def act() -> None:
        outcomes = fold(FORMAT, table, group, fetched, INPUTS).outcomes
        assert all(isinstance(outcome.result, Committed) for outcome in outcomes), outcomes[-1]

    return act


def test_a_delete_among_many_of_one_version_takes_no_more_steps() -> None:
    """Each is compared with all before it in the group at once, otherwise thousands would take minutes."""
    table = grown(LARGE)
    deleting(table, 2)()
    few, many = (steps(deleting(table, count)) for count in (50, 100))
    assert many < few * 2.2
