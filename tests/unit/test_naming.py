"""Names of versions in both schemes, and paths that may not leave the table."""

import pytest

from lakefold_table.errors import DamagedError
from lakefold_table.lance.manifests.naming import (
    VERSIONS,
    Scheme,
    detect,
    is_data_name,
    is_detached,
    is_inside,
    parse_detached,
    transaction_path,
)

V2_ONE = "18446744073709551614.manifest"
V1, V2 = Scheme.V1, Scheme.V2


@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("version", [1, 2, 9, 10, 12_345, 2**32, 2**63 - 1])
def test_a_name_identifies_its_version(scheme: Scheme, version: int) -> None:
    path = scheme.path(version)
    folder, _, name = path.rpartition("/")
    assert folder == VERSIONS
    assert scheme.parse(name) == version
    assert [other.parse(name) for other in Scheme if other is not scheme] == [None]
    assert detect([name]) is scheme


def test_names_as_pylance_writes_them() -> None:
    assert V1.path(7) == "_versions/7.manifest"
    assert V2.path(1) == f"_versions/{V2_ONE}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".manifest",
        "manifest",
        "1",
        "1.manifest#1",
        "1.manifest-6f1f",
        "x1.manifest",
        "-1.manifest",
        "+1.manifest",
        " 1.manifest",
        "1_0.manifest",
        "٣.manifest",
        "²5.manifest",
        "0.manifest",
        "07.manifest",
        "00000000000000000007.manifest",
        "18446744073709551615.manifest",
        "18446744073709551616.manifest",
        "9223372036854775808.manifest",
        "d9223372036854775809.manifest",
        "d18446744073709551614.manifest",
        ".tmp18446744073709551614.manifest",
        "latest_version_hint.json",
        "_latest.manifest",
        "1.MANIFEST",
    ],
)
def test_other_files_are_no_versions(name: str) -> None:
    assert [scheme.parse(name) for scheme in Scheme] == [None, None]
    assert detect([name]) is None


def test_detached_and_staged_files_do_not_change_the_scheme() -> None:
    beside = ["d9223372036854775809.manifest", "latest_version_hint.json", "5.manifest#1", f"{V2_ONE}-6f"]
    assert detect([*beside, V2_ONE]) is V2
    assert detect([*beside, "5.manifest"]) is V1
    assert detect(beside) is None
    assert detect([]) is None


def test_two_schemes_in_one_folder_are_damage() -> None:
    with pytest.raises(DamagedError, match="two schemes") as caught:
        detect([V2_ONE, "5.manifest"])
    assert "migrate_manifest_paths_v2" in caught.value.hint


@pytest.mark.parametrize(
    "path", ["a.lance", "sub/a.lance", "ü.lance", "a b", "a" * 255, "/".join("ab" * 200)]
)
def test_plain_paths_are_inside(path: str) -> None:
    assert is_inside(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        ".hidden",
        "a/.tmp1",
        "a\\b",
        "..\\a",
        "a\0b",
        "a\nb",
        "a\x7fb",
        "a\u202eb",
        "a" * 256,
        "ü" * 128,
        "a/" * 600 + "a",
    ],
)
def test_paths_that_leave_or_that_a_store_refuses_are_outside(path: str) -> None:
    assert not is_inside(path)


@pytest.mark.parametrize("name", ["a.lance", "A-b_c.1", "a b", "a&b=c@d,(e)+!$';:"])
def test_names_that_clients_find(name: str) -> None:
    assert is_data_name(name)


@pytest.mark.parametrize(
    "name", ["", ".a", "sub/a.lance", "ü.lance", *(f"a{each}b" for each in '"#%*<>?[]^`{|}~')]
)
def test_names_that_clients_write_otherwise(name: str) -> None:
    assert not is_data_name(name)


DETACHED = 2**63 + 5


def test_a_detached_version_has_a_name_of_its_own_and_is_not_in_the_sequence() -> None:
    name = f"d{DETACHED}.manifest"
    assert (is_detached(DETACHED), is_detached(2**63 - 1)) == (True, False)
    assert [scheme.path(DETACHED) for scheme in Scheme] == [f"_versions/{name}"] * 2
    assert parse_detached(name) == DETACHED
    assert Scheme.of(name, DETACHED) is V2
    assert detect([name]) is None


@pytest.mark.parametrize(
    "name",
    [
        V2_ONE,
        "5.manifest",
        "d5.manifest",
        "d.manifest",
        f"d{2**63 - 1}.manifest",
        f"d{2**64}.manifest",
        f"d0{2**63}.manifest",
        f"D{DETACHED}.manifest",
        f"dd{DETACHED}.manifest",
        f"{DETACHED}.manifest",
        f"d{DETACHED}",
        f"d{DETACHED}.manifest#1",
        f".tmpd{DETACHED}.manifest",
        "d٩223372036854775813.manifest",
    ],
)
def test_other_names_are_no_detached_versions(name: str) -> None:
    assert parse_detached(name) is None
    assert Scheme.of(name, DETACHED) is None


def test_the_scheme_of_a_name_depends_on_the_version_that_it_should_identify() -> None:
    assert Scheme.of(V2_ONE, 1) is V2
    assert Scheme.of("7.manifest", 7) is V1
    assert [Scheme.of(V2_ONE, 2), Scheme.of("7.manifest", 8), Scheme.of("x", 1)] == [None, None, None]


def test_the_path_of_a_transaction_file() -> None:
    assert transaction_path("3-uuid.txn") == "_transactions/3-uuid.txn"
    for name in ("", "../3-uuid.txn", "deep/3-uuid.txn", "/3-uuid.txn", "..", ".hidden"):
        assert transaction_path(name) == ""
