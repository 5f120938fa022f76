"""Feature flags: a table that needs more than we know is refused by name, reading and writing apart."""

import pytest

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.errors import InvalidError
from lakefold_table.lance.features import (
    Flag,
    check_readable,
    check_writable,
    has_stable_row_ids,
    set_flag,
)

KNOWN = [1, 2, 4, 8, 16, 32, 256]
UNKNOWN = [64, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 1 << 63]


@pytest.mark.parametrize("flag", KNOWN)
def test_known_flags(flag: int) -> None:
    check_writable(Manifest(reader_feature_flags=flag, writer_feature_flags=flag))


@pytest.mark.parametrize("flag", UNKNOWN)
def test_unknown_flags_of_the_reader(flag: int) -> None:
    head = Manifest(reader_feature_flags=flag | 1)
    for check in (check_readable, check_writable):
        with pytest.raises(InvalidError, match=rf"can't be read.*\({flag}\)") as caught:
            check(head, "file:///t")
        assert (caught.value.where, caught.value.hint) == ("file:///t", "use a newer release")


@pytest.mark.parametrize("flag", UNKNOWN)
def test_unknown_flags_of_the_writer(flag: int) -> None:
    head = Manifest(writer_feature_flags=flag)
    check_readable(head)
    with pytest.raises(InvalidError, match=rf"can't be written.*\({flag}\)"):
        check_writable(head)


def test_all_unknown_flags_are_named() -> None:
    with pytest.raises(InvalidError, match=r"\(64, 1024\)"):
        check_readable(Manifest(reader_feature_flags=64 | 1024 | 2))


def test_a_flag_is_set_for_readers_and_writers() -> None:
    head = Manifest(reader_feature_flags=1)
    set_flag(head, Flag.STABLE_ROW_IDS)
    assert (head.reader_feature_flags, head.writer_feature_flags) == (3, 2)
    assert has_stable_row_ids(head)
    assert not has_stable_row_ids(Manifest(writer_feature_flags=2))
