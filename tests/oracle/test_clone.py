"""Clones and branches: the first version we fold is pylance's, and pylance continues from ours.

Promise: keys-of-a-branch (docs/operations/promises.md).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pytest

import lakefold
from lakefold_committer.tables.branches import open_branch
from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.errors import NotATableError, NotFoldedYetError
from lakefold_table.lance.state import LanceState
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical, local_path
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.table_address import TableAddress
from lakefold_table.versions.versions import Versions
from tests.folding import FORMAT, entries
from tests.oracle.committing import fold, owned, proposal, written
from tests.oracle.manifests import manifest_files
from tests.oracle.operations import differences, version_of
from tests.proposals import append, creation, rows
from tests.whole_versions import broken_invariants

if TYPE_CHECKING:
    from lakefold_table.entry import Result

Change = Callable[[Envelope], object]


@pytest.fixture(params=[False, True], ids=["addresses", "stable"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Versions 1 to 6: rows, an index, a deletion file, keys, a base; a tag on 2, a branch with a version."""
    path = tmp_path / "t"
    dataset = lance.write_dataset(
        rows(range(20)), str(path), max_rows_per_file=10, enable_stable_row_ids=request.param
    )
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id in (1, 2)")
    dataset = lance.dataset(str(path))
    dataset.update_config({"k": "v"})
    dataset.update_metadata({"m": "1"})
    dataset.add_bases([lance.DatasetBasePath("/elsewhere", "other")])
    dataset = lance.dataset(str(path))
    dataset.tags.create("early", 2)
    branch = dataset.create_branch("side/one", 4)
    lance.write_dataset(rows([100]), branch.uri, mode="append")
    return path


def made_by(table: Path) -> Transaction:
    transaction = version_of(table).transaction
    assert transaction is not None
    return transaction


def branching(source: Path, name: str) -> Transaction:
    """The transaction that makes a branch of the newest version of the main branch."""
    transaction = Transaction(uuid=f"branch {name}", read_version=6)
    clone = transaction.clone
    clone.is_shallow, clone.ref_version, clone.ref_path, clone.branch_name = True, 6, str(source), name
    return transaction


def folded(target: Path, transaction: Transaction, change: Change | None = None) -> Result:
    """Our outcome for a clone that would begin a table at `target`."""
    envelope = Envelope(table=canonical(target))
    envelope.lance.CopyFrom(transaction)
    if change is not None:
        change(envelope)
    table = owned(target)
    (result,) = fold(table, [envelope], 0)
    if isinstance(result, Committed):
        assert isinstance(table.table.state, LanceState)
        met = broken_invariants(None, table.table.state).keys()
        assert met <= {"deletion-files-match"}, "whose files nobody has read here"
    return result


