"""What holds for every canonical URI, whatever text it came from."""

from __future__ import annotations

import os
import string
from urllib.parse import unquote

from hypothesis import example, given
from hypothesis import strategies as st

from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical, is_under, local_path, parse_location

SCHEMES = ["s3", "S3", "s3a", "s3+ddb", "gs", "az", "memory", "file", "FILE"]
# Pieces that a parser could trip over, beside ordinary and arbitrary text.
PIECES = st.one_of(
    st.sampled_from(
        ["..", ".", "", " ", "%2e", "%2E%2e", "%2F", "%5c", "%20", "%25", "%", "?", "#", "\\", "é"]
    ),
    st.sampled_from(["%00", "%FF", "%C3%A9", "ddbTableName=x", "&", "=", "\t", "\x00", "\ud800", "~"]),
    st.text(string.ascii_letters + "-_.", max_size=5),
    st.text(max_size=3),
)
SEGMENTS = st.lists(PIECES, max_size=4).map("".join)
PATHS = st.lists(SEGMENTS, max_size=5).map("/".join)
HOSTS = st.sampled_from(["", "lake", "Lake", "localhost", "a@b.c", "lake:80"])
URIS = st.builds("{}://{}/{}".format, st.sampled_from(SCHEMES), HOSTS, PATHS)
TEXTS = st.one_of(URIS, PATHS, st.builds("file:/{}".format, PATHS), st.text())

# What a file system takes as a name, without what no Lance client opens.
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[chr(i) for i in range(32)] + ["/", "\x7f"])
)
FOLDERS = st.lists(NAMES.filter(lambda name: name not in {"", ".", ".."}), min_size=1, max_size=4)

PLAIN = st.text(string.ascii_letters + string.digits + "._-=+~", min_size=1, max_size=4)
ESCAPES = st.sampled_from(["%20", "%3D", "%3d", "%2B", "%25", "%3F", "%23", "%5C", "%C3%A9", "%c3%a9", "%41"])
ENCODED = st.lists(st.one_of(PLAIN, ESCAPES), min_size=1, max_size=4).map("".join)
ENCODED_PATHS = st.lists(ENCODED.filter(lambda s: s not in {".", ".."}), min_size=1, max_size=4).map("/".join)


def accepted(text: str) -> str | None:
    """Returns the canonical form, None if the text is refused. Any other error fails the test."""
    try:
        return canonical(text)
    except InvalidError as error:
        hint = error.hint
    assert hint
    return None


@given(TEXTS)
@example("file:///a /.")
@example("s3://lake/t /")
@example("s3://lake/%252e%252e/t")
@example("//x")
def test_canonical_is_idempotent(text: str) -> None:
    uri = accepted(text)
    assert uri is None or canonical(uri) == uri


@given(TEXTS)
@example("s3://lake/..%2F..")
@example("file:///lake/%2e%2e/x")
def test_no_dots_and_no_empty_segments_survive(text: str) -> None:
    uri = accepted(text)
    if uri is None:
        return
    _, _, rest = uri.partition("://")
    segments = rest.partition("?")[0].split("/")
    if uri != "file:///":
        assert "" not in segments[1:]
    for segment in segments:
        assert unquote(segment) not in {".", ".."}
        assert "/" not in unquote(segment)
    assert not uri.endswith(" ")
    assert "#" not in uri


@given(TEXTS)
def test_the_scheme_is_lower_case_and_a_query_names_only_the_external_store(text: str) -> None:
    uri = accepted(text)
    if uri is None:
        return
    scheme, _, rest = uri.partition("://")
    assert scheme == scheme.lower() != "s3a"
    assert parse_location(uri).authority == parse_location(uri).authority.lower()
    _, mark, query = rest.partition("?")
    assert not mark or (query.startswith("ddbTableName=") and "&" not in query)


@given(st.sampled_from(["s3://lake", "gs://lake", "memory://lake", "file:///nowhere"]), ENCODED_PATHS)
def test_percent_encoding_is_left_alone(root: str, path: str) -> None:
    assert canonical(f"{root}/{path}") == f"{root}/{path}"
    assert canonical(f"{root}//{path}/./") == f"{root}/{path}"


@given(FOLDERS)
@example(["a%20b", "100%", "q?x", "h#f", "back\\slash", "end "])
@example(["%%41"])
@example(["%2e%2e"])
def test_a_local_path_comes_back_as_it_went_in(names: list[str]) -> None:
    path = "/nowhere/" + "/".join(names)
    uri = canonical(path)
    assert local_path(uri) == path == os.path.realpath(path)
    assert canonical(uri) == uri
    # What any client does that takes the URI apart.
    assert unquote(uri.removeprefix("file://")) == path


@given(FOLDERS, FOLDERS)
def test_a_folder_is_a_root_of_what_is_below_it_and_of_nothing_else(
    above: list[str], below: list[str]
) -> None:
    root = "/nowhere/" + "/".join(above)
    assert is_under(canonical(f"{root}/{'/'.join(below)}"), [canonical(root)])
    assert not is_under(canonical(root), [canonical(f"{root}/{'/'.join(below)}")])
    assert not is_under(canonical(f"{root}x"), [canonical(root)])
