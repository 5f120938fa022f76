"""UpdateConfig and UpdateBases: pylance's version and ours are the same, and what it refuses we refuse."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance import DatasetBasePath, LanceOperation

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.uri import canonical
from tests.oracle.committing import fold, owned
from tests.oracle.operations import both_ways, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold_table.entry import Result

PRIMARY = "lance-schema:unenforced-primary-key"
CLUSTERING = "lance-schema:unenforced-clustering-key:position"
EXTENSION = "ARROW:extension:name"
SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False, metadata={"x": "y"}),
        pa.field("b", pa.int64(), nullable=False),
        pa.field("s", pa.struct([pa.field("p", pa.int32(), nullable=False)]), nullable=False),
        pa.field("n", pa.int64()),
    ],
    metadata={"sm": "1"},
)
A, B, S, P, N = range(5)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Keys in each map, a deletion file, and a base."""
    path = tmp_path / "t"
    rows = pa.table({"a": [1, 2], "b": [1, 2], "s": [{"p": 1}] * 2, "n": [1, 2]}, schema=SCHEMA)
    lance.write_dataset(rows, str(path))
    lance.dataset(str(path)).delete("a = 1")
    lance.dataset(str(path)).update_config({"c1": "v1", "c2": "v2"})
    lance.dataset(str(path)).update_metadata({"t1": "v1", "t2": "v2"})
    return path


def update(keys: dict[str, str | None], *, replace: bool = False) -> LanceOperation.UpdateMap:
    return LanceOperation.UpdateMap(keys, replace)


def fields(**updates: dict[str, str | None]) -> dict[str, Any]:
    numbers = {"a": A, "b": B, "s": S, "p": P, "n": N}
    return {"field_metadata_updates": {numbers[name]: update(keys) for name, keys in updates.items()}}


def commit(dataset: lance.LanceDataset, updates: dict[str, Any]) -> None:
    operation = LanceOperation.UpdateConfig(**updates)
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


UPDATES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nothing in a map": {"config_updates": update({})},
    "config": {"config_updates": update({"c1": "new", "c3": "", "c2": None, "c9": None})},
    "last key of config": {"config_updates": update({"c1": None, "c2": None})},
    "all of config": {"config_updates": update({"c3": "v", "c1": None}, replace=True)},
    "no config": {"config_updates": update({}, replace=True)},
    "table metadata": {"table_metadata_updates": update({"t1": "new", "t3": "é", "t2": None})},
    "all table metadata": {"table_metadata_updates": update({"t3": "v"}, replace=True)},
    "schema metadata": {"schema_metadata_updates": update({"sm": None, "sn": "é"})},
    "all schema metadata": {"schema_metadata_updates": update({"sn": "2"}, replace=True)},
    "unmanaged blobs": {"schema_metadata_updates": update({"lance.blob.managed": "false"})},
    "field metadata": fields(a={"x": None, "z": "1"}, p={"k": "v"}, s={"g": "h"}),
    "all field metadata": {"field_metadata_updates": {A: update({"only": "v"}, replace=True)}},
    "extension": fields(n={EXTENSION: "some.type", "ARROW:extension:metadata": "{}"}),
    "primary key": fields(a={PRIMARY: "true"}),
    "primary key by a word": fields(a={PRIMARY: "YES"}),
    "nested primary key": fields(p={PRIMARY: "1"}),
    "primary key of two": fields(a={f"{PRIMARY}:position": "1"}, b={f"{PRIMARY}:position": "+2"}),
    "primary key at 0": fields(a={f"{PRIMARY}:position": "0"}),
    "primary key and no position": fields(a={PRIMARY: "true", f"{PRIMARY}:position": "x"}),
    "position and no primary key": fields(a={PRIMARY: None, f"{PRIMARY}:position": "1"}),
    "one of two": fields(a={PRIMARY: "true"}, b={PRIMARY: "false"}),
    "clustering key": fields(a={CLUSTERING: "1"}, s={CLUSTERING: "2"}),
    "clustering key at 0": fields(a={CLUSTERING: "0"}),
    "clustering key without a position": fields(a={"lance-schema:unenforced-clustering-key": "true"}),
    "all at once": {
        "config_updates": update({"c3": "v"}),
        "table_metadata_updates": update({"t3": "v"}),
        "schema_metadata_updates": update({"sn": "v"}),
        **fields(n={"k": "v"}),
    },
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_of_keys_makes_the_same_version(table: Path, name: str) -> None:
    both = both_ways(table, lambda dataset: commit(dataset, UPDATES[name]))
    assert isinstance(both.result, Committed)
    assert both.differences == {}
    lance.dataset(str(both.ours)).validate()


