"""Reported outcomes without a broker: the outcome index that tests of a table pass to a committer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_committer.recovery.outcome_index import LastCommitted, Reported

if TYPE_CHECKING:
    from lakefold_committer.recovery.recovery_context import LastCommit
    from lakefold_table.entry import Outcome


@dataclass
class Outcomes:
    """An outcomes topic in memory, with a message before each outcome that is none."""

    reported: Reported = field(default_factory=Reported)
    last: LastCommitted = field(default_factory=LastCommitted)
    end: int = 0
    asked: list[int] = field(default_factory=list)

    def report(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.reported.add(self.end + 1, outcome)
            self.last.add(outcome)
            self.end += 2

    def newest_committed(self, uri: str, table_id: str, since: int) -> LastCommit | None:
        """See `lakefold_committer.recovery.recovery_context.ReportedVersions`."""
        self.asked.append(since)
        return self.reported.newest(uri, table_id, since)

    def last_committed(self, uri: str) -> LastCommit | None:
        """See `lakefold_committer.recovery.recovery_context.ReportedVersions`."""
        return self.last.of(uri)

    def add_own(self, uri: str, commit: LastCommit) -> None:
        """See `lakefold_committer.recovery.recovery_context.ReportedVersions`. Counts at once."""
