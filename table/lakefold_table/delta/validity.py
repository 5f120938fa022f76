"""What makes a proposal for a Delta table invalid, whatever was committed meanwhile.

These are the requirements that Delta's protocol has for writers, as far as the actions show them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.fields import no_members
from lakefold_table.delta.actions.paths import CHANGE_DATA, file_path, hidden_part, needless_part, unescaped
from lakefold_table.delta.actions.table_actions import RESTORE_TABLE
from lakefold_table.delta.commit_head import RESERVED, RESERVED_DOMAINS
from lakefold_table.delta.conflicts.rules import SERIALIZABLE, WRITE_SERIALIZABLE
from lakefold_table.delta.deletion_vectors.storage import INLINE
from lakefold_table.delta.table_features.clustering import (
    DOMAIN as CLUSTERING,
)
from lakefold_table.delta.table_features.clustering import (
    FEATURE as CLUSTERED,
)
from lakefold_table.delta.table_features.clustering import (
    clustering_columns,
    clustering_faults,
    lacking_statistics,
)
from lakefold_table.delta.table_features.columns import all_columns
from lakefold_table.delta.table_features.dependent_expressions import expression_faults
from lakefold_table.delta.table_features.metadata_rules import DELETION_VECTORS, metadata_faults
from lakefold_table.delta.table_features.partition_values import fits_type
from lakefold_table.delta.table_features.protocol_check import (
    check_committable,
    proposed_faults,
    writer_features,
)
from lakefold_table.delta.table_features.row_tracking import ENABLED, MOST_ROWS, without_ids
from lakefold_table.delta.table_features.row_tracking import FEATURE as ROW_TRACKING
from lakefold_table.delta.table_features.simple_types import NO_VALUES
from lakefold_table.delta.table_features.statistics_types import statistics_types, unfit_statistics
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, RemoveFile
    from lakefold_table.delta.actions.table_actions import DomainMetadata, TableMetadata, TableProtocol
    from lakefold_table.delta.proposal import DeltaTableProposal
    from lakefold_table.delta.record_counts import StatisticsSummary

SYSTEM_DOMAINS: Final = "delta."
APPEND_ONLY: Final = "delta.appendOnly"
FEED: Final = "delta.enableChangeDataFeed"
"""The property of a table whose changed rows are in change data files."""
FEED_FEATURE: Final = "changeDataFeed"
_OF_ROWS: Final = ("UPDATE", "DELETE", "MERGE")
"""Operations that write other rows again if they add files and remove some."""
_ROWS: Final = "give the rows that the new deletion vector of a file has in addition"
_PLAIN: Final = "leave out empty parts, `.`, and escapes of letters, digits, `-._~/`; write others as `%2B`"
_FOLLOW: Final = "send the actions that Delta's protocol allows in one commit"
_APPEND_ONLY: Final = (
    f"the table is append-only ({APPEND_ONLY}), and the proposal removes rows",
    f"only add rows to it, or set {APPEND_ONLY} to false in a proposal of its own before",
)


@value()
class TableRules:
    """What the validity of a proposal depends on: the table's protocol and metadata, if it sets none itself.

    `features`: those of writers. `partitions`: the types of the partition columns by the names under which
    files give their values. `lacking`: partition columns that are not in the schema. `columns`: the names
    under which statistics have columns, `types`: their types. `tracks_rows`: files get row ids.
    `required`: the columns at the top that are NOT NULL, by the same names.
    `writes_vectors`: files may get deletion vectors. `clustering`: the columns by which it is clustered, by
    their paths in data files. `fault`: why nothing may be committed to such a table.
    """

    protocol: TableProtocol
    metadata: TableMetadata
    features: frozenset[str] = frozenset()
    partitions: Mapping[str, str] = field(default_factory=no_members)
    lacking: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()
    types: Mapping[str, Any] = field(default_factory=no_members)
    required: frozenset[str] = frozenset()
    is_append_only: bool = False
    tracks_rows: bool = False
    writes_vectors: bool = False
    clustering: tuple[tuple[str, ...], ...] = ()
    fault: Invalid | None = None


def table_rules(
    protocol: TableProtocol, metadata: TableMetadata, domains: Iterable[DomainMetadata] = ()
) -> TableRules:
    """Returns what counts for a table with this protocol, metadata and domains."""
    try:
        check_committable(protocol, metadata)
        clustering = clustering_columns(domains, writer_features(protocol))
        columns = {column.path[0]: column for column in all_columns(metadata) if len(column.path) == 1}
        types = statistics_types(metadata)
    except (DamagedError, InvalidError) as error:
        return TableRules(protocol, metadata, fault=Invalid(error.reason, error.hint))
    features = writer_features(protocol)
    if ROW_TRACKING in features and "domainMetadata" not in features:
        message = f"the table has the feature {ROW_TRACKING}, which needs the feature domainMetadata"
        return TableRules(protocol, metadata, fault=Invalid(message, "add it to the table's protocol"))
    mapped = "columnMapping" in features and metadata.maps_columns
    return TableRules(
        protocol,
        metadata,
        features,
        {
            columns[name].physical if mapped else name: columns[name].kinds[0]
            for name in metadata.partition_columns
            if name in columns
        },
        tuple(sorted(set(metadata.partition_columns) - columns.keys())),
        frozenset(column.physical if mapped else name for name, column in columns.items()),
        types,
        frozenset(
            column.physical if mapped else name
            for name, column in columns.items()
            if not column.may_be_null and column.kinds[0] not in NO_VALUES
        ),
        metadata.is_on(APPEND_ONLY),
        ROW_TRACKING in features,
        "deletionVectors" in features and metadata.is_on(DELETION_VECTORS),
        clustering,
    )


def proposal_fault(proposal: DeltaTableProposal, rules: TableRules) -> Invalid | None:
    """Returns what is wrong with a proposal for a table with these rules, or None.

    They are those after the proposal, if it changes the protocol or the metadata.
    """
    if proposal.fault is not None:
        return proposal.fault
    if rules.fault is not None:
        return rules.fault
    try:
        for message, hint in _faults(proposal, rules):
            return Invalid(message, hint)
    except DamagedError as error:
        return Invalid(error.reason, error.hint)
    return None


def _faults(proposal: DeltaTableProposal, rules: TableRules) -> Iterator[tuple[str, str]]:
    yield from _of_whole(proposal)
    yield from _of_domains(proposal, rules)
    if rules.lacking:
        yield f"the partition column {rules.lacking[0]!r} is not in the schema", _FOLLOW
    yield from _twice("add", proposal.adds)
    yield from _twice("remove", proposal.removes)
    yield from _twice("cdc", proposal.changes)
    if proposal.removes and proposal.adds:
        both = {file.key for file in proposal.adds} & {file.key for file in proposal.removes}
        if both:
            yield f"{min(both)[0]!r} is both added and removed", _FOLLOW
    yield from _of_adds(proposal, rules)
    yield from _of_changes(proposal, rules)
    yield from _of_rows(proposal)
    if proposal.domains and "domainMetadata" not in rules.features:
        yield "the proposal sets domain metadata, but the table lacks the feature domainMetadata", _FOLLOW
    if rules.is_append_only and _removes_rows(proposal):
        yield _APPEND_ONLY


def append_only_fault(proposal: DeltaTableProposal, before: TableRules) -> Invalid | None:
    """Returns why rows can't go together with the property of an append-only table, or None.

    A RESTORE of a version in which the table was none may, as with delta-spark.
    """
    refused = before.is_append_only and _removes_rows(proposal) and not proposal.restores
    return Invalid(*_APPEND_ONLY) if refused else None


def _removes_rows(proposal: DeltaTableProposal) -> bool:
    """Returns whether a proposal removes rows, rather than storing them in another way."""
    return any(file.data_change for file in proposal.removes)


def _of_changes(proposal: DeltaTableProposal, rules: TableRules) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the `cdc` actions of a proposal (Delta fact 7.3)."""
    has_feed = FEED_FEATURE in rules.features and rules.metadata.is_on(FEED)
    removed = {file.path for file in proposal.removes if file.data_change}
    copies = bool(removed) and any(file.data_change and file.path not in removed for file in proposal.adds)
    if has_feed and copies and not proposal.changes and proposal.operation.upper() in _OF_ROWS:
        message = f"the proposal changes rows ({proposal.operation}) without cdc actions, but {FEED} is true"
        yield message, "write the changed rows into change data files as well"
    for change in proposal.changes:
        # delta-spark gives files of tables with mapped columns a folder with a random name, also these.
        if file_path(change.path).absolute:
            yield f"{change.path!r} is not below the table's root", "write change files below the root"
        yield from _of_new_path(change.path, CHANGE_DATA)
        yield from _of_partition_values(change, rules.partitions)
        if change.data_change:
            yield f"the cdc action of {change.path!r} must have dataChange false", _FOLLOW
    if proposal.changes and not has_feed:
        yield f"the proposal has cdc actions, but {FEED} is not true", "leave them out"


