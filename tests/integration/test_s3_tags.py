"""Tags through the log on S3, and a deleted branch, as pylance reads them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold.branching.branch_removal import is_deleted, remove_files
from lakefold.branching.ref_proposals import deleting
from lakefold_committer.tables.branches import open_branch
from lakefold_committer.tables.refs import write_tags
from lakefold_protos.lakefold.log_pb2 import Envelope, Tag
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Tagged
from lakefold_table.errors import PreconditionError
from lakefold_table.storage import open_storage
from lakefold_table.tag_proposal import TagChange, TagTarget
from lakefold_table.versions.refs import Refs
from lakefold_table.versions.table_address import TableAddress
from tests.servers.s3 import BUCKET
from tests.tables import Folded, fragments_only

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server


@pytest.fixture
def table(s3: S3Server) -> Folded:
    """A table with two versions."""
    folded = Folded(open_storage(f"s3://{BUCKET}/{uuid.uuid4().hex}/t", s3.options()))
    folded.fold(fragments_only(folded.uri, 1))
    return folded


def tag(uri: str, version: int | None) -> Envelope:
    return Envelope(table=uri, tag=Tag(name="x", version=version, delete=version is None, move=bool(version)))


def test_a_tag_is_set_moved_and_removed(table: Folded, s3: S3Server) -> None:
    theirs = lance.dataset(table.uri, storage_options=s3.options()).tags
    for version in (1, 2):
        assert table.fold(tag(table.uri, version))[0].result == Tagged(version, "x")
        assert theirs.list()["x"]["version"] == version
    assert table.fold(tag(table.uri, None))[0].result == Tagged(0, "x")
    assert theirs.list() == {}


def test_a_tag_that_another_client_moves_meanwhile_is_not_replaced(table: Folded, s3: S3Server) -> None:
    storage = open_storage(table.uri, s3.options())
    table.fold(tag(table.uri, 1))
    theirs = lance.dataset(table.uri, storage_options=s3.options()).tags

    def moved_by_them() -> bool:
        theirs.update("x", 2)
        return False

    change = TagChange("x", TagTarget("", 1), is_new=False, time_us=0)
    assert not write_tags(storage, [change], moved_by_them)
    assert Refs(storage).tag("x").version == 2


def test_a_branch_is_deleted_with_its_files(table: Folded, s3: S3Server) -> None:
    """A tag keeps them, and the branch inside its folder keeps its own."""
    storage, options = open_storage(table.uri, s3.options()), s3.options()
    for name in ("dev/inner", "dev"):
        begun = Envelope(table=table.uri, branch=name)
        clone = Transaction.Clone(is_shallow=True, ref_path=table.uri, ref_version=2, branch_name=name)
        begun.lance.clone.CopyFrom(clone)
        branch = open_branch(TableAddress(table.uri, options), name)
        assert branch.fold([table.entry(begun)]).outcomes[0].kind == "committed"
    storage.put("tree/dev/data/f.lance", [b"x"])
    open_branch(TableAddress(table.uri, options), "dev").fold([table.entry(deleting(table.uri, "dev"))])
    late = Tag(name="late", version=2, branch="dev")
    main = open_branch(TableAddress(table.uri, options), "")
    (refused,) = main.fold([table.entry(Envelope(table=table.uri, tag=late))]).outcomes
    assert "was deleted by the proposal at" in str(refused.result)
    theirs = lance.dataset(table.uri, storage_options=options)
    theirs.tags.create("x", ("dev", 2))
    with pytest.raises(PreconditionError, match="needed by tag x"):
        remove_files(TableAddress(table.uri, options), "dev", lambda _: None)
    assert storage.size("tree/dev/data/f.lance")
    theirs.tags.delete("x")
    remove_files(TableAddress(table.uri, options), "dev", lambda _: None)
    assert not is_deleted(TableAddress(table.uri, options), "dev")
    assert set(theirs.branches.list()) == {"dev/inner"}
    left = [path for path in storage.everything() if path.startswith("tree/")]
    assert left
    assert all(path.startswith("tree/dev/inner/_") for path in left), left
