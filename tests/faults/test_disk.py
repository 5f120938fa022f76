"""Each system call of a committer's publication fails once, or from then on: what was answered stays true.

No version is reported unless the disk has it, whatever a sync after a failed one has returned. When the disk
works again, or the machine was restarted, each entry is in the table once.

Promises: synced-before-committed, failed-sync-is-no-sync (docs/operations/promises.md).
"""

from __future__ import annotations

import errno
from functools import partial
from itertools import chain, count, product
from typing import TYPE_CHECKING

import pytest

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.storage.syncs import FAILURES
from tests.faults.disks import Fault, FaultyDisk
from tests.scenarios.cut_tables import TABLES, CutTable

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_table.entry import Result

ATTEMPTS = 3
FAULTS = [
    ("fsync", errno.EIO),
    ("fsync", errno.ENOSPC),
    ("fsync", errno.EROFS),
    ("writev", errno.ENOSPC),
    ("writev", errno.EIO),
    ("link", errno.EIO),
    ("link", errno.ENOSPC),
    ("link", errno.EROFS),
    ("rename", errno.EIO),
    ("rename", errno.ENOSPC),
    ("unlink", errno.EIO),
    ("open", errno.EIO),
    ("open", errno.ENOSPC),
    ("open", errno.EROFS),
    ("pass", errno.EIO),
]
SHORT = [("fsync", errno.EIO), ("writev", errno.ENOSPC), ("link", errno.EIO), ("open", errno.EROFS)]
"""The faults of a run without `--all-faults`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All faults in all circumstances, or some.

    A run without `--all-faults` has each fault in half of the circumstances: with each two of its format, how
    files are made, and whether the fault lasts. What it leaves out of a fault is played with the next one.
    """
    if "call" not in metafunc.fixturenames:
        return
    every = metafunc.config.getoption("--all-faults")
    played = [
        pytest.param(*fault, kind, lasting, unnamed, id=_name(*fault, kind, lasting=lasting, unnamed=unnamed))
        for number, fault in enumerate(FAULTS if every else SHORT)
        for lasting, unnamed, (at, kind) in product((False, True), (True, False), enumerate(TABLES))
        if every or (number + lasting + unnamed + at) % 2 == 0
    ]
    metafunc.parametrize(("call", "error", "kind", "lasting", "unnamed"), played)


def _name(call: str, error: int, kind: type[CutTable], *, lasting: bool, unnamed: bool) -> str:
    moment, files = "from-then-on" if lasting else "once", "unnamed" if unnamed else "named"
    return f"{call}-{errno.errorcode[error]}-{moment}-{files}-{kind.__name__}"


def answered(table: CutTable) -> list[Result] | None:
    """The answers of a committer that tries some times, and opens the table again when the daemon does."""
    owned = None
    for _ in range(ATTEMPTS):
        try:
            owned = owned or table.committer()
            return table.fold(owned)
        except RetryError:
            pass
        except InvalidError:
            owned = None
    return None


class Cuts:
    """What a power cut may leave of a table, each checked once: most faults leave the same."""

    def __init__(self) -> None:
        self._checked: set[tuple[bool, frozenset[tuple[str, bytes | None]]]] = set()

    def check(self, table: CutTable, *, answered: bool) -> None:
        """After a cut now, the version with the entries exists if they were answered, and else it may.

        A committer that takes over may have published another version.
        """
        trees = {(answered, frozenset(tree.items())): tree for tree in table.disk.moments[-1].trees()}
        allowed = {1, 2} if answered else {0, 1}
        for path in table.after_cuts(tree for key, tree in trees.items() if key not in self._checked):
            assert table.new_versions(path) in allowed
            table.check_recovery(path)
        self._checked |= trees.keys()


def test_what_is_answered_is_on_the_disk_whichever_call_fails(
    tmp_path: Path,
    kind: type[CutTable],
    call: str,
    error: int,
    *,
    lasting: bool,
    unnamed: bool,
    all_faults: bool,
) -> None:
    """Without `--all-faults` some calls fail: from the first on, or the first and others than these."""
    reported, tried, cuts = 0, 0, Cuts()
    some = chain([1], count(2, kind.spread)) if lasting else count(1, kind.spread)
    for number in count(1) if all_faults else some:
        fault = Fault(call, error, number, lasting)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        table = kind(folder, unnamed=unnamed, disk=partial(FaultyDisk, fault=fault))
        failed = FAILURES.count
        answers = answered(table)
        if fault.met < number:
            break
        tried += 1
        if call == "fsync":
            assert FAILURES.count > failed, "each is counted"
        if answers is None:
            cuts.check(table, answered=False)
            fault.mend()
            assert answered(table) is not None
        else:
            reported += 1
        cuts.check(table, answered=True)
    assert tried, f"nothing calls {call}"
    if not lasting:
        assert reported == tried, "one fault is got over within a few attempts"
