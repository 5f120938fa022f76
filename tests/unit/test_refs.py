"""Tags and branches: their names, their files, and what a store makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakefold_table.branch_names import branch_root, check_branch_name
from lakefold_table.errors import DamagedError, InvalidError, VersionExpiredError
from lakefold_table.lance.manifests.naming import Scheme
from lakefold_table.lance.refs.files import (
    MAX_SIZE,
    decode_branch,
    decode_tag,
    encode_branch,
    encode_tag,
)
from lakefold_table.lance.refs.names import (
    branch_path,
    check_new_tag_name,
    check_tag_name,
    ref_name,
    tag_path,
)
from lakefold_table.ref_files import Branch, Tag
from lakefold_table.versions.refs import Refs, RefTarget, UnknownRefError
from tests.memory_storage import MemoryStorage

SECOND = 1_000_000_000
MOMENT = 1_795_289_420 * SECOND
LATER = MOMENT + SECOND
TAG: dict[str, Any] = {"version": 1, "manifestSize": 370}
BRANCH: dict[str, Any] = {"parentVersion": 3, "createAt": 5, "manifestSize": 4}


def data(keys: object) -> bytes:
    return json.dumps(keys).encode()


@pytest.mark.parametrize("name", ["v1", "1", "-a", "_a", "main", "a.b-c_D", "é", "日本", "²", "v" * 200])
def test_names_of_tags(name: str) -> None:
    check_tag_name(name)


@pytest.mark.parametrize(
    "name", ["", ".a", "a.", "a..b", "a.lock", "a/b", "a b", "a%b", "a\n", "a\\b", "a\u0301"]
)
def test_what_no_tag_can_be_called(name: str) -> None:
    with pytest.raises(InvalidError, match="can't be the name of a tag"):
        check_tag_name(name)


@pytest.mark.parametrize("name", [5, b"a", 1.5])
def test_names_are_text(name: object) -> None:
    for check, what in ((check_tag_name, "a tag"), (check_branch_name, "a branch")):
        with pytest.raises(InvalidError, match=f"can't be the name of {what}: a name is text, not"):
            check(name)  # type: ignore[arg-type]


def test_a_new_tag_is_not_called_what_pylance_cannot_list() -> None:
    check_new_tag_name("v1")
    with pytest.raises(InvalidError, match="beyond ASCII"):
        check_new_tag_name("é")


@pytest.mark.parametrize(
    "name", ["b", "feature/x", "é", "a/main", "Main", ".a", "a.", "a/.b", "a.lock/b", "tree"]
)
def test_names_of_branches(name: str) -> None:
    check_branch_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "main", "/a", "a/", "a//b", "a..b", "a/../b", "a\\b", "a.lock", "a/b.lock", "a b", "a%b", "a/./b"],
)
def test_what_no_branch_can_be_called(name: str) -> None:
    with pytest.raises(InvalidError, match="can't be the name of a branch"):
        check_branch_name(name)


def test_the_paths_of_their_files() -> None:
    assert tag_path("é.1") == "_refs/tags/%C3%A9.1.json"
    assert branch_path("feature/x") == "_refs/branches/feature%2Fx.json"
    assert [branch_root(name) for name in (None, "main", "feature/x")] == ["", "", "tree/feature/x"]


@pytest.mark.parametrize("name", ["a", "é", "feature/x", "日本/ß", "a.b-c_d"])
def test_a_file_name_identifies_its_ref(name: str) -> None:
    assert ref_name(branch_path(name).rpartition("/")[2]) == name


@pytest.mark.parametrize("name", ["", "a", "a.txt", ".json", "%FF.json", "a.JSON"])
def test_other_files_are_no_refs(name: str) -> None:
    assert ref_name(name) is None


def test_what_a_writer_left_out_has_a_default() -> None:
    assert decode_tag(data(TAG)) == Tag(1, manifest_size=370)
    assert decode_tag(data({**TAG, "branch": None, "createdAt": None})) == Tag(1, manifest_size=370)
    assert decode_branch(data(BRANCH)) == Branch(3, created_s=5, manifest_size=4)


def test_unknown_keys_are_kept() -> None:
    tag = decode_tag(data({**TAG, "later": {"x": [1]}}))
    assert tag.unknown == {"later": {"x": [1]}}
    assert json.loads(encode_tag(tag))["later"] == {"x": [1]}
    branch = decode_branch(data({**BRANCH, "later": 1}))
    assert json.loads(encode_branch(branch)) == {**BRANCH, "parentBranch": None, "metadata": {}, "later": 1}


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("2026-11-21T19:30:20Z", MOMENT),
        ("2026-11-21T19:30:20.404304442Z", MOMENT + 404_304_442),
        ("2026-11-21T19:30:20.4043Z", MOMENT + 404_300_000),
        ("2026-11-21t19:30:20.4043044429z", MOMENT + 404_304_442),
        ("2026-11-21 20:30:20+01:00", MOMENT),
        ("1969-12-31T23:59:59.9Z", -100_000_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800 * SECOND),
    ],
)
def test_times(text: str, nanos: int) -> None:
    tag = decode_tag(data({**TAG, "createdAt": text, "updatedAt": text}))
    assert (tag.created_ns, tag.updated_ns) == (nanos, nanos)
    assert decode_tag(encode_tag(tag)) == tag


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59.5-23:00"])
def test_a_time_that_its_zone_moves_out_of_the_calendar_can_be_written(text: str) -> None:
    """A committer that moves the tag keeps when it was created, and must not stop because of it."""
    written = json.loads(encode_tag(decode_tag(data({**TAG, "createdAt": text}))))["createdAt"]
    assert written[:10] == text[:10]


def test_a_time_is_written_with_as_many_digits_as_pylance_writes() -> None:
    written = [
        json.loads(encode_tag(Tag(1, created_ns=MOMENT + nanos)))["createdAt"][19:]
        for nanos in (0, 400_000_000, 404_300_000, 404_304_442)
    ]
    assert written == ["Z", ".400Z", ".404300Z", ".404304442Z"]


DAMAGED_TAGS: dict[str, object] = {
    "no version": {"manifestSize": 1},
    "no size": {"version": 1},
    "null size": {**TAG, "manifestSize": None},
    "text": {**TAG, "version": "1"},
    "bool": {**TAG, "version": True},
    "float": {**TAG, "version": 1.0},
    "negative": {**TAG, "version": -1},
    "too large": {**TAG, "version": 2**64},
    "branch": {**TAG, "branch": 1},
    "time": {**TAG, "createdAt": "yesterday"},
    "no such day": {**TAG, "createdAt": "2026-02-30T00:00:00Z"},
    "time of another kind": {**TAG, "updatedAt": 1},
    "null metadata": {**TAG, "metadata": None},
    "metadata": {**TAG, "metadata": {"k": 1}},
    "list": [1],
    "surrogate": {**TAG, "x": "\ud800"},
    "surrogate in a key": {**TAG, "\udfff": 1},
}


@pytest.mark.parametrize("name", DAMAGED_TAGS)
def test_damaged_tags(name: str) -> None:
    with pytest.raises(DamagedError) as caught:
        decode_tag(data(DAMAGED_TAGS[name]), "here")
    assert caught.value.where == "here"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"x",
        b'{"version":1,"version":2,"manifestSize":1}',
        b'{"version":1,"manifestSize":1} x',
        b'\xef\xbb\xbf{"version":1,"manifestSize":1}',
        b'{"version":NaN,"manifestSize":1}',
        b'{"version":1,"manifestSize":1,"x":"\xff"}',
        b'{"version":' + b"9" * 5000 + b"}",
        b"[" * 200_000,
        b" " * (MAX_SIZE + 1),
    ],
    ids=range(10),
)
def test_what_is_no_json(raw: bytes) -> None:
    for decode in (decode_tag, decode_branch):
        with pytest.raises(DamagedError):
            decode(raw)


@pytest.mark.parametrize(
    "keys",
    [
        {**BRANCH, "identifier": None},
        {**BRANCH, "identifier": {}},
        {**BRANCH, "identifier": {"version_mapping": [[1]]}},
        {**BRANCH, "identifier": {"version_mapping": [[True, "x"]]}},
        {**BRANCH, "identifier": {"version_mapping": [[-1, "x"]]}},
        {**BRANCH, "createAt": -1},
        {key: BRANCH[key] for key in ("parentVersion", "manifestSize")},
        {key: BRANCH[key] for key in ("createAt", "manifestSize")},
    ],
)
def test_damaged_branches(keys: object) -> None:
    with pytest.raises(DamagedError):
        decode_branch(data(keys))


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> MemoryStorage:
    """Three versions of the main branch, and another of a branch."""
    storage = MemoryStorage(f"memory://{abs(hash(request.node.name))}/t")
    for version in (1, 2, 3):
        storage.put(Scheme.V2.path(version), [b"x" * version])
    storage.put(f"tree/feature/x/{Scheme.V2.path(2)}", [b"branch"])
    return storage


def change(refs: Refs, name: str, version: int, branch: str | None = None, *, is_new: bool = False) -> bool:
    return refs.set_tag(name, version, branch=branch, at_ns=LATER, is_new=is_new, is_late=lambda: False)


def test_tags_are_made_moved_and_removed(storage: MemoryStorage) -> None:
    refs = Refs(storage, lambda: MOMENT)
    refs.pin("b", 2, branch=None, size=2, metadata={"k": "v"})
    made = refs.tag("b")
    assert made == Tag(2, None, MOMENT, MOMENT, 2, {"k": "v"})
    assert change(refs, "a", 2, "feature/x", is_new=True)
    assert refs.tag("a") == Tag(2, "feature/x", LATER, LATER, 6, {})
    assert list(refs.tags()) == ["a", "b"]
    assert refs.tags()["b"] == made
    assert refs.resolve_tag("a") == RefTarget("tree/feature/x", 2)
    assert change(refs, "b", 3, "main")
    assert refs.tag("b") == Tag(3, None, MOMENT, LATER, 3, {"k": "v"})
    refs.delete_tag("b")
    assert list(refs.tags()) == ["a"]


def test_the_versions_are_listed_once_however_many_are_looked_for(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket may have a hundred thousand versions, which takes a hundred requests."""
    listed: list[str] = []
    names = storage.names

    def noted(prefix: str) -> object:
        listed.append(prefix)
        return names(prefix)

    monkeypatch.setattr(storage, "names", noted)
    refs = Refs(storage)
    assert [refs.has_version(version, "main") for version in (1, 2, 9, 1)] == [True, True, False, True]
    assert listed == ["_versions"]


