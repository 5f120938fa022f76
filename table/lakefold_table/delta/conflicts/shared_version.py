"""What the proposals did that share the version in the making, for the conflict rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.delta.actions.table_actions import Action, CommitInfo
from lakefold_table.delta.conflicts.footprint import CommitFootprint, footprint_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_table.delta.proposal import DeltaTableProposal


class SharedVersion:
    """The footprints of proposals that were accepted into one version.

    Most proposals only add files, and there are many in a version. So a footprint is made when the rules
    need it, and what all of them touched is known without them.
    """

    def __init__(self, version: int) -> None:
        self._version = version
        self._proposals: list[DeltaTableProposal] = []
        self._footprints: list[CommitFootprint] = []
        self._moving: list[CommitFootprint] = []
        self._removed = set[str]()
        self._apps = set[str]()
        self._adds_rows = False
        self._changes_table = False

    def add(self, proposal: DeltaTableProposal) -> None:
        """Adds a proposal that was accepted."""
        self._proposals.append(proposal)
        if proposal.moves:
            self._moving.append(footprint_of(self._version, _actions_of(proposal)))
        self._removed.update(file.path for file in proposal.removes)
        self._apps.update(app.app_id for app in proposal.apps)
        self._adds_rows = self._adds_rows or any(file.data_change for file in proposal.adds)
        changes_table = bool(proposal.protocol or proposal.metadata or proposal.domains)
        self._changes_table = self._changes_table or changes_table

    def concerning(self, proposal: DeltaTableProposal) -> Sequence[CommitFootprint]:
        """Returns the footprints with which a proposal may conflict; none if it can conflict with none."""
        if not self._changes_table and not self._touches(proposal):
            return ()
        for each in self._proposals[len(self._footprints) :]:
            self._footprints.append(footprint_of(self._version, _actions_of(each)))
        return self._footprints

    def moving(self) -> Sequence[CommitFootprint]:
        """Returns the footprints of compactions, which say where rows are now."""
        return self._moving

    def _touches(self, proposal: DeltaTableProposal) -> bool:
        """Returns whether a proposal has read or removes anything that one of these changed."""
        if proposal.reads_all or proposal.read_predicates:
            return self._adds_rows or bool(self._removed)
        return (
            any(file.path in self._removed for file in proposal.removes)
            or not self._removed.isdisjoint(proposal.read_files)
            or not self._removed.isdisjoint(proposal.read_rows)
            or not self._apps.isdisjoint(proposal.read_apps)
        )


def _actions_of(proposal: DeltaTableProposal) -> list[Action]:
    info = CommitInfo({"operation": proposal.operation, "isBlindAppend": proposal.is_blind})
    once = [each for each in (proposal.protocol, proposal.metadata) if each is not None]
    return [info, *once, *proposal.domains, *proposal.apps, *proposal.removes, *proposal.adds]
