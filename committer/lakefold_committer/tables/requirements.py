"""Fetches what the format needs for a fold, which may not read anything itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import FoldedTable, of_format
from lakefold_committer.fold.tagging import target_of
from lakefold_table.branch_deletion import deletes_branch
from lakefold_table.errors import DamagedError, NotATableError, VersionExpiredError
from lakefold_table.format import Fetched, Requirements, VersionHead, VersionSummary
from lakefold_table.marks.record import PARENT, decode_record
from lakefold_table.roots import is_whole
from lakefold_table.tag_proposal import tags_of
from lakefold_table.versions.succession import Link, Succession, link_of_summary, succession

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_committer.tables.prefetcher import Prefetcher
    from lakefold_protos.lakefold.log_pb2 import Tag
    from lakefold_table.entry import Entry, Result
    from lakefold_table.position import LogId
    from lakefold_table.tag_proposal import KnownTags
    from lakefold_table.versions.stored_table import StoredTable

ABSENT = -1
"""The size of a listed file that doesn't exist (`Fetched`)."""


def fetch(
    stored: StoredTable,
    prefetcher: Prefetcher,
    table: FoldedTable,
    group: Sequence[Entry],
) -> tuple[FoldedTable, Fetched]:
    """Returns what is needed to fold this group, and the table with what its older versions did."""
    proposed = tags_of(group)
    branch = "" if table.state is None or not any(map(deletes_branch, group)) else table.state.branch
    needed_by = prefetcher.needed_by(branch) if branch else ()
    tags = prefetcher.tags(proposed)
    group = of_format(stored.format, group)
    needs = stored.format.requirements(table.state, group)
    if needs.operations_since is not None and prefetcher.is_stored:
        table = with_history(stored, table, needs.operations_since)
        needs = stored.format.requirements(table.state, group)
    fetched = _fetched(prefetcher, needs)
    if table.state is not None and (_lacks_anything(fetched) or _lacks_named(proposed, tags)):
        # A store that isn't mounted lacks all files. It may be mounted again, so missing files don't count.
        if prefetcher.is_stored:
            stored.versions.check_any_exists(table.state.version)
        # The needs are computed again, since files that are listed in portions are read only once.
        fetched = _fetched(prefetcher, stored.format.requirements(table.state, group))
        tags = prefetcher.tags(proposed)
    return table, replace(fetched, tags=tags, needed_by=needed_by)


def with_history(stored: StoredTable, table: FoldedTable, since: int) -> FoldedTable:
    """Returns the table with summaries of its versions after `since`, back to the first that is gone."""
    if table.state is None:
        return table
    start = table.state.history_start
    following = _summary(stored, start + 1) if start < table.version else None
    older = _summaries(stored, start, since, following)
    return replace(table, state=stored.format.with_history(table.state, older))


def _fetched(prefetcher: Prefetcher, needs: Requirements) -> Fetched:
    states = prefetcher.states(needs.states)
    restored = prefetcher.restored(needs.restored)
    return Fetched(
        {**prefetcher.sizes(needs.sizes, needs.unknown_sizes), **restored},
        prefetcher.contents(needs.contents),
        prefetcher.schemas(needs.schemas),
        states,
        prefetcher.listed(needs.listed),
        prefetcher.outside(needs.bases),
        prefetcher.folders(needs.folders),
        prefetcher.tails(needs.tails),
        prefetcher.neighbours(needs.neighbours),
        prefetcher.times(needs.times),
        deleted=prefetcher.deleted(states),
        restored={path: needs.restored[path] for path, size in restored.items() if size is not None},
    )


def files_in(fetched: Fetched) -> list[str]:
    """Returns the files of the table that were fetched and exist, without those listed in portions."""
    files = [path for path, size in fetched.sizes.items() if size is not None]
    files += [path for path, data in fetched.contents.items() if data is not None and not is_whole(path)]
    files += [f"{folder}/{name}" for folder, names in fetched.folders.items() for name in names]
    return files


def _lacks_anything(fetched: Fetched) -> bool:
    results = (fetched.sizes, fetched.contents, fetched.schemas, fetched.states, fetched.tails)
    if any(None in result.values() for result in results) or not all(fetched.folders.values()):
        return True
    return any(ABSENT in sizes for sizes in fetched.listed.values())


def _lacks_named(proposed: Sequence[Tag], known: KnownTags) -> bool:
    """Returns whether a version that is to be tagged, or a tag that is to be removed, does not exist."""
    return any(
        known.tags.get(tag.name) is None if tag.delete else target_of(tag) not in known.versions
        for tag in proposed
    )


def answers_before(stored: StoredTable, newest: int, log: LogId, offsets: Sequence[int]) -> dict[int, Result]:
    """Returns the answers to the entries at these offsets of a log, as the versions record them.

    The versions are read from `newest`, which exists, backwards. Reading ends at the first version that was
    removed, that can only record smaller offsets, or that is a late version. An offset without an answer in
    the result was folded into a version that was removed.
    """
    missing, results = set(offsets), dict[int, "Result"]()
    made: VersionHead | None = None
    for version in range(newest, stored.versions.first - 1, -1):
        following = made
        try:
            made = stored.own_head(version)
        except VersionExpiredError:
            break
        except NotATableError as error:
            raise stored.versions.all_missing() from error
        record = None if made is None else decode_record(made.properties, stored.uri)
        if made is None or record is None or record.log != log or record.last_offset < record.first_offset:
            continue
        recorded = ((offset, record.answer(offset)) for offset in missing)
        answers = {offset: answer for offset, answer in recorded if answer is not None}
        if answers and version < newest and _arrived_late(stored, made, following, version):
            break
        results.update(answers)
        missing -= results.keys()
        if record.first_offset <= min(missing, default=record.first_offset):
            break
    return results


def _arrived_late(
    stored: StoredTable,
    made: VersionHead,
    following: VersionHead | None,
    version: int,
) -> bool:
    """Returns whether the file of a version is a late version: the next version was not made from it.

    `made`, `following`: the heads of the two. `following` is None if no committer made that version.
    """
    if following is not None:
        parent = following.properties.get(PARENT, "")
        return succession(Link(made.uuid), Link(parent=parent, is_own=True)) is Succession.APART
    numbers = (version, version + 1)
    before, after = (link_of_summary(stored.read_summary(number)) for number in numbers)
    return succession(before, after) is Succession.APART


def _summaries(
    stored: StoredTable, newest: int, since: int, following: VersionSummary | None
) -> Iterator[VersionSummary]:
    """Yields what the versions up to `newest` and after `since` did, newest first, until one is gone.

    `following`: what the version after `newest` did, None if it doesn't exist or is gone.

    A version counts as gone if its file is damaged or is a late version. An entry that was built on an older
    version is refused then, and the table is folded on.
    """
    for version in range(newest, since, -1):
        summary = _summary(stored, version)
        if summary is None:
            return
        if following is not None:
            before, after = link_of_summary(summary), link_of_summary(following)
            if succession(before, after) is Succession.APART:
                return
        yield summary
        following = summary


def _summary(stored: StoredTable, version: int) -> VersionSummary | None:
    """Returns what a version did, None if it is gone or its file is damaged."""
    try:
        return stored.read_summary(version)
    except (VersionExpiredError, DamagedError):
        return None
    except NotATableError as error:
        raise stored.versions.all_missing() from error
