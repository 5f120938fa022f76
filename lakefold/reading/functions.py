"""`lakefold.refs`, `history`, `explain` and `cleanup`: what an operator asks of a table, as functions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lakefold.console.settings import BrokerOptions
from lakefold.proposals.explain import brokers_of
from lakefold.reading.refs import refs_document
from lakefold_reader.consumers.expire_versions import AGE, clean_up, plan
from lakefold_reader.formats import in_its_format, on_branch, open_branch, open_source
from lakefold_reader.snapshot.history import history_of
from lakefold_reader.snapshot.history_filter import HistoryFilter
from lakefold_reader.snapshot.snapshot import find_version
from lakefold_reader.versions.branches import main_and_branch
from lakefold_reader.versions.proposals import sought_of
from lakefold_reader.versions.times import micros_of, time_of
from lakefold_table.packages import explained_imports

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from datetime import datetime, timedelta
    from typing import Unpack

    from lakefold.proposals.explanation import Explanation
    from lakefold_reader.format.snapshots import Cleaned
    from lakefold_reader.format.source import Source
    from lakefold_reader.snapshot.history import HistoryRow

_MOST_VERSIONS = 10_000
"""How many of a table's newest versions are searched for a proposal."""
_WAIT_S = 60.0
"""How many seconds each search in a topic may take if no other time is given."""


def refs(
    table: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Returns a table's tags and branches as plain values, as `lakefold refs --json` prints them.

        [tag["name"] for tag in lakefold.refs("s3://lake/flights.lance")["tags"]]

    Raises `NotATableError` if there is no table, `OtherFormatError` if its format has no tags and branches.
    """
    main, _ = main_and_branch(open_branch(table, None, storage_options or {}))
    return refs_document(main)


def history(  # noqa: PLR0913 - its filters
    table: str | os.PathLike[str],
    *,
    branch: str | None = None,
    from_version: int | None = None,
    to_version: int | None = None,
    app: str | None = None,
    operation: str | None = None,
    since: datetime | str | None = None,
    row: Mapping[str, object] | None = None,
    most: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Iterator[HistoryRow]:
    """Returns what each version of a table did, the newest first, as `lakefold log` lists them.

        for version in lakefold.history("s3://lake/flights.lance", app="loader", most=20):
            print(version.version, version.timestamp, version.operation, version.authors)

    Only versions are returned for which all holds that is given: those from `from_version` to `to_version`,
    with batches of the app id `app`, that did `operation`, from the time `since` on (ISO 8601), and that
    inserted, changed or deleted a row with the values of `row`, e.g. `{"flight": "LH42"}`. `most`: how many
    are returned. Each version is read when it is requested.

    Raises `NotATableError` if there is no table, `InvalidError` for a range without versions, and
    `VersionExpiredError` if none of its versions exists.
    """
    begin = None if since is None else time_of(micros_of(since))
    texts = {name: str(value) for name, value in (row or {}).items()}
    chosen = HistoryFilter(app, operation, begin, texts, most)

    def versions(source: Source) -> Iterator[HistoryRow]:
        of_branch, newest = find_version(source, to_version, branch=branch)
        return chosen.chosen(of_branch, history_of(of_branch, from_version, newest))

    return in_its_format(open_source(str(table), storage_options or {}), versions)


@explained_imports()
def explain(
    table: str | os.PathLike[str],
    proposal: str | int,
    *,
    branch: str | None = None,
    **options: Unpack[BrokerOptions],
) -> Explanation:
    """Returns what became of a proposal, and why: its outcome, its author, and what to do about it.

        lakefold.append("s3://lake/flights.lance", rows, app_id="loader", batch_id=12)
        explanation = lakefold.explain("s3://lake/flights.lance", "loader:12")
        explanation.state, explanation.version, explanation.author, explanation.advice

    `proposal`: `APP_ID:BATCH_ID`, an offset, `TOPIC/PARTITION@OFFSET`, or the uuid of a transaction. The
    table's versions are searched first. If brokers are set, the outcomes and the log are searched as well,
    each for at most `timeout` seconds. Raises `InvalidError` if nothing is known of it, `RetryError` if a
    store or broker that may know it doesn't answer.
    """
    from lakefold.proposals.explain_proposal import explain as explained
    from lakefold.writing.options import function_settings

    settings = function_settings(options, BrokerOptions.__annotations__)
    brokers = brokers_of(settings, options.get("timeout", _WAIT_S))
    search = partial(explained, sought=sought_of(str(proposal)), brokers=brokers, versions=_MOST_VERSIONS)
    return on_branch(str(table), branch, settings.storage_options, search)


def cleanup(
    table: str | os.PathLike[str],
    *,
    older_than: timedelta = AGE,
    keep: int = 1,
    branch: str | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Cleaned:
    """Removes old versions of a table and the files that only they need; returns how many of each.

        import datetime

        lakefold.cleanup("s3://lake/flights.lance", older_than=datetime.timedelta(days=30)).versions

    A version is kept if it is younger than `older_than` (14 days), one of the newest `keep`, not read by a
    named consumer, or needed by a tag, a branch or a proposal that is being folded. `dry_run`: nothing is
    removed. Files that no version names stay for seven days; `lakefold maintain` removes them.

    Raises `InvalidError` for wrong limits or a store that allows no removal, `NotATableError` if there is no
    table, `RetryError` if the store fails midway: another call continues.
    """

    def cleaned(source: Source) -> Cleaned:
        return clean_up(source, plan(source, older_than, keep=keep), dry_run=dry_run)

    return on_branch(str(table), branch, storage_options or {}, cleaned)
