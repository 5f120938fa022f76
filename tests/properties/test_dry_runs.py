"""A dry run of a file has the outcomes of the fold, whatever its entries find that earlier ones have made."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefold.branching.ref_proposals import deleting
from lakefold_committer.fold.grouping import Limits
from lakefold_committer.replay.file_fold import fold_file
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
from lakefold_table.branch_names import root_of
from lakefold_table.position import LogId
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, FORMATS, append, changed, creation, entries
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.entry import Outcome

NAME = "dry_runs"
HERE = f"memory://{NAME}/lake/t"
BRANCHES = st.sampled_from(["", "dev", "next", "dev/inner"])
VERSIONS = st.integers(1, 5)
TAGS = st.sampled_from(["x", "y"])


def cloned(branch: str, source: str, version: int) -> Envelope:
    """The proposal that begins a branch, or a table of the same name in the place of the main branch."""
    envelope = Envelope(table=HERE, branch=branch)
    envelope.lance.read_version = version
    clone = envelope.lance.clone
    clone.is_shallow, clone.ref_version, clone.ref_path = True, version, root_of(HERE, source)
    if branch:
        clone.branch_name = branch
    if source:
        clone.ref_name = source
    return envelope


def appended(branch: str, read: int) -> Envelope:
    return Envelope(table=HERE, branch=branch, lance=append(read=read).lance)


def restored(branch: str, version: int) -> Envelope:
    envelope = Envelope(table=HERE, branch=branch)
    envelope.lance.restore.version = version
    return envelope


def created(_nothing: None) -> Envelope:
    return Envelope(table=HERE, create=creation().create, lance=creation().lance)


def set_to(name: str, branch: str, version: int, *, move: bool) -> Envelope:
    return Envelope(table=HERE, tag=Tag(name=name, branch=branch, version=version, move=move))


def removed(name: str) -> Envelope:
    return Envelope(table=HERE, tag=Tag(name=name, delete=True))


PROPOSALS = st.one_of(
    st.builds(cloned, BRANCHES, BRANCHES, VERSIONS),
    st.builds(cloned, st.sampled_from(["dev", "next"]), st.just(""), st.integers(1, 3)),
    st.builds(appended, BRANCHES, VERSIONS),
    st.builds(restored, BRANCHES, VERSIONS),
    st.builds(created, st.none()),
    st.builds(set_to, TAGS, BRANCHES, VERSIONS, move=st.booleans()),
    st.builds(removed, TAGS),
    st.builds(partial(deleting, HERE), BRANCHES),
)


def numbered(proposals: Sequence[Envelope]) -> list[Envelope]:
    """The proposals with uuids and files of their own."""

    def named(number: int, it: Envelope) -> None:
        if it.HasField("lance"):
            it.lance.uuid = f"uuid-{number}"
            for fragment in it.lance.append.fragments:
                fragment.files[0].path = f"{number}.lance"

    return [changed(envelope, partial(named, number)) for number, envelope in zip(count(), proposals)]


def opened(branch: str) -> TableWriter:
    """A branch, opened without a check of files, as none exist."""
    uri = root_of(HERE, branch)
    versions = Versions.of(MemoryStorage(uri), FORMAT, is_branch=bool(branch))
    return TableWriter(StoredTable(FORMAT, versions), check_sizes=False)


def folded(proposals: Sequence[Envelope], most: int, *, dry_run: bool, log: str = "log") -> list[Outcome]:
    log_entries = entries(proposals, 0, LogId(LogId.FILE_CLUSTER, log, 0))
    return list(fold_file(opened, HERE, FORMATS, log_entries, Limits(most, 1 << 20), dry_run=dry_run))


DEV, NEXT = cloned("dev", "", 1), cloned("next", "dev", 1)


@example([], [DEV, set_to("x", "dev", 1, move=False), removed("x"), set_to("x", "dev", 1, move=False)], 1)
@example([DEV], [set_to("x", "dev", 1, move=False), deleting(HERE, "dev"), removed("x")], 1)
@example([DEV, set_to("x", "dev", 1, move=False)], [removed("x"), deleting(HERE, "dev")], 1)
@example([DEV], [deleting(HERE, "dev"), set_to("x", "dev", 1, move=False), NEXT, DEV], 1)
@example([DEV], [NEXT, deleting(HERE, "dev"), deleting(HERE, "next"), deleting(HERE, "dev")], 1)
@example([], [appended("", 1), cloned("dev", "", 2), appended("dev", 1), restored("", 2)], 1)
@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(PROPOSALS, max_size=5), st.lists(PROPOSALS, min_size=2, max_size=8), st.sampled_from([1, 3, 100])
)
def test_a_dry_run_has_the_outcomes_of_the_fold(
    before: list[Envelope], proposals: list[Envelope], most: int
) -> None:
    MemoryStorage.forget(NAME)
    store = MemoryStorage(HERE)
    first = numbered([created(None), *before])
    folded(first, most, dry_run=False, log="before")
    log = numbered([*first, *proposals])[len(first) :]
    stored = {path: store.get(path) for path in store.everything()}
    previewed = folded(log, most, dry_run=True)
    assert {path: store.get(path) for path in store.everything()} == stored
    assert previewed == folded(log, most, dry_run=False)


def test_a_damaged_tag_that_an_entry_removes_hinders_no_deletion() -> None:
    MemoryStorage.forget(NAME)
    folded(numbered([created(None), DEV]), 1, dry_run=False, log="before")
    MemoryStorage(HERE).put("_refs/tags/x.json", [b"?"])
    log = [removed("x"), deleting(HERE, "dev")]
    previewed = folded(log, 1, dry_run=True)
    assert [outcome.kind for outcome in previewed] == ["committed", "committed"]
    assert previewed == folded(log, 1, dry_run=False)
