"""Everything below a root has a name of its own, with the query of a URI at its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefold_table.roots import above, below, folder_and_name, is_whole
from lakefold_table.uri import canonical, parse_location

EXTERNAL = "s3+ddb://lake/a/t?ddbTableName=versions"
ROOTS = [
    "file:///lake/t",
    "file:///lake/q%3Fx",
    "s3://lake/t",
    "gs://lake",
    EXTERNAL,
    "/lake/q?ddbTableName=x",
]
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/?"), min_size=1)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("s3://lake/t", "s3://lake/t/tree/b"),
        ("s3://lake/t/", "s3://lake/t/tree/b"),
        ("/lake/t", "/lake/t/tree/b"),
        ("/lake/q?x", "/lake/q?x/tree/b"),
        (EXTERNAL, "s3+ddb://lake/a/t/tree/b?ddbTableName=versions"),
    ],
)
def test_a_query_stays_at_the_end(root: str, expected: str) -> None:
    assert below(root, "tree/b") == expected


def test_a_path_below_a_canonical_root_is_canonical_and_the_same_path() -> None:
    for root in ROOTS[:-1]:
        name = below(root, "tree/b")
        assert canonical(name) == name
        assert parse_location(name).segments == (*parse_location(root).segments, "tree", "b")
        assert parse_location(name).external == parse_location(root).external


@given(root=st.sampled_from(ROOTS), path=PATHS)
def test_what_was_named_below_a_root_leads_back_to_it(root: str, path: str) -> None:
    name = below(root, path)
    assert above(name, path) == root
    folder, last = folder_and_name(name)
    assert last == path.rpartition("/")[2]
    assert below(folder, last) == name


@given(root=st.sampled_from(ROOTS))
def test_a_name_that_ends_otherwise_is_left_as_it_is(root: str) -> None:
    assert above(root, "tree/b") == root
    assert above(below(root, "tree/bb"), "b") == below(root, "tree/bb")


def test_every_root_is_a_whole_name_and_what_depends_on_a_folder_is_none() -> None:
    assert all(map(is_whole, ROOTS))
    assert not any(
        map(is_whole, ["", "a", "./a", "~/a", "C:/a", "file:/a", " /a", "a/b://c", "://a", "1s3://a"])
    )
