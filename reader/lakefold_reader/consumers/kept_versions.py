"""For whom the old versions of a branch are kept, and the files that only they need. Nothing is removed.

Each old version counts once: as removable, or for the first of these that keeps it: a tag, a branch, a
consumer, the policy. So does each file that the newest version doesn't need. What a clean-up would remove is
added up by the format's own clean-up, with the versions of one row after the other, so that the first row has
the figures of `lakefold cleanup --dry-run`. No clean-up takes tagged versions; their data files are counted
by what the versions name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from lakefold_reader.consumers.consumers import TAG, Consumers
from lakefold_reader.consumers.expire_versions import CONSUMERS, MARKS, POLICY, clean_up
from lakefold_reader.format.snapshots import Cleaned
from lakefold_reader.snapshot.snapshot import table_of
from lakefold_reader.versions.branches import main_and_branch
from lakefold_reader.versions.listing import numbers_of
from lakefold_table.branch_names import MAIN
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakefold_reader.consumers.expire_versions import Plan
    from lakefold_reader.format.source import Source

REMOVABLE: Final = "removable"
TAGS: Final = "tags"
BRANCHES: Final = "branches"
MOST_ROWS: Final = 5
"""The most rows of consumers. All consumers that are further ahead share the last row."""


@dataclass(frozen=True, slots=True)
class KeptFor:
    """Old versions that are kept for one reason, and the data files and bytes that only they need.

    `names`: the tags, branches or consumers. `files`, `bytes`: None if a clean-up would not remove all of
    these versions. Of tags and branches they are the bytes of data files, else those of all files.
    """

    reason: str
    names: tuple[str, ...]
    versions: int
    files: int | None
    bytes: int | None


def kept_versions(source: Source, planned: Plan) -> list[KeptFor]:
    """Returns for whom the old versions of a branch are kept, given the plan of a clean-up.

    The first row has the versions that the plan removes. The manifests are read once for each row. Raises as
    `plan` and `clean_up`.
    """
    numbers = numbers_of(source)
    files = _FilesOfVersions(source, planned.newest)
    refs, taken = [], set[int]()
    for reason, named in _refs(source).items():
        old = {name: number for name, number in named.items() if number in numbers[:-1]}
        new = {*old.values()} - taken
        refs.append(KeptFor(reason, tuple(old), len(new), *files.added(new)))
        taken |= new
    aged = [number for number in numbers[: len(numbers) - planned.kept[POLICY]] if number not in taken]
    behind = _by_consumer(source, aged)
    read = [number for _, _, versions in behind for number in versions]
    verifying = [number for number in aged if number not in {*planned.versions, *read}]
    groups = [(REMOVABLE, (), [*planned.versions]), *behind]
    groups += [(MARKS, (), verifying)] if verifying else []
    younger = [number for number in numbers[:-1] if number not in {*taken, *aged}]
    rows = []
    counted: list[int] = []
    before: Cleaned | None = Cleaned(0, 0, 0)
    for reason, names, versions in [*groups, (POLICY, (), younger)]:
        counted = sorted([*counted, *versions])
        after = files.cleaned(replace(planned, versions=counted))
        more: tuple[int | None, int | None] = (None, None)
        if before is not None and after is not None:
            own_files, own_bytes = files.added(files.tagged.intersection(versions))
            more = after.data_files - before.data_files + own_files, after.bytes - before.bytes + own_bytes
        rows.append(KeptFor(reason, names, len(versions), *more))
        before = after
    return [rows[0], *refs, *rows[1:]]


class _FilesOfVersions:
    """The files that versions need. `tagged`: versions that have a tag, also one of a consumer."""

    def __init__(self, source: Source, newest: int) -> None:
        self._source = source
        root, branch = main_and_branch(source)
        tags = Refs(root.storage).tags().values()
        self.tagged = frozenset(tag.version for tag in tags if (tag.branch or MAIN) == (branch or MAIN))
        self._newest = newest
        self._seen: set[str] | None = None

    def added(self, versions: Collection[int]) -> tuple[int, int]:
        """Returns how many data files, and their bytes, these versions need beside those counted before."""
        if not versions:
            return 0, 0
        if self._seen is None:
            self._seen = {path for path, _ in table_of(self._source, self._newest).data_files()}
        new = {
            path: size or 0
            for version in versions
            for path, size in table_of(self._source, version).data_files()
            if path not in self._seen
        }
        self._seen.update(new)
        return len(new), sum(new.values())

    def cleaned(self, planned: Plan) -> Cleaned | None:
        """Returns what a clean-up of these versions would remove, None if it would not remove all of them.

        Then the files that only they need are not known. Tagged versions are left out by every clean-up.
        """
        done = clean_up(self._source, planned, dry_run=True)
        return done if done.versions == len({*planned.versions} - self.tagged) else None


def _refs(source: Source) -> dict[str, dict[str, int]]:
    """Returns the versions of the branch that tags name and branches were made from, by the names."""
    consumers = Consumers(source)
    root, branch = main_and_branch(source)
    tags = {
        name: tag.version
        for name, tag in Refs(root.storage).tags().items()
        if (tag.branch or MAIN) == (branch or MAIN) and not name.startswith(TAG)
    }
    return {TAGS: tags, BRANCHES: {name: number for number, name in consumers.forked().items()}}


def _by_consumer(source: Source, aged: Sequence[int]) -> list[tuple[str, tuple[str, ...], list[int]]]:
    """Returns the consumers that keep versions which are old enough, the farthest behind first.

    A version that several consumers keep counts for the one that is furthest ahead.
    """
    consumers = Consumers(source)
    readers = [each for each in consumers.all() if each.branch == consumers.branch]
    behind = sorted(
        (each for each in readers if aged and each.version <= aged[-1]), key=lambda each: each.version
    )
    starts = sorted({each.version for each in behind})[:MOST_ROWS]
    return [
        (
            CONSUMERS,
            tuple(each.name for each in behind if start <= each.version < end),
            [number for number in aged if start <= number < end],
        )
        for start, end in pairwise([*starts, aged[-1] + 1 if aged else 0])
    ]