REFERENCES: dict[str, Any] = {
    "newest": 6,
    "older": 3,
    "tag": "early",
    "branch": ("side/one", None),
    "fork": ("side/one", 4),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_shallow_clone_begins_with_the_same_version(source: Path, tmp_path: Path, name: str) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    lance.dataset(str(source)).shallow_clone(str(theirs), REFERENCES[name])
    result = folded(ours, made_by(theirs))
    made = version_of(ours)
    assert isinstance(result, Committed)
    assert result.version == made.manifest.version == version_of(theirs).manifest.version
    assert differences(version_of(theirs), made) == {}
    assert made.transaction is not None
    assert made.transaction.clone == made_by(theirs).clone
    assert made.transaction.read_version == made_by(theirs).read_version
    opened = lance.dataset(str(ours))
    opened.validate()
    assert opened.to_table() == lance.dataset(str(theirs)).to_table()
    assert lakefold.open(ours).to_arrow() == opened.to_table()
    assert result.rows_added == opened.count_rows()


@pytest.mark.parametrize("name", ["newest", "branch"])
def test_a_deep_clone_begins_with_the_same_version(source: Path, tmp_path: Path, name: str) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    lance.dataset(str(source)).deep_clone(str(theirs), REFERENCES[name])
    shutil.copytree(theirs, ours, ignore=shutil.ignore_patterns("_versions", "_transactions"))
    result = folded(ours, made_by(theirs))
    assert isinstance(result, Committed)
    assert differences(version_of(theirs), version_of(ours)) == {}
    shutil.rmtree(source)
    opened = lance.dataset(str(ours))
    opened.validate()
    assert opened.to_table(filter="id > 5") == lance.dataset(str(theirs)).to_table(filter="id > 5")


BRANCHES = {"newest": None, "older": 3, "tag": "early", "branch": ("side/one", None)}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_begins_with_the_same_version(source: Path, tmp_path: Path, name: str) -> None:
    lance.dataset(str(source)).create_branch("two", BRANCHES[name])
    theirs = lance.dataset(str(source)).branches.list()["two"]
    aside, path, file = tmp_path / "aside", source / "tree/two", source / "_refs/branches/two.json"
    path.rename(aside)
    file.unlink()
    result = folded(path, made_by(aside))
    assert isinstance(result, Committed)
    assert differences(version_of(aside), version_of(path)) == {}
    ours = lance.dataset(str(source)).branches.list()["two"]
    for key in ("parent_branch", "parent_version", "manifest_size", "metadata"):
        assert ours[key] == theirs[key]
    assert ours["branch_identifier"][:-1] == theirs["branch_identifier"][:-1]
    (version, mark), (their_version, their_mark) = (
        ours["branch_identifier"][-1],
        theirs["branch_identifier"][-1],
    )
    assert (version, len(mark)) == (their_version, len(their_mark))


def test_pylance_and_we_go_on_from_a_branch_of_ours(source: Path) -> None:
    transaction = branching(source, "ours")
    path = source / "tree/ours"
    assert isinstance(folded(path, transaction), Committed)
    branch = lance.dataset(str(source)).checkout_version(("ours", None))
    assert branch.version == 6
    assert lance.write_dataset(rows([7]), str(path), mode="append").version == 7
    lance.dataset(str(path)).delete("id = 3")
    table = owned(path)
    (result,) = fold(table, [proposal(path, written(path, rows([8])), 6)], 1)
    assert isinstance(result, Committed)
    assert result.version == 9
    opened = lance.dataset(str(source)).checkout_version(("ours", None))
    opened.validate()
    assert sorted(opened.to_table()["id"].to_pylist()) == sorted([0, *range(4, 20), 7, 8])
    (stale,) = fold(table, [proposal(path, written(path, rows([9])), 5, "stale")], 2)
    assert isinstance(stale, Rejected)
    assert stale.conflict.retryable
    assert "versions up to 6 are gone" in stale.conflict.message
    again = lance.dataset(str(source)).create_branch("again", ("ours", None))
    assert again.to_table() == opened.to_table()


def test_a_clean_up_of_the_source_spares_what_a_branch_of_ours_uses(source: Path) -> None:
    transaction = branching(source, "ours")
    assert isinstance(folded(source / "tree/ours", transaction), Committed)
    before = lakefold.open(source, branch="ours").to_arrow()
    lance.write_dataset(rows([1]), str(source), mode="overwrite")
    dataset = lance.dataset(str(source))
    dataset.tags.delete("early")
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert lakefold.open(source, branch="ours").to_arrow() == before


def test_a_committer_that_died_before_it_recorded_the_branch_leaves_it_to_the_next(source: Path) -> None:
    transaction = branching(source, "ours")
    path, file = source / "tree/ours", source / "_refs/branches/ours.json"
    folded(path, transaction)
    first = file.read_bytes()
    file.unlink()
    fold(owned(path), [proposal(path, written(path, rows([8])), 6)], 1)
    assert file.read_bytes() == first
    assert Refs(open_storage(source)).branch("ours").parent_version == 6


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "relative source": ({"ref_path": "t"}, "not an absolute path"),
    "no version": ({"ref_version": 0}, "can't begin with version 0"),
    "detached version": ({"ref_version": 2**63}, "can't begin with"),
    "version that is gone": ({"ref_version": 99, "read_version": 99}, "version 99 of .* does not exist"),
    "source that is gone": ({"ref_path": "/no/such"}, "does not exist"),
    "other read version": ({"read_version": 2}, "its read version is 2"),
    "deep branch": ({"is_shallow": False, "branch_name": "b"}, "deep clone can't be a branch"),
    "bad branch": ({"branch_name": "a..b"}, "can't be the name"),
    "branch elsewhere": ({"branch_name": "b"}, "can't be stored at"),
    "branch of too long a name": ({"branch_name": "é" * 42}, "too long"),
}


@pytest.mark.parametrize("source", [False], indirect=True)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cloned(source: Path, tmp_path: Path, name: str) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    lance.dataset(str(source)).shallow_clone(str(theirs), 6)
    values, message = REFUSED[name]
    transaction = made_by(theirs)
    for key, value in values.items():
        setattr(transaction if key == "read_version" else transaction.clone, key, value)
    result = folded(ours, transaction)
    assert isinstance(result, Invalid)
    assert re.search(message, result.message)
    assert not (ours / "_versions").exists()


