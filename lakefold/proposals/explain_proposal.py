"""Collects what the table, the outcomes and the log contain about a proposal.

The table is read first, because that needs no broker. The topics add what no version records: old refusals,
the content of the proposal, and whether it still waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold.proposals.explanation import Brokers, Explanation
from lakefold.proposals.topic_lookup import search_the_topics
from lakefold_reader.versions.listing import OtherFormatError
from lakefold_reader.versions.proposals import ProposalName, find, kind_of_undoing
from lakefold_table.entry import Rejected
from lakefold_table.errors import InvalidError, LakefoldError, NotATableError, RetryError
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source


def explain(source: Source, sought: ProposalName, brokers: Brokers | None, *, versions: int) -> Explanation:
    """Returns what is known of a proposal for the table. The newest `versions` versions are searched.

    Raises `InvalidError` if nothing is known of it, `RetryError` if a source that may know something can't be
    read now. Both errors name the sources.
    """
    explanation = Explanation(canonical(source.uri), sought, source.format.name)
    _read_the_table(explanation, source, versions, needed=brokers is None)
    if brokers is None:
        explanation.not_looked_at.append("the log: no brokers are set (--bootstrap-servers)")
    else:
        try:
            search_the_topics(explanation, brokers)
        except LakefoldError as error:
            explanation.trouble = error
            explanation.not_looked_at.append(f"the log, or a part of it: {error}")
    if not explanation.state:
        raise _unknown(explanation)
    if explanation.rolled_back_by:
        explanation.undoing = kind_of_undoing(source, explanation.rolled_back_by)
    result = None if explanation.outcome is None else explanation.outcome.result
    if isinstance(result, Rejected) and result.conflict.other_version:
        other = source.summary(result.conflict.other_version)
        explanation.other_client = None if other is None else other.author
    return explanation


def _read_the_table(explanation: Explanation, source: Source, versions: int, *, needed: bool) -> None:
    try:
        finding = find(source, explanation.sought, at_most=versions)
    except NotATableError as error:
        if needed or isinstance(error, OtherFormatError):
            raise
        explanation.looked_at.append(f"{source.uri}: the table does not exist yet")
        return
    explanation.finding, explanation.table, explanation.branch = finding, finding.uri, finding.branch
    explanation.outcomes.extend(finding.outcomes)
    if finding.decisive is not None and finding.version is not None:
        explanation.known_from = f"the record in version {finding.version.version}"
    elif finding.committed_in is not None and finding.marks is not None:
        explanation.known_from = f"the marks in version {finding.marks.version}"
    if finding.marks is not None:
        explanation.looked_at.append(f"the marks in version {finding.marks.version}")
    explanation.looked_at.append(f"the records in versions {finding.first} to {finding.last}")


def _unknown(explanation: Explanation) -> LakefoldError:
    message = f"nothing is known of the proposal {explanation.sought.text}"
    searched = f"searched: {'; '.join(explanation.looked_at) or 'nothing'}"
    if explanation.not_looked_at:
        searched = f"{searched}. Not searched: {'; '.join(explanation.not_looked_at)}"
    if explanation.sought.uuid:
        searched = f"it was read as the uuid of a transaction; {searched}"
    if isinstance(explanation.trouble, RetryError):
        return RetryError(message, where=explanation.table, hint=searched)
    return InvalidError(message, where=explanation.table, hint=searched)
