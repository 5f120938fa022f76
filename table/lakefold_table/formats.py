"""The registry of table formats. A new format is added here.

The format of a proposal follows from the field of its envelope, the format of a table from the files in its
folder. Everything else gets a format from here, or a registry of formats, and knows none by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.app_removal import AppRemoval
from lakefold_table.branch_deletion import BranchDeletion
from lakefold_table.delta.format import DeltaFormat
from lakefold_table.format import ALONE, AnyFormat, GroupingRule, State
from lakefold_table.lance.format import LanceFormat
from lakefold_table.proposal import ANY_FORMAT
from lakefold_table.tag_proposal import TagProposal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Entry
    from lakefold_table.expansion import Content
    from lakefold_table.proposal import LargeProposal, TableProposal
    from lakefold_table.ref_files import RefFiles
    from lakefold_table.version_names import ManifestNaming


class Formats:
    """Table formats, by name. The first is that of a folder in which no file shows the format."""

    def __init__(self, *formats: AnyFormat) -> None:
        self._formats = {table_format.name: table_format for table_format in formats}
        self.first = formats[0]

    def __iter__(self) -> Iterator[AnyFormat]:
        """Returns all formats, in order."""
        return iter(self._formats.values())

    def named(self, name: str) -> AnyFormat:
        """Returns the format of this name. Raises `KeyError` if there is none."""
        return self._formats[name]

    @property
    def manifests(self) -> ManifestNaming:
        """As of `Format.manifests`: of the one format whose versions such a store commits."""
        return next(each.manifests for each in self if each.manifests is not None)

    @property
    def refs(self) -> RefFiles:
        """As of `Format.refs`: of the one format that keeps tags and branches in files."""
        return next(each.refs for each in self if each.refs is not None)

    def of_entry(self, entry: Entry) -> AnyFormat:
        """Returns the format of an entry's proposal.

        It is the first format if its claim was not fetched, or tables of every format get such proposals.
        """
        if entry.proposal is None or entry.proposal.format == ANY_FORMAT:
            return self.first
        return self._formats[entry.proposal.format]

    def proposal(self, envelope: Envelope) -> TableProposal | None:
        """Returns the proposal that an envelope holds, None if it holds none of a known kind."""
        for table_format in self._formats.values():
            proposal: TableProposal | None = table_format.proposal(envelope)
            if proposal is not None:
                return proposal
        return TagProposal.of(envelope) or BranchDeletion.of(envelope) or AppRemoval.of(envelope)

    def uuid_of(self, envelope: Envelope) -> str:
        """Returns the uuid of the proposal that an envelope holds, empty if it has none."""
        proposal = self.proposal(envelope)
        return "" if proposal is None else proposal.uuid

    def parse_large(
        self, data: bytes, content: Content, allow: Callable[[int], None]
    ) -> LargeProposal | None:
        """Returns what `Format.parse_large` does, for a proposal of any format."""
        proposals = (table_format.parse_large(data, content, allow) for table_format in self)
        return next((proposal for proposal in proposals if proposal is not None), None)

    def memory_to_fold(self, content: Content) -> int:
        """Returns about how many bytes it takes to fold a proposal of any format that is decoded whole."""
        return max(table_format.memory_to_fold(content) for table_format in self)

    def grouping_rule(self, state: State | None) -> GroupingRule:
        """Returns the rule by which neighbouring entries may share the version after `state`.

        Entries of different formats share none.
        """
        if len(self._formats) == 1:
            return self.first.grouping_rule(state)
        own_name = "" if state is None else state.format
        own_rule = None if state is None else self._formats[own_name].grouping_rule(state)
        rules: dict[str, GroupingRule] = {}

        def group_of(entry: Entry) -> str | None:
            if entry.proposal is None:
                return ALONE
            name = entry.proposal.format
            if own_rule is not None and name == own_name:
                return own_rule(entry)
            if name not in rules:
                rules[name] = self._formats[name].grouping_rule(None)
            # A proposal that its format refuses may be beside any other of it, but not of another format.
            group = rules[name](entry) or ALONE
            return group if group == ALONE else f"{name} {group}"

        return group_of


def lance(*, transaction_files: bool = True) -> AnyFormat:
    """Returns the Lance format. `transaction_files`: write each version's transaction to a file too."""
    return LanceFormat(transaction_files=transaction_files)


def delta() -> AnyFormat:
    """Returns the Delta format."""
    return DeltaFormat()


def built_in(*, transaction_files: bool = True) -> Formats:
    """Returns the formats of this release. `transaction_files`: as of `lance`."""
    return Formats(lance(transaction_files=transaction_files), delta())


BUILT_IN = built_in()
