"""No table begins inside another table's folder, or around a table.

Promise: no-table-inside-another (docs/operations/promises.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest

from lakefold_committer.replay.replay import replay
from lakefold_committer.replay.version_replay import Verdict
from lakefold_committer.tables.branches import open_branch
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.writing.batch import open_or_create
from lakefold_ingest.writing.settings import WriteSettings
from lakefold_log.client.admin import KafkaConfig
from lakefold_log.client.topic_names import Topics
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.delta.actions.paths import CHANGE_DATA
from lakefold_table.entry import Committed, Invalid
from lakefold_table.errors import InvalidError, NotATableError
from lakefold_table.formats import BUILT_IN
from lakefold_table.lance.manifests.naming import INDICES, TRANSACTIONS, VERSIONS
from lakefold_table.lance.refs.names import BRANCHES, TAGS
from lakefold_table.lance.rows.deletions import FOLDER as DELETIONS
from lakefold_table.lance.state import LanceState
from lakefold_table.nesting import PARTS, needs_around
from lakefold_table.roots import parents
from lakefold_table.storage.conditions import FOLDER as PROBE
from lakefold_table.uri import canonical
from lakefold_table.versions.drop_note import DELETED
from lakefold_table.versions.drop_note import INSIDE as DROPPED
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.table_address import TableAddress
from tests.folding import (
    FORMAT,
    START_US,
    append,
    changed,
    creation,
    entries,
    entry,
    fold_at,
    opened,
    versions_at,
)
from tests.memory_storage import MemoryStorage
from tests.proposals import rows
from tests.replaying import Listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_table.entry import Result

NAME = "neighbours"
LAKE = f"memory://{NAME}/lake"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    MemoryStorage.forget(NAME)


def at(uri: str, envelope: Envelope | None = None) -> Envelope:
    return changed(envelope or creation(), lambda it: setattr(it, "table", uri))


def clone(source: str, to: str, *, name: str = "", envelope_branch: str = "") -> Envelope:
    """A shallow clone of the source's first version, as a branch if it has a name."""
    envelope = Envelope(table=to, branch=envelope_branch)
    envelope.lance.uuid, envelope.lance.read_version = f"clone {name}", 1
    made = envelope.lance.clone
    made.is_shallow, made.ref_version, made.ref_path = True, 1, source
    if name:
        made.branch_name = name
    return envelope


def folded(uri: str, envelope: Envelope, offset: int = 0, roots: list[str] | None = None) -> Result:
    return fold_at(opened(uri, roots=roots), [envelope], offset)[0].result


def begun(uri: str) -> str:
    assert folded(uri, at(uri)) == Committed(1)
    return uri


@pytest.mark.parametrize(
    ("root", "above"),
    [
        ("s3://lake/a/b", ["s3://lake/a", "s3://lake"]),
        ("s3://lake", []),
        ("file:///a/b/c", ["file:///a/b", "file:///a"]),
        ("file:///a /b", ["file:///a%20"]),
        (
            "s3+ddb://lake/a/b?ddbTableName=T",
            ["s3+ddb://lake/a?ddbTableName=T", "s3+ddb://lake?ddbTableName=T"],
        ),
    ],
)
def test_the_folders_above_a_root(root: str, above: list[str]) -> None:
    assert [*parents(root)] == above
    assert [canonical(text) for text in above] == above


@pytest.mark.parametrize("inside", ["inner", "x/y/z", "data/inner", "tree/b", "_versions/x", "tree/b/inner"])
def test_a_creation_inside_another_table_is_refused_and_names_it(inside: str) -> None:
    outer = begun(f"{LAKE}/a")
    begun(f"{LAKE}/other")
    uri = f"{outer}/{inside}"
    for envelope in (at(uri), clone(f"{LAKE}/other", uri)):
        refused = folded(uri, envelope)
        assert isinstance(refused, Invalid)
        assert refused.message.startswith(f"the folder {uri} is inside the table {outer},")
        assert "outside that table" in refused.hint
        assert not MemoryStorage(uri).anything_at_root()


@pytest.mark.parametrize("part", sorted(PARTS))
def test_no_table_is_called_like_a_part_of_one(part: str) -> None:
    """A table `lake/_delta_log` would make a Delta table of the folder above, and hide the tables in it."""
    for uri in (f"{LAKE}/{part}", f"{LAKE}/{part}/t", f"{LAKE}/{part.upper()}", f"{LAKE}/%5F{part[1:]}"):
        refused = folded(uri, at(uri))
        assert isinstance(refused, Invalid)
        assert "is the name of a part of a table" in refused.message
        assert not MemoryStorage(uri).anything_at_root()


def test_each_folder_that_a_format_makes_is_a_part() -> None:
    names = {VERSIONS, TRANSACTIONS, INDICES, DELETIONS, CHANGE_DATA, TAGS, BRANCHES, DROPPED, PROBE, DELETED}
    folders = {name.partition("/")[0] for name in names} | {each.folder for each in BUILT_IN}
    assert folders - PARTS == set()


def test_a_writer_creates_no_table_that_is_called_like_a_part(tmp_path: Path) -> None:
    """It is refused before a broker is asked: nothing listens at this address."""
    kafka, topics = KafkaConfig("127.0.0.1:1"), Topics("a", "b", "c")
    settings = WriteSettings(table=f"file://{tmp_path}/_delta_log", kafka=kafka, topics=topics)
    with pytest.raises(InvalidError, match="is the name of a part of a table"):
        open_or_create(settings, Key("app", 1), lambda: pa.schema([("a", pa.int64())]))
    assert [*tmp_path.iterdir()] == []


