"""Feature flags: a table that needs more than we know is refused by name, reading and writing apart."""

import pytest

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_reader.lance.snapshot.snapshot import features_of
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.manifests.features import (
    Flag,
    check_readable,
    check_writable,
    flags_of,
    has_stable_row_ids,
    meaning,
    set_flag,
)

KNOWN = [1, 2, 4, 8, 16, 32, 256]
UNKNOWN = {
    64: "data overlay files",
    128: "covering indices",
    512: "a fragment-reuse index on a table with stable row ids",
    1024: "a fragment-reuse index with tags",
    2048: "row ids and versions are stored in data files",
    4096: "a feature that Lance 14 doesn't know either",
    8192: "a feature that Lance 14 doesn't know either",
    16384: "managed blobs",
    32768: "field ids are never used again",
    65536: "zone write seeds",
    1 << 17: "a feature of a newer Lance",
    1 << 63: "a feature of a newer Lance",
}


@pytest.mark.parametrize("flag", KNOWN)
def test_known_flags(flag: int) -> None:
    check_writable(Manifest(reader_feature_flags=flag, writer_feature_flags=flag))


@pytest.mark.parametrize("flag", UNKNOWN)
def test_unknown_flags_of_the_reader_are_named_with_their_meaning(flag: int) -> None:
    head = Manifest(reader_feature_flags=flag | 1)
    for check in (check_readable, check_writable):
        with pytest.raises(InvalidError, match=rf"can't be read.*: {flag} \({UNKNOWN[flag]}") as caught:
            check(head, "file:///t")
        assert (caught.value.where, caught.value.hint) == ("file:///t", "use a newer release")


@pytest.mark.parametrize("flag", UNKNOWN)
def test_unknown_flags_of_the_writer_let_one_read(flag: int) -> None:
    head = Manifest(writer_feature_flags=flag)
    check_readable(head)
    with pytest.raises(InvalidError, match=rf"can't be written.*: {flag} \({UNKNOWN[flag]}"):
        check_writable(head)


def test_all_unknown_flags_are_named() -> None:
    with pytest.raises(InvalidError, match=r": 64 \(.*\), 1024 \(.*\)"):
        check_readable(Manifest(reader_feature_flags=64 | 1024 | 2))


@pytest.mark.parametrize(("readers", "writers"), [(256, 0), (0, 256)])
def test_a_flag_that_both_sides_must_have_is_damage_on_one(readers: int, writers: int) -> None:
    with pytest.raises(DamagedError, match=r"256 .* for readers or for writers only"):
        check_readable(Manifest(reader_feature_flags=readers, writer_feature_flags=writers))


def test_a_flag_is_set_for_readers_and_writers() -> None:
    head = Manifest(reader_feature_flags=1)
    set_flag(head, Flag.STABLE_ROW_IDS)
    assert (head.reader_feature_flags, head.writer_feature_flags) == (3, 2)
    assert has_stable_row_ids(head)
    assert not has_stable_row_ids(Manifest(writer_feature_flags=2))


def test_flags_follow_from_the_content() -> None:
    head = Manifest()
    assert flags_of(head, deletions=False) == (0, 0)
    assert flags_of(head, deletions=True) == (1, 1)
    head.config["k"] = "v"
    assert flags_of(head, deletions=False) == (0, 8)
    head.base_paths.add(id=0)
    assert flags_of(head, deletions=True) == (17, 25)


@pytest.mark.parametrize("flag", [2, 256])
def test_what_only_the_flag_says_stays(flag: int) -> None:
    head = Manifest(reader_feature_flags=flag, writer_feature_flags=flag)
    assert flags_of(head, deletions=False) == (flag, flag)
    assert flags_of(head, deletions=True) == (flag | 1, flag | 1)


@pytest.mark.parametrize("flag", [1, 4, 8, 16, 32])
def test_flags_without_a_reason_go(flag: int) -> None:
    head = Manifest(reader_feature_flags=flag, writer_feature_flags=flag)
    assert flags_of(head, deletions=False) == (0, 0)


def test_features_for_people() -> None:
    values = [
        (feature.flag, feature.meaning, feature.readers, feature.writers)
        for feature in features_of(1 | 1 << 40, 9)
    ]
    assert values == [
        (1, "some rows are deleted by deletion files", True, True),
        (8, "the table has a configuration", False, True),
        (1 << 40, meaning(1 << 40), True, False),
    ]
