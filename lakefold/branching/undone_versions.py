"""What a restore undoes: the batches that were folded into the versions after the restored one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from lakefold_reader.snapshot.history import HistoryRow, history_of
from lakefold_reader.versions.listing import numbers_of
from lakefold_table.marks.record import Batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold.branching.chosen_version import ChosenVersion


@dataclass(frozen=True, slots=True)
class UndoneVersions:
    """The proposals in the versions after the restored one.

    `versions`: how many there are. `apps`: their batches, by app. `entries_without_app_id`: how many other
    proposals were folded into them. `foreign_versions`: those that other clients have made.
    """

    versions: int
    apps: tuple[Batches, ...]
    entries_without_app_id: int
    foreign_versions: tuple[int, ...]


def newest_before(chosen: ChosenVersion, made: int | None) -> int:
    """Returns the number of the newest version of the branch before the version `made`; None: of all."""
    return max(number for number in numbers_of(chosen.source) if made is None or number < made)


def undone_versions(chosen: ChosenVersion, newest: int) -> UndoneVersions:
    """Returns what the versions after the chosen one, up to `newest`, contain."""
    if newest <= chosen.version:
        return UndoneVersions(0, (), 0, ())
    return summed(history_of(chosen.source, chosen.version + 1, newest))


def summed(rows: Iterable[HistoryRow]) -> UndoneVersions:
    """Returns the sum of these versions."""
    versions = list(rows)
    apps = sorted((app for row in versions for app in row.apps), key=attrgetter("app_id"))
    in_apps = sum(app.count for app in apps)
    return UndoneVersions(
        len(versions),
        tuple(_joined(list(group)) for _, group in groupby(apps, attrgetter("app_id"))),
        sum(row.entries or 0 for row in versions) - in_apps,
        tuple(sorted(row.version for row in versions if not row.own)),
    )


def _joined(batches: list[Batches]) -> Batches:
    return Batches(
        batches[0].app_id,
        min(each.first for each in batches),
        max(each.last for each in batches),
        sum(each.count for each in batches),
    )
