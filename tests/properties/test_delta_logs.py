"""Whatever bytes are in a Delta log, they end in a snapshot or in a typed error, within bounded memory."""

from __future__ import annotations

import tracemalloc
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefold_table.delta.actions.lines import lines_of, parse_actions
from lakefold_table.delta.log_segment.names import FOLDER, SIDECARS, commit_path
from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
from lakefold_table.errors import DamagedError, LakefoldError
from tests.delta_logs.actions import (
    LISTED,
    UUID,
    Members,
    add,
    domain,
    metadata,
    parquet,
    remove,
    sidecar,
    snapshot_of,
    text,
    txn,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_table.delta.actions.table_actions import Action

HEAD: Members = {"checkpointMetadata": {"version": 1, "tags": {}}}
NEXT = [
    add("d", vector("v")),
    remove("b"),
    txn("app", 8),
    domain("d"),
    {"commitInfo": {"operation": "WRITE"}},
]
SIDE = "016ae953-37a9-438e-8683-9a9a4a79a395.parquet"
PATHS = st.sampled_from(["a", "b", "c"])
VECTORS = st.sampled_from([None, vector("v1"), vector("v2")])


@cache
def log() -> dict[str, bytes]:
    """A checkpoint with a sidecar, and two commits."""
    side = parquet([add(name, stats='{"numRecords":1}', tags={"t": "x"}) for name in "abc"])
    head = parquet([HEAD, LISTED, metadata(a="1"), txn("app", 7), domain("e"), sidecar(SIDE, side)])
    return {
        f"{FOLDER}/{1:020}.checkpoint.{UUID}.parquet": head,
        f"{SIDECARS}/{SIDE}": side,
        commit_path(2): text(NEXT),
        commit_path(3): text([remove("c"), add("f")]),
    }


def ends_well(files: dict[str, bytes]) -> None:
    try:
        assert isinstance(snapshot_of(files), DeltaSnapshot)
    except LakefoldError as error:
        assert error.message  # noqa: PT017 - either a snapshot or a typed error


SLOW = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(st.data())
def test_changed_bytes_end_in_a_snapshot_or_a_typed_error(data: st.DataObject) -> None:
    files = dict(log())
    path = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[path])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        until = data.draw(st.integers(at, min(len(content), at + 8)))
        content[at:until] = data.draw(st.binary(max_size=8))
    ends_well({**files, path: bytes(content)})


@SLOW
@given(st.data())
def test_files_that_are_cut_off_end_in_a_snapshot_or_a_typed_error(data: st.DataObject) -> None:
    files = dict(log())
    path = data.draw(st.sampled_from(sorted(files)))
    ends_well({**files, path: files[path][: data.draw(st.integers(0, len(files[path])))]})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def names_in(actions: list[Members]) -> list[str]:
    return sorted({name for action in actions for members in action.values() for name in members})


@given(st.data())
def test_members_of_any_type_end_in_a_snapshot_or_a_typed_error(data: st.DataObject) -> None:
    action = data.draw(st.sampled_from([LISTED, metadata(), add("a", vector()), remove("a"), txn("a", 1)]))
    (name,) = action
    members = {**action[name], data.draw(st.sampled_from(names_in([action]))): data.draw(JSON)}
    ends_well({**log(), commit_path(4): text([{name: members}])})


def one_commit() -> st.SearchStrategy[list[Members]]:
    """The changes of one commit: each path is added, removed, or left."""

    def change(path: str, kind: str, dv: Members | None) -> Members | None:
        return None if kind == "left" else add(path, dv) if kind == "add" else remove(path, dv)

    kinds = st.sampled_from(["left", "add", "remove"])
    each = [st.builds(change, st.just(path), kinds, VECTORS) for path in "abc"]
    return st.tuples(*each).map(lambda changes: [change for change in changes if change is not None])


@given(st.lists(one_commit(), min_size=1, max_size=6), st.data())
def test_a_checkpoint_anywhere_changes_no_snapshot(history: list[list[Members]], data: st.DataObject) -> None:
    files = {commit_path(0): text([LISTED, metadata()])}
    files.update({commit_path(number): text(actions) for number, actions in enumerate(history, 1)})
    expected = snapshot_of(files)
    at = data.draw(st.integers(0, len(history)))
    before = snapshot_of(files, at)
    actions: list[Action] = [
        before.protocol,
        before.metadata,
        *before.files.values(),
        *before.tombstones.values(),
    ]
    lines = text([{"checkpointMetadata": {"version": at}}]) + lines_of(actions)
    checkpoint = {f"{FOLDER}/{at:020}.checkpoint.{UUID}.json": lines}
    kept = {path: content for path, content in files.items() if path > commit_path(at)}
    assert snapshot_of({**checkpoint, **kept}) == expected


@given(st.lists(one_commit(), min_size=1, max_size=6))
def test_a_snapshot_is_what_a_plain_model_says(history: list[list[Members]]) -> None:
    present: dict[str, str] = {}
    for actions in history:
        removed = {(each["remove"]["path"], key_of(each["remove"])) for each in actions if "remove" in each}
        present = {path: dv for path, dv in present.items() if (path, dv) not in removed}
        present.update({each["add"]["path"]: key_of(each["add"]) for each in actions if "add" in each})
    files = {commit_path(0): text([LISTED, metadata()])}
    files.update({commit_path(number): text(actions) for number, actions in enumerate(history, 1)})
    snapshot = snapshot_of(files)
    assert {path: file.key[1] for path, file in snapshot.files.items()} == present
    assert not {file.key for file in snapshot.files.values()} & snapshot.tombstones.keys()


def key_of(members: Members) -> str:
    dv = members.get("deletionVector")
    return f"{dv['storageType']}{dv['pathOrInlineDv']}" if dv else ""


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


SIZE = 1 << 20


@pytest.mark.parametrize("dense", [b"[" + b"[]," * (SIZE // 3) + b"0]", b"[" * SIZE], ids=["wide", "deep"])
def test_the_densest_line_takes_a_bounded_multiple_of_its_size(dense: bytes) -> None:
    line = b'{"commitInfo":{"x":' + dense + b"}}"

    def parse() -> None:
        try:
            list(parse_actions(line))
        except DamagedError as error:
            assert "nested" in error.message  # noqa: PT017 - the deep one is refused

    assert peak_of(parse) < 40 * len(line)


def test_lines_are_decoded_a_batch_at_a_time() -> None:
    data = text(add(f"part-{number}.parquet", stats="x" * 400) for number in range(20_000))
    assert peak_of(lambda: sum(1 for _ in parse_actions(data))) < len(data) // 5
