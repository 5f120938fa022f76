"""`lakefold.revert`: takes out what single batches did to a table, and keeps everything else."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from lakefold.console.settings import BrokerOptions
from lakefold.errors import SettingError
from lakefold.writing.options import function_settings, settings_for
from lakefold_ingest.formats import read_view, seen_source
from lakefold_ingest.merge.clauses import names_of
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.revert.batch_revert import RevertBatches, RevertRequest
from lakefold_ingest.revert.logged_entries import BrokerEntries, NoEntries
from lakefold_ingest.writing.batch import put_batch
from lakefold_reader.formats import open_branch
from lakefold_reader.versions.proposals import sought_of
from lakefold_table.errors import InvalidError, NotATableError, OptionName

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from lakefold.console.settings import Settings
    from lakefold_ingest.revert.conflicts import RowConflict
    from lakefold_ingest.revert.entries import LoggedEntries
    from lakefold_ingest.revert.plan import RevertFigures, RevertPlan
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_reader.format.source import Source

TIMEOUT_S = 60.0
_LOOKUP_S = 30.0
_BATCHES: Final = re.compile(r"(.+):([0-9]{1,20})-([0-9]{1,20})")
_MOST_BATCHES: Final = 10_000
REVERTS = "reverts"
"""The property of a version in which it says for people what it undid."""


class RevertOptions(BrokerOptions, total=False):
    """Options of `revert`: `BrokerOptions`, and `commit_properties` of the version that undoes the batches.

    `commit_message`: why; `lakefold log` and `explain` show it. A dry run needs no brokers, unless several
    entries share a version.
    """

    commit_properties: Mapping[str, str]
    commit_message: str


@dataclass(frozen=True, slots=True)
class RevertReport:
    """What undoing batches did, or would do.

    `kind`: "committed" in `version`; "planned": it was a dry run. `rows_removed`, `rows_returned`: rows that
    went, and rows that came back; a row that got its earlier values is both. `figures`: the rows of each
    version that has undone entries. `conflicts`: the rows that later entries changed, and that are left as
    they are.
    """

    table: str
    format: str
    kind: Literal["committed", "planned"]
    version: int | None
    rows_removed: int
    rows_returned: int
    figures: tuple[RevertFigures, ...]
    conflicts: tuple[RowConflict, ...]

    def document(self) -> dict[str, Any]:
        """Returns it as plain values, as `lakefold revert --json` prints it."""
        return {
            "table": self.table,
            "format": self.format,
            "kind": self.kind,
            "version": self.version,
            "rows_removed": self.rows_removed,
            "rows_returned": self.rows_returned,
            "entries": [
                {**asdict(each), "entries": list(each.entries), "undone_by": each.undone_by or None}
                for each in self.figures
            ],
            "conflicts": [dict(each.document()) for each in self.conflicts],
        }


def revert(  # noqa: PLR0913 - a user names the few that matter
    table: str | os.PathLike[str],
    batches: str | Iterable[str | tuple[str, int]] = (),
    *,
    version: int | None = None,
    positions: tuple[int, int] | None = None,
    branch: str | None = None,
    keys: str | Iterable[str] | None = None,
    keep_later: bool = False,
    with_dependents: bool = False,
    dry_run: bool = False,
    **options: Unpack[RevertOptions],
) -> RevertReport:
    """Takes out what single batches did to a table and keeps everything else, by one proposal in the log.

        lakefold.append("s3://lake/flights", rows, app_id="loader", batch_id=7)
        lakefold.revert("s3://lake/flights", ["loader:7"], dry_run=True).figures
        report = lakefold.revert("s3://lake/flights", ["loader:7"])
        lakefold.revert("s3://lake/flights", version=report.version)  # the batch is in the table again
        lakefold.revert("s3://lake/flights", [("loader", 7)], keep_later=True)

    Rows that the batches added go, also if compactions moved them; rows that they deleted come back; rows
    that they updated get their earlier values. Columns that were added stay, and are null in rows that come
    back. `batches`: each as "APP_ID:BATCH_ID" or as a tuple, several as "APP_ID:FIRST-LAST"; or all entries
    of a `version`, also of another client; or the entries at `positions` of the log, the first and the last
    offset. `branch`: the table's branch, if it is not the main one.

    If a later entry changed one of these rows, `RevertConflictError` lists which, and nothing is sent. With
    `keep_later` such rows stay as they are now. With `with_dependents` what was built on them is undone as
    well. `keys`: the columns that identify a row, by which it is noticed that a row which comes back was
    inserted again; without them those of the upsert, or the key that a Lance table declares. Later deletions
    by a condition don't count for rows that come back.

    With `dry_run` nothing is sent; the report says what would be done, with all conflicts. The batches' keys
    stay folded, and are marked as undone: `lakefold explain` shows by which version. To undo that, name that
    version. Corrected batches are added under the same keys with `on_rolled_back="again"`.

    Raises `InvalidError` for a batch that the table doesn't have, `PreconditionError` for one that was undone
    before, or shares its version with others and nothing shows which rows are its own, `VersionExpiredError`
    if the versions that show what it did were cleaned up, and `RefusedError` and `RetryError` as
    `lakefold.delete`.
    """
    settings = function_settings(options, RevertOptions.__annotations__)
    request = request_of(
        batches, version, positions, keys, keep_later=keep_later, with_dependents=with_dependents
    )
    source = open_branch(str(table), branch, settings.storage_options)
    if dry_run:
        return planned_revert(settings, source, request)
    return send_revert(
        settings,
        source,
        request,
        wait_s=options.get("timeout", TIMEOUT_S),
        properties=options.get("commit_properties", {}),
        message=options.get("commit_message", ""),
    )


def request_of(
    batches: str | Iterable[str | tuple[str, int]],
    version: int | None,
    positions: tuple[int, int] | None,
    keys: str | Iterable[str] | None,
    *,
    keep_later: bool,
    with_dependents: bool,
) -> RevertRequest:
    """Returns what a user asks to be undone. Raises `InvalidError` if it is not one thing."""
    names = () if keys is None else names_of(keys, "keys")
    return RevertRequest(_keys_of(batches), version, positions, keep_later, with_dependents, names)


def all_but(batches: str | Iterable[str | tuple[str, int]], version: int) -> RevertRequest:
    """Returns the request to restore a version and have all later batches again but for these."""
    return RevertRequest(_keys_of(batches, "except_"), since=version)


def _keys_of(
    batches: str | Iterable[str | tuple[str, int]], option: str = "batches"
) -> tuple[tuple[str, int], ...]:
    """Returns the batches that a user names. Raises `InvalidError` for what isn't APP_ID:BATCH_ID."""
    keys: list[tuple[str, int]] = []
    for each in [batches] if isinstance(batches, str) else batches:
        several = _BATCHES.fullmatch(each) if isinstance(each, str) else None
        if several is not None and int(several[3]) - int(several[2]) in range(_MOST_BATCHES):
            keys.extend((several[1], number) for number in range(int(several[2]), int(several[3]) + 1))
            continue
        sought = sought_of(each if isinstance(each, str) else f"{each[0]}:{each[1]}")
        if sought.batch_id is None:
            hint = "name it as APP_ID:BATCH_ID, or at most 10,000 batches as APP_ID:FIRST-LAST"
            raise InvalidError(f"{each!r} names no batch", where=OptionName(option), hint=hint)
        keys.append((sought.app_id, sought.batch_id))
    return tuple(keys)