def test_moving_a_tag_keeps_keys_that_are_not_known(storage: MemoryStorage) -> None:
    storage.put(tag_path("a"), [data({**TAG, "later": 1})])
    assert change(Refs(storage), "a", 2)
    assert json.loads(storage.get(tag_path("a")))["later"] == 1


def test_what_a_store_has_no_ref_for(storage: MemoryStorage) -> None:
    refs = Refs(storage)
    assert change(refs, "a", 1, is_new=True)
    assert not change(refs, "a", 2, is_new=True), "it names another version"
    assert refs.tag("a").version == 1
    for asked in (refs.tag, refs.delete_tag, refs.resolve_tag, refs.branch, refs.resolve_branch):
        with pytest.raises(UnknownRefError, match=r"the (tag|branch) zz does not exist"):
            asked("zz")
    with pytest.raises(UnknownRefError, match="the branch zz does not exist"):
        change(refs, "b", 1, "zz")
    for version, branch in ((4, None), (1, "feature/x"), (2**63 + 1, None)):
        for name in ("a", "b"):
            with pytest.raises(VersionExpiredError, match="does not exist"):
                change(refs, name, version, branch)
    assert list(refs.tags()) == ["a"]
    with pytest.raises(InvalidError, match="beyond ASCII"):
        refs.pin("é", 1, branch=None, size=1, metadata={})