def _of_adds(proposal: DeltaTableProposal, rules: TableRules) -> Iterator[tuple[str, str]]:
    removed = {file.path for file in proposal.removes}
    for file, statistics in zip(proposal.adds, proposal.statistics, strict=True):
        yield from _of_file(file, statistics, rules.partitions)
        yield from _of_features(file, statistics, rules)
        # Other clients may have named a file of the table so.
        if file.path not in removed and file_path(file.path).absolute:
            yield f"{file.path!r} is not below the table's root", "write data files below the root"
        # Files that were written before may have columns that were dropped since, if columns are mapped.
        is_new = file.data_change and file.path not in removed and proposal.operation != RESTORE_TABLE
        if file.path not in removed and (file.data_change or removed) and not proposal.restores:
            yield from _of_new_path(file.path)
            unfit = unfit_statistics(file, rules.types)
            if unfit is not None:
                yield unfit
        if is_new and file.base_row_id is not None and not rules.tracks_rows:
            message = f"{file.path!r} has a row id, but the table lacks the feature {ROW_TRACKING}"
            yield message, "leave out baseRowId: committers give row ids"
        if is_new and statistics.false_nulls:
            message = f"{file.path!r} can't have as many nulls in the column {statistics.false_nulls!r}"
            yield f"{message} as its statistics say", "count the nulls of the data file, or leave it out"
        if is_new and rules.required:
            yield from _of_nulls(file, statistics, rules.required)
        if is_new or not rules.metadata.maps_columns:
            yield from _of_statistics(file, statistics, rules.columns)
        # Other clients may have written a file that gets another deletion vector, or comes back.
        unclustered = lacking_statistics(file, rules.clustering)
        if unclustered is not None and file.path not in removed and not proposal.restores:
            yield unclustered


