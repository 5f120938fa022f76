"""What a catalog's names mean: folders below its root, and nothing else."""

from __future__ import annotations

import pytest

from lakefold.namespace.names import MOST_LEVELS, Names
from lakefold.namespace.rows import qualified
from lakefold_table.errors import InvalidError

NAMES = Names("file:///lake")
WRONG = (
    *(
        "",
        ".",
        "..",
        "../a",
        "a/b",
        "a\\b",
        "/a",
        "a:b",
        "a*",
        "a?",
        "a|b",
        'a"',
        "<a>",
        "a%2fb",
        "a#",
        "a$b",
    ),
    *(
        ".a",
        "_versions",
        "_lakefold",
        "a.",
        " a",
        "a ",
        "a\n",
        "a\x00",
        "a\u202eb",
        "e\u0301",
        "data",
        "DATA",
        "tree",
    ),
    *("a" * 201, "\ud800"),
)


def test_a_table_is_a_folder_below_the_root() -> None:
    assert NAMES.table(["sales", "orders"]) == "file:///lake/sales/orders.lance"
    assert NAMES.table(["t"]) == "file:///lake/t.lance"
    assert Names("s3://lake/part", "").table(["a", "t"]) == "s3://lake/part/a/t"
    assert NAMES.namespace([]) == "file:///lake"
    assert NAMES.namespace(["a", "b"]) == "file:///lake/a/b"
    assert NAMES.table_name("t.lance") == "t"
    assert NAMES.table_name("t") is None


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_is_no_folder_s_is_refused(name: str) -> None:
    """As a namespace, and as a table in one."""
    with pytest.raises(InvalidError, match="can't be a name"):
        NAMES.table([name])
    with pytest.raises(InvalidError, match="can't be a name"):
        NAMES.table([name, "t"])


@pytest.mark.parametrize("name", ["a", "Über", "日本", "a-b_c.d", "1", "a" * 200, "a b"])
def test_other_names_are_taken(name: str) -> None:
    assert NAMES.table([name]).startswith("file:///lake/")


def test_ids_are_bounded() -> None:
    with pytest.raises(InvalidError, match="names no table"):
        NAMES.table([])
    with pytest.raises(InvalidError, match="an id of"):
        NAMES.namespace(["a"] * (MOST_LEVELS + 1))
    with pytest.raises(InvalidError, match=r"ends with \.lance"):
        NAMES.table(["a.lance", "t"])


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("id > 1", "target.id > 1"),
        ("id = 1 AND text = 'id'", "target.id = 1 AND target.text = 'id'"),
        ("upper(text)", "upper(target.text)"),
        ("text || 'it''s id'", "target.text || 'it''s id'"),
        ('"id" + 1', 'target."id" + 1'),
        ("target.id = source.id", "target.id = source.id"),
        ("id(id)", "id(target.id)"),
        ("point.id", "target.point.id"),
        ("other + 1", "other + 1"),
    ],
)
def test_names_in_sql_are_the_table_s_columns(given: str, meant: str) -> None:
    assert qualified(given, ["id", "text", "point"]) == meant