def test_other_files_beside_tags_are_passed_over(storage: MemoryStorage) -> None:
    refs = Refs(storage)
    assert change(refs, "a", 1)
    for name in ("junk.txt", "%61.json", "a/b.json"):
        storage.put(f"_refs/tags/{name}", [b"junk"])
    assert list(refs.tags()) == ["a"]
    storage.put("_refs/tags/b.json", [b"junk"])
    with pytest.raises(DamagedError, match="not JSON") as caught:
        refs.tags()
    assert caught.value.where.endswith("_refs/tags/b.json")
    refs.delete_tag("b")
    assert list(refs.tags()) == ["a"]


def test_a_branch_is_there_once_it_has_a_version(storage: MemoryStorage) -> None:
    refs = Refs(storage)
    assert (refs.resolve_branch("feature/x"), refs.resolve_branch("main")) == ("tree/feature/x", "")
    assert refs.branches() == {}
    branch = Branch(2, lineage=((2, "0" * 32),), created_s=7, manifest_size=2)
    storage.put(branch_path("feature/x"), [encode_branch(branch)])
    assert refs.branches() == {"feature/x": branch}
    assert refs.branch("feature/x") == branch


def test_a_tag_of_a_branch_that_leaves_the_root_is_refused(storage: MemoryStorage) -> None:
    storage.put(tag_path("a"), [data({**TAG, "branch": "../../x"})])
    with pytest.raises(InvalidError, match="can't be the name of a branch"):
        Refs(storage).resolve_tag("a")
