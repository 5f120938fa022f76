"""Holds the stores against a plain dictionary, through any sequence of calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from lakefold_table.storage.base import Put
from tests.contracts.stores import KINDS, LocalSite

PATHS = st.sampled_from(["top", "v/1", "v/2", "v/ü", "v/deep/1", "va/1", "v.x"])
BUFFERS = st.lists(st.binary(max_size=20), max_size=5)
NUMBERS = st.integers(0, 50)


class StoreMachine(RuleBasedStateMachine):
    """Two handles on one place do what a dictionary does."""

    kind = KINDS[0]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.site = LocalSite.new(self.kind, Path(self.folder.name))
        self.stores = [self.site.open(), self.site.open()]
        self.model: dict[str, bytes] = {}

    def teardown(self) -> None:
        self.site.close()
        self.folder.cleanup()

    @rule(path=PATHS, buffers=BUFFERS, who=st.integers(0, 1))
    def put_if_absent(self, path: str, buffers: list[bytes], who: int) -> None:
        expected = Put.EXISTS if path in self.model else Put.STORED
        assert self.stores[who].put_if_absent(path, buffers) is expected
        self.model.setdefault(path, b"".join(buffers))

    @rule(path=PATHS, buffers=BUFFERS, who=st.integers(0, 1))
    def put(self, path: str, buffers: list[bytes], who: int) -> None:
        self.stores[who].put(path, buffers)
        self.model[path] = b"".join(buffers)

    @rule(path=PATHS, who=st.integers(0, 1))
    def delete(self, path: str, who: int) -> None:
        self.stores[who].delete(path)
        self.model.pop(path, None)

    @rule(path=PATHS, start=NUMBERS, length=NUMBERS, who=st.integers(0, 1))
    def read(self, path: str, start: int, length: int, who: int) -> None:
        store, data = self.stores[who], self.model.get(path)
        assert store.size(path) == (None if data is None else len(data))
        if data is None:
            with pytest.raises(FileNotFoundError):
                store.get(path)
            return
        assert store.get(path) == data
        assert store.get_range(path, start, length) == data[start : start + length]
        assert store.get_tail(path, length) == (data[max(len(data) - length, 0) :], len(data))

    @rule(prefix=st.sampled_from(["", "v", "v/deep", "va", "none"]), who=st.integers(0, 1))
    def listing(self, prefix: str, who: int) -> None:
        values = [(listed.path, listed.size) for listed in self.stores[who].list(prefix)]
        inside = [path for path in self.model if path.rpartition("/")[0] == prefix]
        assert values == [(path, len(self.model[path])) for path in sorted(inside)]

    @invariant()
    def sizes(self) -> None:
        paths = ["top", "v/1", "v/deep/1"]
        expected = {path: len(self.model[path]) if path in self.model else None for path in paths}
        assert self.stores[0].sizes(paths) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_does_what_a_dictionary_does(kind: str) -> None:
    machine = type("StoreMachine", (StoreMachine,), {"kind": kind})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None)
    )
