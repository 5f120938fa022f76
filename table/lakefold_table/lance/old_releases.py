"""What old releases of Lance left out of their tables or wrote wrongly, and what a writer has to do about it.

pylance completes such a table with its next commit, whatever that is, and records itself as the writer of
that version. So a client that commits without doing the same hides the fault from every client that comes
later. What follows from the manifest alone is completed here too (the version of the data files). What has to
be read from data files or indices is left to pylance: the table can be read, but is refused for writing, with
a hint that names the command to run. Source: Lance fact 2.7.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_table.lance.state import LanceState

LANCE = "lance"
NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")
"""The beginning of a release's name. What follows it names a pre-release."""
TRUSTED_BITMAPS = (0, 8, 15)
"""If an older release than this wrote the version, Lance computes again which fragments an index covers."""
NAMELESS = (0,)
"""Old releases (0.8.0 for example) didn't record their name in a version. Some of them left out how many rows
a fragment has, some wrote it wrongly, so Lance counts all rows again."""
LEGACY_FORMAT = "0.1"
"""The name in manifests of the version of data files before 2."""


def check_up_to_date(state: LanceState, where: str = "") -> None:
    """Raises `InvalidError` if only Lance can complete the table.

    That is so if fragments may not say how many rows they have, or if an index may name fragments that it
    doesn't cover.
    """
    release = _release(state.head)
    if release is None or release >= TRUSTED_BITMAPS:
        return
    if release == NAMELESS and state.fragments.count:
        raise _outdated(
            "its fragments don't say how many rows they have, or may say it wrongly", state, where
        )
    if state.index_section:
        raise _outdated("its indices may claim rows that they don't cover", state, where)


def note_data_format(head: Manifest, *, legacy: bool) -> None:
    """Sets the version of the data files if they are all from before 2 and the manifest lacks it."""
    if legacy and not head.data_format.version:
        head.data_format.file_format, head.data_format.version = LANCE, LEGACY_FORMAT


def _release(head: Manifest) -> tuple[int, ...] | None:
    """Returns the release of Lance that wrote the version, or `NAMELESS`, or None if another library did."""
    if not head.HasField("writer_version"):
        return NAMELESS
    if head.writer_version.library != LANCE:
        return None
    numbers = NUMBERS.match(head.writer_version.version)
    return tuple(map(int, numbers.groups())) if numbers else (0, 0)


def _outdated(what: str, state: LanceState, where: str) -> InvalidError:
    by = state.head.writer_version.version or "of unknown number"
    return InvalidError(
        f"version {state.version} was written by a release of Lance ({by}) that left it incomplete: {what}",
        where=where,
        hint="let pylance 14 complete it, which changes no row: "
        f'lance.dataset("{where or "URI"}").delete("false"); then the table can be folded',
    )
