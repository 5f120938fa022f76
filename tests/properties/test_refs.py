"""Refs: every name comes back from its file's name, every tag and branch from its file, damage is named."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from lakefold_table.branch_names import check_branch_name
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.manifests.naming import DETACHED_BIT, MAX_U64, Scheme, detect, parse_detached
from lakefold_table.lance.refs.files import decode_branch, decode_tag, encode_branch, encode_tag
from lakefold_table.lance.refs.names import branch_path, check_tag_name, ref_name, tag_path
from lakefold_table.ref_files import Branch, Tag

U64 = st.integers(0, MAX_U64)
TEXT = st.text(max_size=8)
TIME_NS = st.none() | st.integers(0, 250_000_000_000 * 10**9)
METADATA = st.dictionaries(TEXT, TEXT, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | METADATA, max_leaves=3
)
UNKNOWN = st.dictionaries(st.sampled_from(["x", "später"]), JSON)
LINEAGE = st.none() | st.lists(st.tuples(U64, TEXT), max_size=3).map(tuple)
TAGS = st.builds(Tag, U64, st.none() | TEXT, TIME_NS, TIME_NS, U64, METADATA, UNKNOWN)
BRANCHES = st.builds(Branch, U64, st.none() | TEXT, LINEAGE, U64, U64, METADATA, UNKNOWN)


@given(TAGS)
def test_a_tag_comes_back_from_its_file(tag: Tag) -> None:
    assert decode_tag(encode_tag(tag)) == tag


@given(BRANCHES)
def test_a_branch_comes_back_from_its_file(branch: Branch) -> None:
    assert decode_branch(encode_branch(branch)) == branch


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_name_comes_back_from_its_path(name: str) -> None:
    for path in (tag_path(name), branch_path(name)):
        assert ref_name(path.rpartition("/")[2]) == name
        assert path.isascii()
        assert path.count("/") == 2


@given(st.text(st.sampled_from("ab./\\-_ é\0%"), max_size=8))
def test_a_name_that_is_let_through_stays_below_the_root(name: str) -> None:
    with suppress(InvalidError):
        check_branch_name(name)
        assert not {"", ".", ".."} & set(name.split("/"))
    with suppress(InvalidError):
        check_tag_name(name)
        assert "/" not in name


@settings(max_examples=300)
@given(
    st.sampled_from([encode_tag(Tag(7, "b", 5, 6, 7)), encode_branch(Branch(3, "p", ((3, "ab"),)))]),
    st.data(),
)
def test_damage_is_named(good: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(good)))
    bad = good[:start] + data.draw(st.binary(max_size=4)) + good[data.draw(st.integers(start, len(good))) :]
    for decode in (decode_tag, decode_branch):
        with suppress(DamagedError):
            decode(bad)


@given(st.recursive(JSON, lambda inner: st.dictionaries(TEXT, inner), max_leaves=4))
def test_any_json_is_read_or_named(value: object) -> None:
    for decode in (decode_tag, decode_branch):
        with suppress(DamagedError):
            decode(json.dumps(value).encode())


@given(st.integers(1, DETACHED_BIT - 1), st.integers(DETACHED_BIT, MAX_U64), st.sampled_from(Scheme))
def test_a_detached_version_is_never_treated_as_one_of_the_sequence(
    line: int, aside: int, scheme: Scheme
) -> None:
    names = [scheme.path(number).rpartition("/")[2] for number in (line, aside)]
    assert detect(names) is scheme
    assert detect(names[1:]) is None
    assert [scheme.parse(name) for name in names] == [line, None]
    assert [parse_detached(name) for name in names] == [None, aside]
