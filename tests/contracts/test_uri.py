"""Holds canonical URIs against their vectors, the file system, and what a Lance client opens."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import lance
import pyarrow as pa
import pytest

from lakefold_table.errors import InvalidError
from lakefold_table.uri import Location, canonical, is_under, local_path, parse_location

VECTORS: dict[str, list[dict[str, str]]] = json.loads((Path(__file__).parent / "uri.json").read_text())

# Names of folders that a URI parser could take for something else, and that a Lance client can open.
ODD_NAMES = [
    *["a b", " a", "a ", "a  ", "é", "e\u0301", "日本", "\U0001f600", "a\u00a0", "a\u2028b", "a\x80b"],
    *["a%20b", "100%", "%", "a%zz", "a%4", "%%41", "%2e%2e", "a%2Fb", "%25", "%00"],
    *["q?x=1", "?", "h#f", "h#1", "a\\b", "a\\", "\\..\\x", "a+b", "k=v&w", "a:b", "a@b", "a;b", "a,b"],
    *["a*b", "[a]", "{a}", "a^b", "a|b", 'a"b', "<a>", "a`b", "a~b", "~", "(a)", "a!b'c$d", "-x"],
    *["...", "..x", "x.", ". .", "file:", "s3:", "s3:b"],
]


@pytest.mark.parametrize("vector", VECTORS["accepted"], ids=lambda vector: ascii(vector["given"]))
def test_each_accepted_text_becomes_its_canonical_uri(vector: dict[str, str]) -> None:
    assert canonical(vector["given"]) == vector["canonical"]
    assert canonical(vector["canonical"]) == vector["canonical"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: ascii(vector["given"]))
def test_each_refused_text_says_what_is_wrong_and_how_to_mend_it(vector: dict[str, str]) -> None:
    with pytest.raises(InvalidError) as refused:
        canonical(vector["given"])
    assert vector["says"] in str(refused.value)
    assert refused.value.hint
    str(refused.value).encode()


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_lance_client_opens_the_folder_that_was_named(name: str, tmp_path: Path) -> None:
    table = tmp_path / name / "inner"
    table.mkdir(parents=True)
    for path in (table, table.parent):
        uri = canonical(path)
        assert local_path(uri) == str(path)
        lance.write_dataset(pa.table({"x": [1, 2, 3]}), uri)
        assert (path / "_versions").is_dir()
        assert lance.dataset(str(path)).count_rows() == 3
    assert [child.name for child in tmp_path.iterdir()] == [name]


def test_a_percent_encoded_file_uri_names_the_same_place_as_the_path(tmp_path: Path) -> None:
    path = tmp_path / "a b%é"
    spelled = canonical(path.as_uri())
    assert spelled == f"file://{quote(str(path))}"
    assert local_path(spelled) == str(path)
    assert parse_location(spelled) == parse_location(canonical(path))


def test_symbolic_links_are_resolved_in_paths_and_in_uris(tmp_path: Path) -> None:
    real = tmp_path / "real 100%"
    real.mkdir()
    (tmp_path / "li nk").symlink_to(real)
    expected = canonical(real) + "/t"
    link = f"{tmp_path}/li nk/t"
    assert expected.endswith("/real 100%25/t")
    for text in (link, f"file://{link}", f"file://{quote(link)}", f"file:{link}"):
        assert canonical(text) == expected


def test_a_relative_path_is_taken_from_the_current_folder_and_a_tilde_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical("t") == f"file://{tmp_path}/t"
    assert canonical("./t") == f"file://{tmp_path}/t"
    assert canonical("../t") == f"file://{tmp_path.parent}/t"
    assert canonical("~/t") == f"file://{tmp_path}/~/t"
    assert canonical(".") == f"file://{tmp_path}"
    assert canonical("./s3:/t") == f"file://{tmp_path}/s3:/t"


def test_a_path_object_is_never_read_as_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    class Odd(os.PathLike[str]):
        def __fspath__(self) -> str:
            return "s3://lake/t"

    assert canonical(Odd()) == f"file://{tmp_path}/s3:/lake/t"


@pytest.mark.parametrize("other", [None, 5, b"/lake", ["/lake"]])
def test_what_is_no_text_is_refused_as_such(other: object) -> None:
    with pytest.raises(InvalidError, match=r"is not a table's name \(give a text or a pathlib\.Path"):
        canonical(other)  # type: ignore[arg-type] # that is the question


def test_a_current_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidError, match="absolute path"):
        canonical("t")


def test_a_link_to_a_name_that_no_client_opens_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tab\there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "tab\there")
    with pytest.raises(InvalidError, match="control"):
        canonical(tmp_path / "link")


def test_only_a_file_uri_has_a_local_path() -> None:
    assert local_path("file:///") == "/"
    assert local_path("file:///lake/a%20b") == "/lake/a b"
    for text in ("s3://lake/t", "memory://lake/t", "/lake/t"):
        with pytest.raises(InvalidError):
            local_path(text)


def test_a_place_is_what_the_uri_names() -> None:
    assert parse_location("s3://lake/a%20b/k=v") == Location("s3", "lake", ("a b", "k=v"))
    assert parse_location("s3://lake/a%20b/k=v").path == "a b/k=v"
    assert parse_location("s3+ddb://lake/t?ddbTableName=commits") == Location(
        "s3+ddb", "lake", ("t",), "commits"
    )
    assert parse_location("s3://lake") == Location("s3", "lake", ())


UNDER: list[Any] = [
    ("s3://lake/a/t", ["s3://lake"], True),
    ("s3://lake/a/t", ["s3://lake/a"], True),
    ("s3://lake/a", ["s3://lake/a"], True),
    ("s3://lake/ab", ["s3://lake/a"], False),
    ("s3://lake/A/t", ["s3://lake/a"], False),
    ("s3://lakes/a", ["s3://lake"], False),
    ("gs://lake/a", ["s3://lake"], False),
    ("s3://lake", ["s3://lake/a"], False),
    ("s3://lake/a b/t", ["s3://lake/a%20b"], True),
    ("s3+ddb://lake/a/t?ddbTableName=x", ["s3+ddb://lake/a"], True),
    ("s3+ddb://lake/a/t?ddbTableName=x", ["s3://lake/a"], False),
    ("file:///lake/t", ["file:///"], True),
    ("file:///lake/t", ["file:///other", "file:///lake"], True),
    ("file:///lakes/t", ["file:///lake"], False),
    ("file:///lake/t", [], False),
]


@pytest.mark.parametrize(("uri", "roots", "expected"), UNDER)
def test_a_table_is_below_a_root_by_whole_segments(uri: str, roots: list[str], expected: bool) -> None:  # noqa: FBT001 - a column of the table above
    assert is_under(uri, roots) is expected