REFUSED: dict[str, tuple[Sequence[dict[str, Any]], str]] = {
    "no such field": ([{"field_metadata_updates": {9: update({"k": "v"})}}], "no field 9"),
    "negative field": ([{"field_metadata_updates": {-1: update({"k": "v"})}}], "no field -1"),
    "null key": ([fields(n={PRIMARY: "true"})], "must be non-nullable"),
    "key with fields": ([fields(s={PRIMARY: "true"})], "child fields"),
    "no key": ([fields(a={PRIMARY: "false"})], "declares no primary key"),
    "deleted key": ([fields(a={PRIMARY: None})], "declares no primary key"),
    "no position": ([fields(a={f"{PRIMARY}:position": "-1"})], "declares no primary key"),
    "position too large": ([fields(a={f"{PRIMARY}:position": str(2**32)})], "declares no primary key"),
    "key again": ([fields(a={PRIMARY: "true"})] * 2, "has a primary key already"),
    "second key": ([fields(a={PRIMARY: "true"}), fields(b={PRIMARY: "true"})], "has a primary key already"),
    "key gone": (
        [fields(a={PRIMARY: "true"}), {"field_metadata_updates": {A: update({}, replace=True)}}],
        "has a primary key already",
    ),
    "no clustering key": ([fields(a={CLUSTERING: "x"})], "declares no clustering key"),
    "clustering key again": (
        [fields(a={CLUSTERING: "1"}), fields(b={CLUSTERING: "2"})],
        "has a clustering key already",
    ),
    "managed": ([{"schema_metadata_updates": update({"lance.blob.managed": "TRUE"})}], "can't be 'TRUE'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pylance_refuses_is_refused(table: Path, name: str) -> None:
    *before, refused = REFUSED[name][0]
    for updates in before:
        commit(lance.dataset(str(table)), updates)
    result = folded(table, refused)
    assert isinstance(result, Invalid)
    assert REFUSED[name][1] in result.message
    with pytest.raises(OSError, match=r"Invalid user input|LanceError\(Schema\)"):
        commit(lance.dataset(str(table)), refused)


@pytest.mark.parametrize(
    "then", [fields(a={"k": "v"}), {"field_metadata_updates": {B: update({}, replace=True)}}]
)
def test_beside_a_key_other_metadata_may_change(table: Path, then: dict[str, Any]) -> None:
    commit(lance.dataset(str(table)), fields(a={PRIMARY: "true", CLUSTERING: "1"}))
    both = both_ways(table, lambda dataset: commit(dataset, then))
    assert isinstance(both.result, Committed)
    assert both.differences == {}


def test_a_clustering_key_at_0_may_be_declared_again(table: Path) -> None:
    commit(lance.dataset(str(table)), fields(a={CLUSTERING: "0"}))
    both = both_ways(table, lambda dataset: commit(dataset, fields(a={CLUSTERING: "1"})))
    assert isinstance(both.result, Committed)
    assert both.differences == {}


def folded(table: Path, updates: dict[str, Any]) -> Result:
    """What we answer to the update."""
    envelope = Envelope(table=canonical(table))
    envelope.lance.uuid, envelope.lance.read_version = "u", lance.dataset(str(table)).version
    message = envelope.lance.update_config
    message.SetInParent()
    for name, value in updates.items():
        if name == "field_metadata_updates":
            for number, each in value.items():
                fill(message.field_metadata_updates[number], each)
        else:
            fill(getattr(message, name), value)
    (result,) = fold(owned(table), [envelope], 0)
    return result


def fill(target: Any, source: LanceOperation.UpdateMap) -> None:  # noqa: ANN401 - a nested message class
    target.SetInParent()
    target.replace = source.replace
    for key, value in source.updates.items():
        target.update_entries.add(key=key, value=value)


OLDER: dict[str, dict[str, Any]] = {
    "set": {"upsert_values": {"c1": "new", "c3": "v"}},
    "delete": {"delete_keys": ["c1", "c9"]},
    "set and delete": {"upsert_values": {"c1": "new"}, "delete_keys": ["c1"]},
    "schema": {"schema_metadata": {"sn": "v"}},
    "fields": {"field_metadata": {A: {"z": "1"}, P: {}}},
}


@pytest.mark.parametrize("name", OLDER)
def test_the_deprecated_form_means_what_pylance_takes_it_for(table: Path, name: str) -> None:
    """It can't send that form, but shows what it reads in a version whose transaction has it."""

    def older(envelope: Envelope) -> None:
        message = envelope.lance.update_config
        message.Clear()
        for key, value in OLDER[name].items():
            if key == "field_metadata":
                for number, metadata in value.items():
                    message.field_metadata[number].metadata.update(metadata)
            elif isinstance(value, dict):
                getattr(message, key).update(value)
            else:
                getattr(message, key).extend(value)

    ours = both_ways(table, lambda dataset: commit(dataset, {}), change=older).ours
    transaction = lance.dataset(str(ours)).read_transaction(lance.dataset(str(ours)).version)
    assert transaction is not None
    theirs = table.with_name("theirs")
    shutil.copytree(table, theirs)
    before, made = version_of(theirs).manifest, version_of(ours).manifest
    commit(lance.dataset(str(theirs)), vars(transaction.operation))
    after = version_of(theirs).manifest
    assert (after.config, after.schema_metadata) == (made.config, made.schema_metadata)
    assert list(after.fields) == list(made.fields)
    assert any(getattr(before, key) != getattr(after, key) for key in ("config", "schema_metadata", "fields"))


def add(*bases: DatasetBasePath) -> Any:  # noqa: ANN401 - an act
    return lambda dataset: dataset.add_bases(list(bases))


BASES: dict[str, tuple[DatasetBasePath, ...]] = {
    "none": (),
    "one": (DatasetBasePath("/x/1", "n"),),
    "one without a name": (DatasetBasePath("/x/1"),),
    "several": (
        DatasetBasePath("/x/1", "n", is_dataset_root=True),
        DatasetBasePath("s3://x/2", "m"),
        DatasetBasePath("/x/3"),
    ),
    "with an id": (DatasetBasePath("/x/1", "n", id=7),),
    "with and without": (DatasetBasePath("/x/1", "n", id=9), DatasetBasePath("/x/2", "m")),
    "other spelling of a path": (DatasetBasePath("/x/one/", "n"),),
    "own root": (DatasetBasePath("/x/t", "own", is_dataset_root=True),),
}


@pytest.mark.parametrize(
    "existing", [(), (("/x/one", "one", 1), ("/x/three", "three", 3))], ids=["first", "more"]
)
@pytest.mark.parametrize("name", BASES)
def test_new_bases_make_the_same_version(
    table: Path, name: str, existing: Sequence[tuple[str, str, int]]
) -> None:
    if existing:
        add(*(DatasetBasePath(path, title, id=number) for path, title, number in existing))(
            lance.dataset(str(table))
        )
    both = both_ways(table, add(*BASES[name]))
    assert isinstance(both.result, Committed)
    assert both.differences == {}


CLASHES: dict[str, tuple[DatasetBasePath, ...]] = {
    "name": (DatasetBasePath("/x/2", "one"),),
    "path": (DatasetBasePath("/x/one", "other"),),
    "name among themselves": (DatasetBasePath("/x/2", "n"), DatasetBasePath("/x/3", "n")),
    "path among themselves": (DatasetBasePath("/x/2", "n"), DatasetBasePath("/x/2", "m")),
    "no name twice": (DatasetBasePath("/x/2"), DatasetBasePath("/x/3")),
}


def bases_folded(table: Path, bases: Sequence[DatasetBasePath]) -> Result:
    envelope = Envelope(table=canonical(table))
    envelope.lance.uuid, envelope.lance.read_version = "u", lance.dataset(str(table)).version
    envelope.lance.update_bases.SetInParent()
    for base in bases:
        envelope.lance.update_bases.new_bases.add(id=base.id, name=base.name, path=base.path)
    (result,) = fold(owned(table), [envelope], 0)
    return result


@pytest.mark.parametrize("name", CLASHES)
def test_bases_that_clash_are_refused_as_pylance_refuses_them(table: Path, name: str) -> None:
    add(DatasetBasePath("/x/one", "one"))(lance.dataset(str(table)))
    result = bases_folded(table, CLASHES[name])
    assert isinstance(result, Invalid)
    with pytest.raises(ValueError, match="Conflict detected"):
        add(*CLASHES[name])(lance.dataset(str(table)))


def test_an_id_that_is_taken_is_refused_though_pylance_moves_the_base(table: Path) -> None:
    add(DatasetBasePath("/x/one", "one"))(lance.dataset(str(table)))
    again = DatasetBasePath("/x/2", "two", id=1)
    result = bases_folded(table, [again])
    assert isinstance(result, Invalid)
    assert "base 1 exists already" in result.message
    add(again)(lance.dataset(str(table)))
    assert [base.path for base in version_of(table).manifest.base_paths] == ["/x/2"]


def test_a_base_without_a_path_is_refused(table: Path) -> None:
    result = bases_folded(table, [DatasetBasePath("", "empty")])
    assert isinstance(result, Invalid)
    assert "no path" in result.message


def changing(**keys: Any) -> Any:  # noqa: ANN401 - an act
    return lambda dataset: commit(dataset, {name: update(values) for name, values in keys.items()})


LATE: dict[str, tuple[Any, Any, bool]] = {
    "other keys": (changing(config_updates={"c1": "1"}), changing(config_updates={"c2": "2"}), True),
    "same key": (changing(config_updates={"c1": "1"}), changing(config_updates={"c1": "1"}), False),
    "both delete it": (changing(config_updates={"c1": None}), changing(config_updates={"c1": None}), True),
    "same table key": (
        changing(table_metadata_updates={"t1": "1"}),
        changing(table_metadata_updates={"t1": "2"}),
        False,
    ),
    "schema": (
        changing(schema_metadata_updates={"a": "1"}),
        changing(schema_metadata_updates={"b": "2"}),
        False,
    ),
    "rows deleted": (changing(config_updates={"c1": "1"}), lambda dataset: dataset.delete("a = 2"), True),
    "other bases": (add(DatasetBasePath("/x/1", "n")), add(DatasetBasePath("/x/2", "m")), True),
    "same base": (add(DatasetBasePath("/x/1", "n")), add(DatasetBasePath("/x/1", "m")), False),
}


@pytest.mark.parametrize("name", LATE)
def test_an_operation_built_on_an_older_version(table: Path, name: str) -> None:
    """What pylance rebases makes the same version; what it refuses beside the other, we refuse."""
    act, between, stands = LATE[name]
    if stands:
        both = both_ways(table, act, between=between)
        assert isinstance(both.result, Committed)
        assert both.result.rebased
        assert both.differences == {}
        return
    theirs = table.with_name("theirs")
    shutil.copytree(table, theirs)
    stale = lance.dataset(str(theirs))
    between(lance.dataset(str(theirs)))
    with pytest.raises((OSError, ValueError), match=r"(?i)conflict"):
        act(stale)
    other = table.with_name("other")
    shutil.copytree(table, other)
    act(lance.dataset(str(other)))
    transaction = version_of(other).transaction
    assert transaction is not None
    between(lance.dataset(str(table)))
    (result,) = fold(owned(table), [Envelope(table=canonical(table), lance=transaction)], 0)
    assert isinstance(result, Rejected)
    assert not result.conflict.retryable
