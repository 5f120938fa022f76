"""The seam between maintenance and a table format.

Planning, the order of rewrites, rounds, clean-ups and metrics know fragments by their figures. A format knows
what a fragment is: Lance's, or a logical file of a Delta table. Each format that is maintained implements
`MaintenanceFormat`; `lakefold_maintenance.formats` has them by their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from lakefold_table.branch_names import MAIN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_maintenance.planning.fragments import FragmentFigures
    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_maintenance.planning.policy import MaintenancePolicy
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source
    from lakefold_table.entry import Outcome, Result
    from lakefold_table.format import State
    from lakefold_table.position import Position
    from lakefold_table.storage.base import Storage

THREADS: Final = 2
BATCH_ROWS: Final = 8192


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What a task may use: threads that decode and encode, and the rows of a batch that each reads."""

    threads: int = THREADS
    batch_rows: int = BATCH_ROWS


@dataclass(frozen=True, slots=True)
class WaitingEntry:
    """What a proposal that waits in the log needs. `read_version`: the version that it was built on.

    `rewritten`: the fragments that it replaces, if it is a compaction, as the format names them. `begins_at`:
    the version of another branch or table at which it begins a branch; None if it does not. `source`: the
    name of that branch or of a tag, empty if it names none.
    """

    read_version: int
    rewritten: Collection[int | str] = ()
    begins_at: int | None = None
    source: str = ""

    def begins_from(self, branch: str) -> bool:
        """Returns whether it may begin a branch at a version of this one. A tag keeps its version itself."""
        return self.begins_at is not None and (not self.source or self.source == (branch or MAIN))


@dataclass(frozen=True, slots=True)
class UnnamedPaths:
    """The paths of files in the table that no version that stays and no waiting proposal names.

    `expired`: those among `paths` that a version has removed longer ago than the table keeps such files.
    """

    paths: AbstractSet[str]
    expired: AbstractSet[str] = frozenset()


@dataclass(frozen=True)
class TableSurvey:
    """A version of a table, as maintenance sees it.

    `table`: the canonical URI of the main branch. `branch`: the branch's name, empty for the main branch.
    `bound`: the position to which the table is bound, None if it is bound to no log. `unindexed`: the live
    rows that each index, by its name, doesn't cover. `has_reuse_index`: indices refer to rows by addresses
    that compactions have changed, so other clients' compactions may make them wrong. `fixed`: the ids of
    fragments that can't be rewritten. `dropped`: the branch was deleted, or the table is being dropped, so
    nothing that is proposed is folded. `table_id`: `Marks.full_id` of the version, empty if it has no
    marks.
    """

    source: Source
    table: str
    branch: str
    format: MaintenanceFormat
    state: State
    figures: FragmentFigures
    policy: MaintenancePolicy
    bound: Position | None
    unindexed: Mapping[str, int] = field(default_factory=dict)
    has_reuse_index: bool = False
    fixed: frozenset[int] = frozenset()
    dropped: bool = False
    table_id: str = ""

    @property
    def version(self) -> int:
        """The version's number."""
        return self.state.version

    @property
    def partition(self) -> int | None:
        """The partition of the log that the table is bound to; None if it isn't bound yet."""
        return None if self.bound is None else self.bound.log.partition


class CompactionLog(Protocol):
    """What a compaction needs of the log."""

    def ask(self, envelope: Envelope) -> Outcome:
        """Sends the envelope and returns its outcome. Raises `RetryError` if that is not known in time."""

    def close(self) -> None:
        """Closes the connections."""


class RewriteResult(Protocol):
    """The result of a task: durable files that no version names yet."""

    @property
    def task(self) -> RewriteTask:
        """The task."""

    @property
    def files(self) -> Sequence[str]:
        """The paths of the new files in the table."""


class TableRewriter(Protocol):
    """Runs tasks on the version of a survey."""

    def run(self, task: RewriteTask) -> RewriteResult:
        """Rewrites the fragments of a task and returns when the new files are durable.

        Raises `DamagedError` or `VersionExpiredError` if a file can't be read, `RetryError` if the store
        can't be reached or is full, `InvalidError` if it refuses the files.
        """


class FormatSurveyor(Protocol):
    """Surveys one branch of a table repeatedly, each time from the `source` that it has then."""

    source: Source

    def survey(self) -> TableSurvey:
        """Returns the newest version's figures.

        Raises `NotATableError` if there is no table, `InvalidError` if its policy is invalid or it uses
        features that this release doesn't know, `DamagedError` if it can't be read.
        """


class MaintenanceFormat(Protocol):
    """A table format as maintenance needs it. Surveys and results that it gets are its own."""

    name: str

    def surveyor(self, source: Source, settings: Mapping[str, str]) -> FormatSurveyor:
        """Returns the surveyor of a branch. `settings`: those of the policy, as `policy_of` takes them."""

    def rewriter(self, survey: TableSurvey, limits: TaskLimits) -> TableRewriter:
        """Returns an object that runs the tasks of a plan in this process. Nothing is opened yet."""

    def rewrite(self, survey: TableSurvey, results: Sequence[RewriteResult]) -> Envelope:
        """Returns the proposal of these results, built on the version of the survey."""

    def new_ids(self, survey: TableSurvey, results: Sequence[RewriteResult], answer: Result) -> Iterable[int]:
        """Returns the ids of the fragments that a committed proposal of these results has added."""

    def names(self, survey: TableSurvey, fragment_ids: Collection[int]) -> list[int | str]:
        """Returns the names of these fragments for people."""

    def without_reuse_index(self, survey: TableSurvey) -> Envelope | None:
        """Returns the proposal that takes the fragment-reuse index away, None if the table has none."""

    def optimize_indices(self, survey: TableSurvey) -> None:
        """Brings all indices of the table up to date. Is called only if one lacks rows."""

    def waiting(self, envelope: Envelope) -> WaitingEntry:
        """Returns what a proposal of this format needs while it waits in the log."""

    def files_of(self, envelope: Envelope) -> Iterable[str]:
        """Returns the paths of the files that a proposal names in the table's own folders."""

    def is_unique(self, path: str) -> bool:
        """Returns whether the file at this path has a random name, so that no other file has it."""

    def rewritten_ids(self, survey: TableSurvey, rewritten: Collection[int | str]) -> set[int]:
        """Returns the ids of fragments that waiting compactions replace. `rewritten`: of `WaitingEntry`."""

    def clean_up_takes(self, storage: Storage, files: Collection[str], now: float) -> bool:
        """Returns whether the format's clean-up of versions may remove one of these unnamed files.

        `now`: in seconds since 1970.
        """

    def unnamed(
        self, survey: TableSurvey, waiting: AbstractSet[str], refused: AbstractSet[str], now: float
    ) -> UnnamedPaths:
        """Returns the files that no version names. The versions are read now, not as of the survey.

        `waiting`, `refused`: the files of proposals that wait or were refused. `now`: in seconds since 1970.
        """
