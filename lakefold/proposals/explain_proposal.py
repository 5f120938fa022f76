"""Puts together what the table, the outcomes and the log say about one proposal.

The table is asked first: what it says is a fact, and it needs no broker. The topics add what no version
remembers: refusals that were reported long ago, what exactly was proposed, and whether it still waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold.proposals.explanation import Explanation
from lakefold.proposals.topic_lookup import ask_the_log
from lakefold_reader.versions.proposals import find
from lakefold_table.errors import InvalidError, LakefoldError, NotATableError, RetryError
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from lakefold.proposals.explanation import Brokers
    from lakefold_reader.format.source import Source
    from lakefold_reader.versions.proposals import Sought


def explain(source: Source, sought: Sought, brokers: Brokers | None, *, versions: int) -> Explanation:
    """What became of a proposal for the table. `versions`: how many of the newest to look at.

    Raises `InvalidError` where nothing is known of it in any place that could be asked, `RetryError` where a
    place that may know can't be asked now; both name the places.
    """
    told = Explanation(canonical(source.uri), sought)
    _ask_the_table(told, source, versions, needed=brokers is None)
    if brokers is None:
        told.not_looked_at.append("the log: no brokers are named (--bootstrap-servers)")
    else:
        try:
            ask_the_log(told, brokers)
        except LakefoldError as error:
            told.trouble = error
            told.not_looked_at.append(f"the log, or a part of it: {error}")
    if not told.state:
        raise _unknown(told)
    return told


def _ask_the_table(told: Explanation, source: Source, versions: int, *, needed: bool) -> None:
    try:
        finding = find(source, told.sought, at_most=versions)
    except NotATableError:
        if needed:
            raise
        told.looked_at.append(f"{source.uri}: there is no table yet")
        return
    told.finding, told.table, told.branch = finding, finding.uri, finding.branch
    told.outcomes.extend(finding.outcomes)
    if finding.decisive is not None and finding.version is not None:
        told.told_by = f"the record in version {finding.version.version}"
    elif finding.committed_in is not None and finding.marks is not None:
        told.told_by = f"the marks in version {finding.marks.version}"
    if finding.marks is not None:
        told.looked_at.append(f"the marks in version {finding.marks.version}")
    told.looked_at.append(f"the records in versions {finding.first} to {finding.last}")


def _unknown(told: Explanation) -> LakefoldError:
    message = f"nothing is known of the proposal {told.sought.text}"
    looked = f"looked at: {'; '.join(told.looked_at) or 'nothing'}"
    if told.not_looked_at:
        looked = f"{looked}. Not looked at: {'; '.join(told.not_looked_at)}"
    if told.sought.uuid:
        looked = f"it was taken for a transaction's uuid; {looked}"
    if isinstance(told.trouble, RetryError):
        return RetryError(message, where=told.table, hint=looked)
    return InvalidError(message, where=told.table, hint=looked)