@pytest.mark.parametrize("source", [False], indirect=True)
def test_a_clone_onto_a_table_is_refused(source: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    lance.dataset(str(source)).shallow_clone(str(theirs), 6)
    before = version_of(source)
    result = folded(source, made_by(theirs))
    assert isinstance(result, Rejected)
    assert not result.conflict.retryable
    assert version_of(source).manifest.fragments == before.manifest.fragments


@pytest.mark.parametrize("source", [False], indirect=True)
def test_a_source_of_features_that_we_cannot_write_is_refused(source: Path, tmp_path: Path) -> None:
    """The clone would begin without the flag that names them."""
    path = manifest_files(source)[-1]
    data = path.read_bytes()
    start = int.from_bytes(data[-16:-8], "little")
    manifest = version_of(source).manifest
    manifest.writer_feature_flags |= 64
    message = manifest.SerializeToString()
    path.write_bytes(data[:start] + len(message).to_bytes(4, "little") + message + data[-16:])
    transaction = Transaction(read_version=6)
    transaction.clone.is_shallow, transaction.clone.ref_version = True, 6
    transaction.clone.ref_path = str(source)
    result = folded(tmp_path / "ours", transaction)
    assert isinstance(result, Invalid)
    assert "can't be written: it uses feature flags" in result.message


def test_a_clone_counts_its_versions_down_whatever_the_source_does(tmp_path: Path) -> None:
    source, theirs, ours = tmp_path / "t", tmp_path / "theirs", tmp_path / "ours"
    lance.write_dataset(rows([1]), str(source), enable_v2_manifest_paths=False)
    lance.dataset(str(source)).shallow_clone(str(theirs), 1)
    assert isinstance(folded(ours, made_by(theirs)), Committed)
    assert [path.name for path in manifest_files(ours)] == [path.name for path in manifest_files(theirs)]
    assert lakefold.open(ours).count_rows() == 1


def test_a_branch_may_be_named_by_the_table_and_its_name(source: Path) -> None:
    def name(envelope: Envelope) -> None:
        envelope.table, envelope.branch = canonical(source), "ours"

    transaction = branching(source, "ours")
    assert isinstance(folded(source / "tree/ours", transaction, name), Committed)
    assert lakefold.open(source, branch="ours").version == 6
    transaction.clone.ClearField("branch_name")
    result = folded(source / "tree/other", transaction, name)
    assert isinstance(result, Invalid)
    assert "doesn't say that it is the branch ours" in result.message
    result = folded(source / "tree/other", branching(source, "other"), name)
    assert isinstance(result, Invalid)
    assert "the branch other can't be stored at" in result.message


@pytest.mark.parametrize("source", [False], indirect=True)
def test_a_branch_may_be_above_another(source: Path) -> None:
    """As `side` above `side/one`: a folder below its root exists before its first version."""
    envelope = Envelope(table=canonical(source), branch="side")
    envelope.lance.CopyFrom(branching(source, "side"))
    line = open_branch(TableAddress(envelope.table), envelope.branch)
    (outcome,) = line.fold(entries([envelope], 0)).outcomes
    assert isinstance(outcome.result, Committed)
    assert set(lance.dataset(str(source)).branches.list()) == {"side", "side/one"}
    assert lakefold.open(source, branch="side/one").version == 5
    with pytest.raises(NotATableError):
        owned(source / "tree")


@pytest.mark.parametrize("source", [False], indirect=True)
def test_a_branch_is_opened_at_a_position_of_its_own(source: Path) -> None:
    """The main branch and each other branch have positions of their own, whichever client made the branch."""
    lance.dataset(str(source)).create_branch("theirs", 6)
    made = [(name, branching(source, name)) for name in ("ours",)]
    folds: dict[int, tuple[str, int]] = {}
    for offset, (name, transaction) in enumerate(
        [*made, *[(name, None) for name in ("", "theirs", "ours", "")]]
    ):
        line = open_branch(TableAddress(canonical(source)), name)
        envelope = Envelope(table=canonical(source), branch=name)
        envelope.lance.CopyFrom(transaction or Transaction(uuid=f"{offset}", read_version=6))
        if transaction is None:
            envelope.lance.append.SetInParent()
        (outcome,) = line.fold(entries([envelope], 10 * offset)).outcomes
        assert isinstance(outcome.result, Committed), outcome
        folds[10 * offset] = name, outcome.result.version
    assert folds == {0: ("ours", 6), 10: ("", 7), 20: ("theirs", 7), 30: ("ours", 7), 40: ("", 8)}
    for offset, (name, version) in folds.items():
        assert lakefold.open(source, branch=name or "main", at_position=offset).version == version
    for offset, name, version in ((20, "main", 8), (11, "main", 8), (0, "theirs", 7), (20, "ours", 7)):
        assert lakefold.open(source, branch=name, at_position=offset).version == version
    with pytest.raises(NotFoldedYetError):
        lakefold.open(source, branch="ours", at_position=40)


@pytest.mark.parametrize("source", [False], indirect=True)
def test_what_is_damaged_beside_a_branch_does_not_stop_it(source: Path) -> None:
    file = source / "_refs/branches/ours.json"
    file.write_text("damaged")
    assert isinstance(folded(source / "tree/ours", branching(source, "ours")), Committed)
    assert file.read_text() == "damaged"
    (source / "_refs/branches/side%2Fone.json").write_text("damaged")
    transaction = branching(source, "next")
    transaction.read_version = transaction.clone.ref_version = 5
    transaction.clone.ref_name, transaction.clone.ref_path = "side/one", str(source / "tree/side/one")
    assert isinstance(folded(source / "tree/next", transaction), Committed)
    branch = Refs(open_storage(source)).branch("next")
    assert (branch.parent, branch.parent_version, branch.lineage) == ("side/one", 5, None)
    assert branch.manifest_size > 0


@pytest.mark.parametrize("source", [False], indirect=True)
def test_a_branch_that_was_copied_is_not_described_at_another_table(source: Path, tmp_path: Path) -> None:
    folded(source / "tree/ours", branching(source, "ours"))
    copy = tmp_path / "copy"
    shutil.copytree(source / "tree/ours", copy)
    before = {path.name for path in tmp_path.glob("**/*.json")}
    envelope = Envelope(table=canonical(copy))
    envelope.lance.read_version = 6
    envelope.lance.update_config.SetInParent()
    (result,) = fold(owned(copy), [envelope], 1)
    assert isinstance(result, Committed)
    assert {path.name for path in tmp_path.glob("**/*.json")} == before


@pytest.mark.parametrize("source", [False], indirect=True)
def test_a_branch_says_what_it_is_made_from(source: Path) -> None:
    transaction = branching(source, "ours")
    transaction.clone.ref_name = "side/one"
    result = folded(source / "tree/ours", transaction)
    assert isinstance(result, Invalid)
    assert "is not a branch, the clone calls it 'side/one'" in result.message
    parent = source / "tree/side/one"
    transaction = branching(parent, "ours")
    transaction.read_version = transaction.clone.ref_version = 5
    result = folded(source / "tree/ours", transaction)
    assert isinstance(result, Invalid)
    assert "is the branch side/one, the clone calls it ''" in result.message
    transaction.clone.ref_name = "side/one"
    result = folded(parent / "tree/ours", transaction)
    assert isinstance(result, Invalid)
    assert "stored below the main branch" in result.message
    assert isinstance(folded(source / "tree/ours", transaction), Committed)


@pytest.mark.parametrize("source", [False], indirect=True)
def test_a_source_outside_of_the_roots_is_not_read(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "inside/ours"
    uri = canonical(target)
    for roots, taken in (([canonical(tmp_path / "inside")], Invalid), ([canonical(tmp_path)], Committed)):
        versions = Versions(open_storage(uri), FORMAT.folder, FORMAT.detect)
        table = TableWriter(StoredTable(FORMAT, versions), roots=roots)
        envelope = Envelope(table=uri)
        envelope.lance.read_version = 6
        envelope.lance.clone.is_shallow, envelope.lance.clone.ref_version = True, 6
        envelope.lance.clone.ref_path = str(source)
        (result,) = fold(table, [envelope], 0)
        assert isinstance(result, taken)


@pytest.mark.parametrize("more", ["nothing", "a version of pylance"])
def test_a_branch_that_pylance_made_knows_the_batches_of_its_rows(tmp_path: Path, more: str) -> None:
    """Until a committer folds into it, and from then on; so does each committer that opens it anew."""
    path = tmp_path / "t"
    uri = canonical(path)

    def sent(target: Path, batch: int) -> Result:
        newest = version_of(target).manifest.version
        offset = 10 + sum(1 for _ in path.rglob("*.lance"))
        return fold(owned(target), [append(canonical(target), rows([batch]), newest, "a", batch)], offset)[0]

    fold(owned(path), [creation(uri)], 0)
    assert all(isinstance(sent(path, batch), Committed) for batch in range(3))
    branch = local_path(canonical(lance.dataset(str(path)).create_branch("audit", 3).uri))
    if more != "nothing":
        lance.write_dataset(rows([100]), branch, mode="append")
    assert set(owned(Path(branch)).table.marks.apps) == {"a"}
    assert not owned(Path(branch)).table.marks.table_id
    assert [sent(Path(branch), batch) for batch in (0, 1)] == [Duplicate(2), Duplicate(3)]
    assert isinstance(sent(Path(branch), 2), Committed)
    assert [type(sent(Path(branch), batch)) for batch in (0, 1, 2)] == [Duplicate] * 3
    elsewhere = tmp_path / "u"
    lance.dataset(str(path)).shallow_clone(str(elsewhere), 4)
    assert isinstance(sent(elsewhere, 2), Committed)
