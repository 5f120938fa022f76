"""The operations of `races.py` as proposals, and what a committer makes of two that read one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_committer.tables.table_writer import TableWriter
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, encode_treemap
from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.lines import parse_actions
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.delta.rows.vectors import Vectors
from lakefold_table.format import ALONE
from lakefold_table.versions.stored_table import StoredTable
from lakefold_table.versions.versions import Versions
from tests.delta_logs.actions import Members, text
from tests.delta_logs.comparing import proposable
from tests.delta_logs.races import recorded, with_level
from tests.folding import entries
from tests.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.entry import Result


DELTA: Final = DeltaFormat()
NAME: Final = "raced"
URI: Final = f"memory://{NAME}/t"
EVERYTHING: Final = "true"
"""The condition by which delta-spark selects all files."""


class ProposedRaces:
    """A recorded table with an isolation level."""

    def __init__(self, table: str, level: str) -> None:
        self._recorded, self._level = recorded(table), level
        self._base = [text(with_level(actions, level)) for actions in self._recorded.base]

    def proposal(self, name: str, new: str = "") -> Envelope:
        """An operation, as a writer proposes it that does and reads the same.

        `new`: what the names of its files begin with, so that it differs from another one of its kind.
        """
        operation = self._recorded.operations[name]
        actions = with_level(list(filter(None, map(proposable, operation.actions))), self._level)
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        for added in (action["add"] for action in actions if "add" in action):
            if added["path"] not in removed:
                added["path"] = added["path"].replace("part-", f"{new}part-")
        (info,) = (action["commitInfo"] for action in operation.actions if "commitInfo" in action)
        envelope = Envelope(table=URI)
        proposal, reads = envelope.delta, operation.reads
        proposal.actions, proposal.read_version = text(actions), len(self._base) - 1
        proposal.operation, proposal.operation_parameters["files"] = info["operation"], new
        for path, rows in self._affected(actions).items():
            proposal.affected_rows[path] = rows
        proposal.read_whole_table = reads["all"] or EVERYTHING in reads["predicates"]
        proposal.read_predicates.extend(each for each in reads["predicates"] if each != EVERYTHING)
        proposal.read_files.extend(reads["files"])
        proposal.read_app_ids.extend(reads["apps"])
        return envelope

    def _affected(self, actions: list[Members]) -> Mapping[str, bytes]:
        """The rows that an operation deletes by deletion vectors."""
        parsed = list(parse_actions(text(actions)))
        before = {each.path: each for each in parsed if isinstance(each, RemoveFile)}
        vectors = Vectors(self._recorded.vectors)
        affected = {}
        for file in parsed:
            if isinstance(file, AddFile) and file.path in before:
                had = set(vectors.rows(before[file.path].deletion_vector, file.path))
                rows = set(vectors.rows(file.deletion_vector, file.path)) - had
                if rows:
                    affected[file.path] = encode_treemap({0: Bitmap(sorted(rows))})
        return affected

    def results(self, first: str, then: str, *, together: bool) -> list[Result]:
        """What becomes of two proposals that a committer reads at once (`together`), or in turn.

        At once, they share a version if those of their kinds may.
        """
        MemoryStorage.forget(NAME)
        storage = MemoryStorage(URI)
        for version, data in enumerate(self._base):
            storage.put(commit_path(version), [data])
        for path, content in self._recorded.vectors.items():
            storage.put(path, [content])
        writer = TableWriter(StoredTable(DELTA, Versions.of(storage, DELTA)), check_sizes=False)
        left = entries([self.proposal(first), self.proposal(then, "other-")], 0)
        rule = DELTA.grouping_rule(None)
        kinds = {rule(entry) for entry in left}
        shared = 2 if together and len(kinds) == 1 and ALONE not in kinds else 1
        results: list[Result] = []
        while left:
            outcomes = writer.fold(left[:shared]).outcomes
            results += [outcome.result for outcome in outcomes]
            left = left[len(outcomes) :]
        return results
