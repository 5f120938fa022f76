"""Tags, branches and detached versions: we open pylance's, and pylance opens ours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_table.branch_names import check_branch_name
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.lance.refs.files import decode_branch, decode_tag, encode_branch, encode_tag
from lakefold_table.lance.refs.names import check_tag_name
from lakefold_table.storage import open_storage
from lakefold_table.versions.refs import Refs, UnknownRefError
from tests.proposals import rows
from tests.tagging import set_tag

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three versions on main; `feature/x` made from 2 with a version more; `sub` made from that, one more."""
    path = tmp_path / "t"
    dataset = lance.write_dataset(rows(range(3)), str(path))
    for ids in ([3], [4]):
        dataset = lance.write_dataset(rows(ids), str(path), mode="append")
    branch = dataset.create_branch("feature/x", 2)
    branch = lance.write_dataset(rows([100]), branch.uri, mode="append")
    sub = branch.create_branch("sub", ("feature/x", 3))
    lance.write_dataset(rows([200]), sub.uri, mode="append")
    return path


def test_tags_that_pylance_made(table: Path) -> None:
    theirs = lance.dataset(str(table))
    theirs.tags.create("first", 1)
    theirs.tags.create("side", ("feature/x", 3))
    theirs.tags.replace_metadata("side", {"k": "é\n\x01"})
    ours = Refs(open_storage(table)).tags()
    assert list(ours) == ["first", "side"]
    for name, tag in theirs.tags.list().items():
        assert (ours[name].version, ours[name].branch) == (tag["version"], tag["branch"])
        assert (ours[name].manifest_size, ours[name].metadata) == (tag["manifest_size"], tag["metadata"])
        assert datetime.fromtimestamp((ours[name].created_ns or 0) // 1000 / 1e6, UTC) == tag["created_at"]
        data = (table / f"_refs/tags/{name}.json").read_bytes()
        assert encode_tag(decode_tag(data)) == data


def test_tags_that_we_made(table: Path) -> None:
    storage = open_storage(table)
    refs = Refs(storage)
    set_tag(storage, "first", 1)
    set_tag(storage, "side", 3, branch="feature/x")
    theirs = lance.dataset(str(table))
    for name, tag in theirs.tags.list().items():
        ours = refs.tag(name)
        assert (ours.version, ours.branch) == (tag["version"], tag["branch"])
        assert (ours.manifest_size, ours.metadata) == (tag["manifest_size"], tag["metadata"])
        assert datetime.fromtimestamp((ours.updated_ns or 0) // 1000 / 1e6, UTC) == tag["updated_at"]
    assert lance.dataset(str(table), version="first").count_rows() == 3
    assert lance.dataset(str(table), version="side").to_table()["id"].to_pylist() == [0, 1, 2, 3, 100]
    set_tag(storage, "first", 2)
    assert lance.dataset(str(table), version="first").version == 2
    theirs.tags.update("first", 3)
    assert refs.resolve_tag("first").version == 3
    refs.delete_tag("first")
    assert list(theirs.tags.list()) == ["side"]


def test_a_tag_has_the_size_that_pylance_gives_it(table: Path) -> None:
    storage = open_storage(table)
    for number, (version, branch) in enumerate([(2, None), (3, "feature/x")]):
        ours = set_tag(storage, f"ours{number}", version, branch=branch)
        lance.dataset(str(table)).tags.create(f"theirs{number}", (branch, version) if branch else version)
        assert Refs(storage).tag(f"theirs{number}").manifest_size == ours.manifest_size


def test_branches_that_pylance_made(table: Path) -> None:
    ours, theirs = Refs(open_storage(table)).branches(), lance.dataset(str(table)).branches.list()
    assert list(ours) == sorted(theirs) == ["feature/x", "sub"]
    for name, branch in theirs.items():
        single = ours[name]
        assert (single.parent, single.parent_version) == (branch["parent_branch"], branch["parent_version"])
        assert list(single.lineage or ()) == branch["branch_identifier"]
        assert (single.created_s, single.manifest_size) == (branch["create_at"], branch["manifest_size"])
        data = (table / f"_refs/branches/{name.replace('/', '%2F')}.json").read_bytes()
        assert encode_branch(decode_branch(data)) == data


def test_a_branch_file_of_ours_is_read_by_pylance(table: Path) -> None:
    path = table / "_refs/branches/sub.json"
    branch = decode_branch(path.read_bytes())
    before = lance.dataset(str(table)).branches.list()
    path.write_bytes(encode_branch(branch))
    assert lance.dataset(str(table)).branches.list() == before


TAGS = ["v1", "a.b-c_D", "-a", "main", "v..1", "a.lock", ".a", "a.", "a/b", "a\\b", "a:b", "a b", " ", ""]
BRANCHES = [
    "b",
    "x/y",
    "a.",
    ".a",
    "x.lock/b",
    "é",
    "a.lock",
    "a//b",
    "/a",
    "a/",
    "a..b",
    "a\\b",
    "a b",
    "main",
]


def is_taken(check: Callable[[str], object], name: str) -> bool:
    try:
        check(name)
    except (InvalidError, OSError):
        return False
    return True


def test_names_of_tags_are_those_that_pylance_takes(table: Path) -> None:
    tags = lance.dataset(str(table)).tags
    theirs = [name for name in TAGS if is_taken(lambda text: tags.create(text, 1), name)]
    assert theirs == [name for name in TAGS if is_taken(check_tag_name, name)] == TAGS[:4]


def test_names_of_branches_are_those_that_pylance_takes(table: Path) -> None:
    dataset = lance.dataset(str(table))
    theirs = [name for name in BRANCHES if is_taken(lambda text: dataset.create_branch(text, 1), name)]
    assert theirs == [name for name in BRANCHES if is_taken(check_branch_name, name)] == BRANCHES[:6]


def test_opening_by_tag(table: Path) -> None:
    theirs = lance.dataset(str(table))
    theirs.tags.create("first", 1)
    theirs.tags.create("side", ("feature/x", 2))
    first, side = lakefold.open(table, tag="first"), lakefold.open(table, tag="side")
    assert (first.version, first.uri) == (1, lakefold.open(table).uri)
    assert first.to_arrow() == lance.dataset(str(table), version="first").to_table()
    assert (side.version, side.uri) == (2, f"{first.uri}/tree/feature/x")
    assert side.to_arrow() == lance.dataset(str(table), version="side").to_table()
    assert lakefold.open(table / "tree/sub", tag="first").uri == first.uri


def test_opening_a_branch(table: Path) -> None:
    root = lakefold.open(table).uri
    for name, version, ids in (
        ("feature/x", None, [0, 1, 2, 3, 100]),
        ("feature/x", 2, [0, 1, 2, 3]),
        ("sub", None, [0, 1, 2, 3, 100, 200]),
        ("main", 3, [0, 1, 2, 3, 4]),
    ):
        opened = lakefold.open(table, version, branch=name)
        theirs = lance.dataset(str(table)).checkout_version((name, version))
        assert (opened.version, opened.to_arrow()) == (theirs.version, theirs.to_table())
        assert opened.to_arrow()["id"].to_pylist() == ids
        assert opened.count_rows() == len(ids)
    sub = lakefold.open(table / "tree/sub")
    assert sub.uri == f"{root}/tree/sub" == lakefold.open(table / "tree/feature/x", branch="sub").uri
    assert lakefold.open(table / "tree/sub", branch="main").uri == root
    moment = lakefold.open(table, 3, branch="feature/x").timestamp
    assert lakefold.open(table, as_of=moment, branch="feature/x").version == 3


def test_what_no_tag_or_branch_leads_to(table: Path) -> None:
    for kind in ("tag", "branch"):
        with pytest.raises(UnknownRefError, match=f"the {kind} zz does not exist"):
            lakefold.open(table, **{kind: "zz"})  # type: ignore[arg-type]
        with pytest.raises(InvalidError, match="can't be the name"):
            lakefold.open(table, **{kind: "../x"})  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="names its branch itself"):
        lakefold.open(table, tag="a", branch="sub")
    with pytest.raises(InvalidError, match="version and tag both name"):
        lakefold.open(table, 1, tag="a")
    with pytest.raises(VersionExpiredError, match="version 1 is gone"):
        lakefold.open(table, 1, branch="feature/x")
    path = table / "_refs/tags/gone.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"version": 9, "manifestSize": 1}))
    with pytest.raises(VersionExpiredError, match="version 9 does not exist yet"):
        lakefold.open(table, tag="gone")


def test_a_detached_version_is_opened_by_its_number_and_is_not_in_the_sequence(table: Path) -> None:
    dataset = lance.dataset(str(table))
    fragments = lance.fragment.write_fragments(rows([7]), dataset, mode="append")
    operation = lance.LanceOperation.Append(fragments)
    detached = lance.LanceDataset.commit(str(table), operation, read_version=3, detached=True)
    assert lakefold.open(table).version == 3
    opened = lakefold.open(table, detached.version)
    assert (opened.version, opened.to_arrow()) == (detached.version, detached.to_table())
    set_tag(open_storage(table), "aside", detached.version)
    assert lance.dataset(str(table), version="aside").version == detached.version
    assert lakefold.open(table, tag="aside").count_rows() == 6
    with pytest.raises(VersionExpiredError):
        lakefold.open(table, detached.version ^ 1)