def _of_features(
    file: AddFile, statistics: StatisticsSummary, rules: TableRules
) -> Iterator[tuple[str, str]]:
    vector = file.deletion_vector
    if vector is not None and vector.storage_type == INLINE and vector.offset is not None:
        yield f"the deletion vector of {file.path!r} is in its action, and has an offset", "leave it out"
    if vector is not None and "deletionVectors" not in rules.features:
        yield f"{file.path!r} has a deletion vector, but the table lacks the feature deletionVectors", _FOLLOW
    if rules.tracks_rows and statistics.stored_rows is None:
        yield f"{file.path!r} needs row ids, but its statistics lack numRecords", _FOLLOW
    if rules.tracks_rows and (statistics.stored_rows or 0) > MOST_ROWS:
        message = f"{file.path!r} needs row ids for {statistics.stored_rows} rows, more than a file can have"
        yield message, "write as numRecords how many rows the file has"


def _of_statistics(
    file: AddFile, statistics: StatisticsSummary, columns: frozenset[str]
) -> Iterator[tuple[str, str]]:
    if not statistics.columns <= columns:
        present = {name.lower() for name in columns}
        unknown = sorted(name for name in statistics.columns if name.lower() not in present)
        if unknown:
            message = f"{file.path!r} has the column {unknown[0]!r}, which is not in the table's schema"
            yield message, "add the column to the table first, by a proposal with metaData"


def _of_nulls(
    file: AddFile, statistics: StatisticsSummary, required: frozenset[str]
) -> Iterator[tuple[str, str]]:
    partitions = {name for name, text in file.partition_values.items() if not text}
    nulls = sorted(required & (statistics.nulls | partitions))
    if nulls:
        yield f"{file.path!r} has nulls in the column {nulls[0]!r}, which is NOT NULL", "leave out such rows"