def planned_revert(settings: Settings, source: Source, request: RevertRequest) -> RevertReport:
    """Returns what undoing these batches would do. Raises as `revert`, but for conflicts."""
    view = read_view(source.uri, settings.storage_options)
    if view is None:
        raise NotATableError("the table does not exist", where=source.uri)
    operation = RevertBatches(request, _log_of(settings, source.uri))
    _, plan = operation.planned(view, settings.storage_options)
    return _report(settings, source, "planned", None, plan)


def plan_on(settings: Settings, source: Source, version: int, request: RevertRequest) -> None:
    """Checks that these batches can be undone on a version of a branch. Raises as `revert`."""
    operation = RevertBatches(request, _log_of(settings, source.uri))
    _, plan = operation.plan_at(source, version)
    operation.check(plan, source.uri)


def send_revert(
    settings: Settings,
    source: Source,
    request: RevertRequest,
    *,
    wait_s: float,
    properties: Mapping[str, str],
    message: str = "",
) -> RevertReport:
    """Undoes these batches. `message`: why. Raises as `revert`."""
    recorded = {REVERTS: str(request), **properties}
    write = settings_for(
        source.uri, settings, wait_s=wait_s, commit_properties=recorded, commit_message=message
    )
    operation = RevertBatches(request, _log_of(settings, source.uri))
    report: BatchReport = put_batch(write, new_key(), operation)
    assert operation.plan is not None  # noqa: S101 - it was made, as no error was raised
    return _report(settings, source, "committed", report.version, operation.plan)


def _log_of(settings: Settings, uri: str) -> LoggedEntries:
    """Returns the log, for entries that share a version; one that can't be read if no brokers are set."""
    try:
        kafka = settings.kafka_config()
    except SettingError as error:
        return NoEntries(error.message)
    return BrokerEntries(kafka, settings.topics(), uri, _LOOKUP_S, settings.storage_options)


def _report(
    settings: Settings,
    source: Source,
    kind: Literal["committed", "planned"],
    version: int | None,
    plan: RevertPlan,
) -> RevertReport:
    returned = sum(rows.size for _, rows in plan.returned)
    return RevertReport(
        source.uri,
        seen_source(source.uri, settings.storage_options).format.name,
        kind,
        version,
        int(plan.removed.size),
        int(returned),
        plan.figures,
        plan.conflicts,
    )
