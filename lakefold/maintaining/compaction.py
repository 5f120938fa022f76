"""`lakefold.compact`: joins the small fragments of one table, through the log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypedDict, Unpack

from lakefold.console.settings import Settings, read_settings
from lakefold.maintaining.engine import HERE, engine_of
from lakefold.writing.options import check_kinds
from lakefold_maintenance.format import THREADS, TableSurvey
from lakefold_maintenance.planning.plan import plan
from lakefold_maintenance.planning.policy import policy_of
from lakefold_maintenance.rewriting.compact import Compaction, CompactionReport, Progress, planned_report
from lakefold_maintenance.rewriting.pacing import Pacing
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_maintenance.rewriting.table_log import TIMEOUT_S, TableLog
from lakefold_reader.formats import open_branch
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from lakefold_maintenance.rewriting.engines import RewriteEngine


class CompactOptions(TypedDict, total=False):
    """Options of `compact`; all may be left out.

    `by_policy`: rewrite only what `lakefold maintain` would, so that rows of a stream are not rewritten more
    often than needed. `policy`: keys of the maintenance policy (`{"target_rows": "500000"}`), used for what
    the table's configuration doesn't say. `timeout`: seconds to wait for each outcome. `threads`: how many
    read and write data files in each rewrite. `engine`: "process", or "spark" to run each rewrite as a task
    of Spark's active session, or of a new one. The other settings come from `LAKEFOLD_…` variables if they
    aren't given, else from the TOML file `config`. If neither names brokers, those of `lakefold up` are used.
    """

    branch: str | None
    by_policy: bool
    policy: Mapping[str, str]
    timeout: float
    threads: int
    engine: str
    bootstrap_servers: str
    transactions_topic: str
    outcomes_topic: str
    kafka: Mapping[str, str]
    storage_options: Mapping[str, str]
    config: Path


_SETTINGS = {
    **{name: name for name in ("bootstrap_servers", "transactions_topic", "outcomes_topic")},
    "kafka": "kafka",
    "storage_options": "storage_options",
    "policy": "maintenance",
}
"""The options that are settings, and the settings' names."""


def compact(table: str | os.PathLike[str], **options: Unpack[CompactOptions]) -> CompactionReport:
    """Joins adjacent small fragments of a table and removes deleted rows from its files, through the log.

        report = lakefold.compact("s3://lake/flights.lance")
        report.fragments_before, report.fragments_after

    This process rewrites the fragments, or Spark does; a committer folds each result into the table. Rows,
    their ids and what queries return stay the same.

    A rewrite that fails or is refused leaves its fragments as they were; `failed` of the report names it, and
    the others continue. Raises `InvalidError` if the policy is invalid or an option is unknown,
    `NotATableError` if there is no table, and `RetryError` if no committer answers in time: what was sent may
    still be folded.
    """
    unknown = sorted(options.keys() - CompactOptions.__annotations__.keys())
    if unknown:
        hint = f"the options are: {', '.join(CompactOptions.__annotations__)}"
        raise InvalidError(f"there is no option {unknown[0]!r}", where=unknown[0], hint=hint)
    check_kinds(options)
    given = {_SETTINGS[name]: value for name, value in options.items() if name in _SETTINGS}
    settings = read_settings(given, options.get("config"))
    compaction = compaction_of(
        settings,
        canonical(table),
        options.get("branch"),
        timeout_s=options.get("timeout", TIMEOUT_S),
        engine=engine_of(options.get("engine", HERE), options.get("threads", THREADS)),
    )
    return compaction.run(full=not options.get("by_policy", False))


def compaction_of(
    settings: Settings,
    table: str,
    branch: str | None,
    *,
    timeout_s: float,
    engine: RewriteEngine,
    progress: Progress | None = None,
) -> Compaction:
    """Returns the compaction of a table; nothing is read or connected to yet."""
    pacing = Pacing(threading.Event())

    def opened(survey: TableSurvey) -> TableLog:
        return TableLog(
            survey,
            settings.kafka_config(),
            settings.topics(),
            timeout_s=timeout_s,
            storage_options=settings.storage_options,
        )

    return Compaction(
        _surveyor(settings, table, branch),
        opened,
        engine=engine,
        progress=progress,
        pause=lambda survey, size: pacing.after(size, survey.policy.bytes_per_second),
    )


def planned(settings: Settings, table: str, branch: str | None, *, full: bool) -> CompactionReport:
    """Returns what a compaction of the newest version would do. Needs no broker."""
    survey = _surveyor(settings, table, branch).survey()
    return planned_report(survey, plan(survey.figures, survey.policy, passed_over=survey.fixed, full=full))


def _surveyor(settings: Settings, table: str, branch: str | None) -> Surveyor:
    policy_of({}, settings.maintenance)
    return Surveyor(open_branch(table, branch, settings.storage_options), settings.maintenance)