def _of_whole(proposal: DeltaTableProposal) -> Iterator[tuple[str, str]]:
    if proposal.others:
        yield f"the action {proposal.others[0]!r} can't be proposed", _FOLLOW
    if proposal.isolation not in ("", SERIALIZABLE, WRITE_SERIALIZABLE):
        message = f"there is no isolation level {proposal.isolation!r}"
        yield message, f"name {SERIALIZABLE} or {WRITE_SERIALIZABLE}, or none"
    parts = (proposal.adds, proposal.removes, proposal.metadata, proposal.protocol, proposal.domains)
    if not any(parts) and not proposal.apps and not proposal.changes:
        yield "the proposal has no actions", "send the actions of a commit, one in each line"
    if proposal.changes and not any((proposal.adds, proposal.removes)):
        yield "the proposal has cdc actions, but adds and removes no file", _FOLLOW
    domains = () if proposal.begins_table else proposal.domains
    if proposal.based_on is None and (proposal.removes or domains):
        yield "the proposal removes files or sets domains, but names no read version", "name the version"
    if proposal.based_on is None and (proposal.protocol is None) is not (proposal.metadata is None):
        yield "a table is created by a protocol and a metaData action", "send both, or name a read version"
    yield from _of_names(proposal)


def _of_rows(proposal: DeltaTableProposal) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the rows that a proposal says it deletes."""
    adds = {file.path: file for file in proposal.adds}
    removes = {file.path: file for file in proposal.removes}
    for path, rows in proposal.affected_rows.items():
        removed, added = removes.get(path), adds.get(path)
        if removed is None:
            yield f"affected rows are given for {path!r}, which the proposal does not remove", _ROWS
            continue
        before = 0 if removed.deletion_vector is None else removed.deletion_vector.cardinality
        if added is None:
            continue
        after = 0 if added.deletion_vector is None else added.deletion_vector.cardinality
        if before + len(rows) != after:
            message = (
                f"{len(rows)} rows of {path!r} are affected, but its deletion vector grows from {before}"
            )
            yield f"{message} to {after}", _ROWS


def _of_names(proposal: DeltaTableProposal) -> Iterator[tuple[str, str]]:
    for app in proposal.apps:
        if app.app_id.startswith(RESERVED):
            yield f"the app id {app.app_id!r} is reserved for committers", "name the application otherwise"
    if len({app.app_id for app in proposal.apps}) < len(proposal.apps):
        yield "there are two txn actions of one app id", _FOLLOW


def _of_domains(proposal: DeltaTableProposal, rules: TableRules) -> Iterator[tuple[str, str]]:
    for domain in proposal.domains:
        is_clustering = domain.domain == CLUSTERING and CLUSTERED in rules.features
        if domain.domain.startswith(SYSTEM_DOMAINS) and not is_clustering:
            yield f"the domain {domain.domain!r} is controlled by the protocol", "set domains of your own"
        if domain.domain.startswith(RESERVED_DOMAINS):
            yield f"the domain {domain.domain!r} is the committer's", "set domains of your own"
    if len({each.domain for each in proposal.domains}) < len(proposal.domains):
        yield "there are two domainMetadata actions of one domain", _FOLLOW


def _twice(name: str, files: Iterable[AddFile | RemoveFile | ChangeFile]) -> Iterator[tuple[str, str]]:
    seen = set[str]()
    for file in files:
        if file.path in seen:
            yield f"there are two {name} actions of {file.path!r}", _FOLLOW
            return
        seen.add(file.path)


def _of_file(
    file: AddFile, statistics: StatisticsSummary, partitions: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    if file.size < 0 or file.modified_ms < 0:
        yield f"{file.path!r} has a negative size or time", _FOLLOW
    if statistics.fault:
        yield (
            f"the statistics of {file.path!r} are malformed: {statistics.fault}",
            "write them as JSON, or leave them out",
        )
    if file.deletion_vector is not None and statistics.rows is None:
        yield f"{file.path!r} has a deletion vector, but its statistics lack numRecords", _FOLLOW
    deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    if statistics.stored_rows is not None and not 0 <= deleted <= statistics.stored_rows:
        message = f"the deletion vector of {file.path!r} deletes {deleted} rows, numRecords is"
        yield f"{message} {statistics.stored_rows}", "count the deleted rows as well in numRecords"
    yield from _of_partition_values(file, partitions)


def _of_partition_values(
    file: AddFile | ChangeFile, partitions: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    if file.partition_values.keys() != partitions.keys():
        has, needs = ", ".join(sorted(file.partition_values)), ", ".join(sorted(partitions))
        message = f"{file.path!r} has values of the partition columns ({has}), the table has ({needs})"
        yield message, "give a value, or null, for each partition column"
        return
    for name, kind in partitions.items():
        if not fits_type(file.partition_values[name], kind):
            text = f"{file.partition_values[name]!r} as the value of the partition column {name!r}"
            yield f"{file.path!r} has {text}, whose type is {kind}", "write it as Delta's protocol says"


def _of_new_path(encoded: str, folder: str = "") -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the path of a file that the table does not have.

    `folder`: one in which it may be though it is hidden. Other clients may have written the files of a table.
    """
    if needless_part(encoded):
        yield f"{encoded!r} is not the only way to write this path", _PLAIN
    hidden = hidden_part(file_path(encoded).text.removeprefix(folder))
    if hidden:
        yield f"{encoded!r} has a part that begins with {hidden[0]!r}", "name files and folders otherwise"
    character = unescaped(encoded)
    if character:
        message = f"the path {encoded!r} has {character!r}, which is no character of a URI"
        yield message, "percent-encode the path, as Delta's protocol says"