def test_the_nearest_of_several_tables_around_it_is_named() -> None:
    begun(f"{LAKE}/a")
    inner = f"{LAKE}/a/b"
    assert folded(inner, at(inner), roots=[inner]) == Committed(1)
    refused = folded(f"{LAKE}/a/b/c", at(f"{LAKE}/a/b/c"))
    assert isinstance(refused, Invalid)
    assert f"inside the table {LAKE}/a/b," in refused.message


def test_a_table_beside_another_one_is_no_neighbour() -> None:
    begun(f"{LAKE}/a")
    begun(f"{LAKE}/ab")
    begun(f"{LAKE}/b/a")


def test_a_table_around_another_one_is_not_begun() -> None:
    begun(f"{LAKE}/a/data")
    refused = folded(f"{LAKE}/a", at(f"{LAKE}/a"))
    assert isinstance(refused, Invalid)
    assert refused.message.startswith(f"the table {LAKE}/a/data is inside the folder {LAKE}/a,")
    begun(f"{LAKE}/b/inner")
    with pytest.raises(NotATableError, match="contains files"):
        opened(f"{LAKE}/b")


def test_branches_are_inside_their_table_whatever_they_are_sent_to() -> None:
    main = begun(f"{LAKE}/a")
    for name in ("b", "b/c"):
        line = f"{main}/tree/{name}"
        table = opened(line)
        sent = clone(main, main, name=name, envelope_branch=name)
        assert fold_at(table, [sent], 3)[0].result == Committed(1), name
    own = f"{main}/tree/own"
    assert folded(own, clone(main, own, name="own")) == Committed(1)


def test_what_only_calls_itself_a_branch_is_refused_as_any_other_table() -> None:
    main = begun(f"{LAKE}/a")
    uri = f"{main}/no/table/tree/b"
    refused = folded(uri, clone(main, uri, name="b"))
    assert isinstance(refused, Invalid)
    assert f"inside the table {main}," in refused.message


def test_a_table_that_is_inside_another_one_already_is_folded_and_gets_branches(tmp_path: Path) -> None:
    """Older releases, and other clients, let it begin there."""
    lance.write_dataset(rows([1]), str(tmp_path / "outer"))
    lance.write_dataset(rows([2]), str(tmp_path / "outer" / "inner"))
    inner = canonical(tmp_path / "outer" / "inner")
    sent = clone(inner, inner, name="b", envelope_branch="b")
    assert fold_at(open_branch(TableAddress(inner), "b"), [sent], 0)[0].result == Committed(1, rows_added=1)
    refused = fold_at(open_branch(TableAddress(f"{inner}/x"), ""), [at(f"{inner}/x")], 0)[0].result
    assert isinstance(refused, Invalid)
    assert f"inside the table {inner}," in refused.message


def test_only_below_the_committers_roots_it_is_looked() -> None:
    begun(f"{LAKE}/a")
    assert folded(f"{LAKE}/a/inner", at(f"{LAKE}/a/inner"), roots=[f"{LAKE}/a/inner"]) == Committed(1)


def test_it_is_asked_only_when_a_table_begins() -> None:
    uri = f"{LAKE}/a/b"
    begun(uri)
    state = opened(uri).table.state
    assert isinstance(state, LanceState)
    assert FORMAT.requirements(None, entries([at(uri)], 0)).neighbours == needs_around(uri).neighbours
    assert len(needs_around(uri).neighbours) == 4
    for envelope in (at(uri), at(uri, append("f")), clone(f"{LAKE}/x", uri)):
        assert not FORMAT.requirements(state, entries([envelope], 1)).neighbours


def test_a_refusal_that_a_later_version_records_is_the_same_in_a_replay() -> None:
    """The outer table is gone by then, so that only the record shows where it was."""
    outer, uri = begun(f"{LAKE}/a"), f"{LAKE}/a/inner"
    sent = [at(uri), at(uri, creation(uuid="again"))]
    # At one time, so that they may have been folded together.
    log = [entry(envelope, offset, time_us=START_US) for offset, envelope in enumerate(sent)]
    table = opened(uri)
    assert isinstance(table.fold(log[:1]).outcomes[0].result, Invalid)
    storage = MemoryStorage(outer)
    for path in [*storage.everything()]:
        storage.delete(path)
    assert table.fold(log[1:]).outcomes[0].result == Committed(1)
    replays = list(replay(StoredTable(BUILT_IN.first, versions_at(uri)), Listed(log)))
    assert [(each.verdict, each.refused, each.notes) for each in replays] == [(Verdict.SAME, 1, ())]


def test_a_refusal_that_shares_its_version_with_the_branch_that_begins_is_the_same_in_a_replay() -> None:
    main = begun(f"{LAKE}/a")
    uri = f"{main}/tree/b"
    log = [at(uri), clone(main, uri, name="b")]
    results = [outcome.result for outcome in fold_at(opened(uri), log, 0)]
    assert [type(result) for result in results] == [Invalid, Committed]
    replays = list(replay(StoredTable(BUILT_IN.first, versions_at(uri)), Listed(entries(log, 0))))
    assert [(each.verdict, each.refused, each.notes) for each in replays] == [(Verdict.SAME, 1, ())]
