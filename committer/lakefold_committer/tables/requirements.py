"""What the fold needs but may not fetch: the shell asks the format what that is, and brings it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import of_format
from lakefold_committer.recovery.stored_versions import link_of_summary, own_head, read_summary
from lakefold_table.errors import DamagedError, NotATableError, VersionExpiredError
from lakefold_table.format import Fetched
from lakefold_table.marks.record import PARENT, decode_record
from lakefold_table.roots import is_whole
from lakefold_table.versions.succession import Link, Succession, succession

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_committer.fold.fold import Table
    from lakefold_committer.tables.prefetcher import Prefetcher
    from lakefold_table.entry import Entry, Result
    from lakefold_table.format import AnyFormat, Requirements, VersionHead, VersionSummary
    from lakefold_table.position import LogId
    from lakefold_table.versions.versions import Versions

NOT_THERE = -1
"""The size of a listed file that isn't there (`Fetched`)."""


def observe(
    table_format: AnyFormat, versions: Versions, bringer: Prefetcher, table: Table, group: Sequence[Entry]
) -> tuple[Table, Fetched]:
    """What the format needs to fold this group, and the table knowing what older versions did."""
    group = of_format(table_format, group)
    needs = table_format.requirements(table.state, group)
    if needs.operations_since is not None:
        table = with_history(table_format, versions, table, needs.operations_since)
        needs = table_format.requirements(table.state, group)
    observed = _brought(bringer, needs)
    if table.state is not None and _lacks_anything(observed):
        # A store that is away lacks everything; it may be back by now, so what it lacked is no observation.
        versions.check_there(table.state.version)
        # Asked anew: what is listed is read only once.
        observed = _brought(bringer, table_format.requirements(table.state, group))
    return table, observed


def with_history(table_format: AnyFormat, versions: Versions, table: Table, since: int) -> Table:
    """Returns the table knowing what its versions after `since` did, back to the first one that is gone."""
    if table.state is None:
        return table
    start = table.state.history_start
    behind = _summary(table_format, versions, start + 1) if start < table.version else None
    older = _summaries(table_format, versions, start, since, behind)
    return replace(table, state=table_format.with_history(table.state, older))


def _brought(bringer: Prefetcher, needs: Requirements) -> Fetched:
    return Fetched(
        bringer.sizes(needs.sizes, needs.unsaid),
        bringer.contents(needs.contents),
        bringer.schemas(needs.schemas),
        bringer.states(needs.states),
        bringer.listed(needs.listed),
        bringer.outside(needs.bases),
        bringer.folders(needs.folders),
        bringer.tails(needs.tails),
        bringer.neighbours(needs.neighbours),
    )


def files_in(observed: Fetched) -> list[str]:
    """The files of the table that were looked at and are there, but for those that are listed in portions."""
    found = [path for path, size in observed.sizes.items() if size is not None]
    found += [path for path, data in observed.contents.items() if data is not None and not is_whole(path)]
    found += [f"{folder}/{name}" for folder, names in observed.folders.items() for name in names]
    return found


def _lacks_anything(observed: Fetched) -> bool:
    brought = (observed.sizes, observed.contents, observed.schemas, observed.states, observed.tails)
    if any(None in found.values() for found in brought) or not all(observed.folders.values()):
        return True
    return any(NOT_THERE in found for found in observed.listed.values())


def answers_before(
    table_format: AnyFormat, versions: Versions, newest: int, log: LogId, offsets: Sequence[int]
) -> dict[int, Result]:
    """The answers that the versions up to `newest`, which is known to be one, record for positions of a log.

    Walks back over the versions; stops at the first one that is gone, that no longer can hold these offsets,
    or in whose place lies a file that arrived late. An offset without an answer in the result was folded into
    a version that is gone.
    """
    wanted, found = set(offsets), dict[int, "Result"]()
    made: VersionHead | None = None
    for version in range(newest, 0, -1):
        behind = made
        try:
            made = own_head(table_format, versions, version)
        except VersionExpiredError:
            break
        except NotATableError as error:
            raise versions.away() from error
        record = None if made is None else decode_record(made.properties, versions.storage.uri)
        if made is None or record is None or record.log != log or record.last_offset < record.first_offset:
            continue
        recorded = ((offset, record.answer(offset)) for offset in wanted)
        answers = {offset: answer for offset, answer in recorded if answer is not None}
        if answers and version < newest and _arrived_late(table_format, versions, made, behind, version):
            break
        found.update(answers)
        wanted -= found.keys()
        if record.first_offset <= min(wanted, default=record.first_offset):
            break
    return found


def _arrived_late(
    table_format: AnyFormat, versions: Versions, made: VersionHead, behind: VersionHead | None, version: int
) -> bool:
    """Whether the file of a version is none of the table's: the one behind it was made from another.

    `made`, `behind`: the heads of the two, as far as a committer made them.
    """
    if behind is not None:
        parent = behind.properties.get(PARENT, "")
        return succession(Link(made.uuid), Link(parent=parent, is_own=True)) is Succession.APART
    before, after = (
        link_of_summary(read_summary(table_format, versions, one)) for one in (version, version + 1)
    )
    return succession(before, after) is Succession.APART


def _summaries(
    table_format: AnyFormat, versions: Versions, newest: int, since: int, behind: VersionSummary | None
) -> Iterator[VersionSummary]:
    """What the versions up to `newest` and after `since` did, newest first, back to the first gap.

    `behind`: what the version behind the newest of them did, None if there is none or it is gone.

    A version whose file is damaged, or in whose place lies a file that arrived late, is as good as gone: an
    entry that was built on what lies behind it can't be judged, and is told so; the table goes on.
    """
    for version in range(newest, since, -1):
        summary = _summary(table_format, versions, version)
        if summary is None:
            return
        if (
            behind is not None
            and succession(link_of_summary(summary), link_of_summary(behind)) is Succession.APART
        ):
            return
        yield summary
        behind = summary


def _summary(table_format: AnyFormat, versions: Versions, version: int) -> VersionSummary | None:
    """What a version did. Returns None if it is gone or its file is damaged."""
    try:
        return read_summary(table_format, versions, version)
    except (VersionExpiredError, DamagedError):
        return None
    except NotATableError as error:
        raise versions.away() from error