def metadata_fault(before: TableRules | None, after: TableRules) -> Invalid | None:
    """Returns which rule a table's metadata and domains break that they did not break before, or None."""
    try:
        messages = set[str]() if before is None else {message for message, _ in _table_faults(before)}
        for message, hint in _table_faults(after):
            if message not in messages:
                return Invalid(message, hint)
    except DamagedError as error:
        return Invalid(error.reason, error.hint)
    return None


def _table_faults(rules: TableRules) -> Iterator[tuple[str, str]]:
    yield from metadata_faults(rules.metadata, rules.features)
    yield from expression_faults(rules.metadata)
    if CLUSTERED in rules.features and rules.metadata.partition_columns and not rules.clustering:
        yield f"the table has partition columns and the feature {CLUSTERED}", "partition it, or cluster it"
    yield from clustering_faults(rules.clustering, rules.metadata)


def clustering_fault(before: TableRules, after: TableRules, files: Iterable[AddFile]) -> Invalid | None:
    """Returns why a table with these files can't get other clustering columns, or None."""
    added = set(after.clustering) - set(before.clustering)
    faults = (lacking_statistics(file, added) for file in files) if added else ()
    return next((Invalid(*fault) for fault in faults if fault is not None), None)


def enables_row_tracking(before: TableMetadata, after: TableMetadata) -> bool:
    """Returns whether a change of the metadata has readers rely on row ids from then on."""
    enabled = [each.is_on(ENABLED) for each in (before, after)]
    return enabled == [False, True]


def row_tracking_fault(rules: TableRules, files: Iterable[AddFile]) -> Invalid | None:
    """Returns why row tracking can't be enabled for a table with these rules and files, or None."""
    if not rules.tracks_rows:
        return Invalid(f"{ENABLED} needs the feature {ROW_TRACKING}", "add it to the table's protocol")
    path = without_ids(files)
    if path:
        hint = "add such files again before, with dataChange false"
        return Invalid(f"{ENABLED} is set, but the file {path!r} has no row ids", hint)
    return None


def protocol_fault(old: TableProtocol, new: TableProtocol) -> Invalid | None:
    """Returns why the protocol of a table can't be replaced by this one, or None: it may only grow."""
    lost = sorted(writer_features(old) - writer_features(new))
    if lost or new.reader < old.reader or new.writer < old.writer:
        what = f"the feature {lost[0]}" if lost else "a version of the protocol"
        return Invalid(f"the proposal takes {what} from the table", "keep all that the table's protocol has")
    return new_protocol_fault(new)


def new_protocol_fault(protocol: TableProtocol) -> Invalid | None:
    """Returns why a proposal can't set a protocol, whatever the table has, or None."""
    return next((Invalid(message, hint) for message, hint in proposed_faults(protocol)), None)
