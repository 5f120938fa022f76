"""The proposal that makes a Delta table what it was at an earlier version.

Delta has no operation for that: the actions remove and add files, and set the metadata as they were. So they
hold for one newest version only, and the proposal has read the whole table: a commit in between refuses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_reader.delta.inside_paths import path_inside, relative_to
from lakefold_reader.delta.versions import read_state
from lakefold_table.delta.actions.file_actions import AddFile, removal_of
from lakefold_table.delta.actions.lines import lines_of
from lakefold_table.delta.actions.paths import encode_percent, file_path
from lakefold_table.delta.actions.table_actions import RESTORE_TABLE, TableProtocol
from lakefold_table.delta.conflicts.rules import SERIALIZABLE
from lakefold_table.delta.rows.vectors import file_of
from lakefold_table.delta.table_features.checkpoint_protection import PROTECTED
from lakefold_table.delta.table_features.clustering import DOMAIN
from lakefold_table.delta.table_features.commit_times import ENABLED as COMMIT_TIMES
from lakefold_table.delta.table_features.commit_times import SINCE_TIME, SINCE_VERSION
from lakefold_table.delta.table_features.metadata_rules import HIGHEST_ID
from lakefold_table.delta.table_features.property_values import number_of
from lakefold_table.delta.table_features.protocol_check import (
    LISTED_READER,
    LISTED_WRITER,
    reader_features,
    writer_features,
)
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.table_actions import Action, TableMetadata
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

GROWING: Final = (HIGHEST_ID, PROTECTED)
"""Properties whose numbers never get less."""
_NAMED: Final = 5
"""How many missing files an error names."""


def restore(envelope: Envelope, source: Source, version: int, newest: int) -> None:
    """Adds to an envelope what makes the table as it was at `version`, if `newest` is its newest version.

    Batches that were folded stay folded. Raises `VersionExpiredError` if a file of the version was removed,
    `InvalidError` if nothing differs, or if the columns of clustering do: these can't be proposed.
    """
    _, then = read_state(source, version)
    _, now = read_state(source, newest)
    _check_clustering(then, now, source.uri)
    kept = {file.key for file in now.files.values()}
    adds = list(by_own_paths((file for file in then.files.values() if file.key not in kept), source.uri))
    wanted = {file.key for file in then.files.values()}
    actions: list[Action] = [
        # Statistics of removed files would only make the log longer.
        replace(removal_of(file, data_change=True), stats=None)
        for file in now.files.values()
        if file.key not in wanted
    ]
    actions += [replace(file, data_change=True) for file in adds]
    metadata = metadata_again(then.metadata, now.metadata)
    if metadata != now.metadata:
        actions.append(metadata)
    protocol = protocol_of_both(then.protocol, now.protocol)
    if protocol is not None:
        actions.append(protocol)
    if not actions:
        message = f"the table is as it was at version {version}: there is nothing to restore"
        raise InvalidError(message, where=source.uri, hint="name another version")
    _check_stored(source, version, adds)
    envelope.delta.read_version = newest
    envelope.delta.read_whole_table = True
    envelope.delta.isolation = SERIALIZABLE
    envelope.delta.operation = RESTORE_TABLE
    envelope.delta.operation_parameters["version"] = str(version)
    envelope.delta.actions = lines_of(actions)


def by_own_paths(files: Iterable[AddFile], uri: str) -> Iterator[AddFile]:
    """Yields files as the log of the table at `uri` may name them again: by paths below its root.

    Other clients may have named them, or their deletion vectors, by absolute paths. Raises `InvalidError`
    for what is not in the table.
    """
    for file in files:
        path, vector = file.path, file.deletion_vector
        if file_path(path).absolute:
            inside = path_inside(path, uri)
            if inside is None:
                raise _elsewhere(f"the data file {path!r}", uri)
            path = encode_percent(inside, "/=")
        if vector is not None:
            vector = relative_to(vector, uri)
            if vector is None:
                raise _elsewhere(f"a deletion vector for {path!r}", uri)
        yield replace(file, path=path, deletion_vector=vector)


def _elsewhere(what: str, uri: str) -> InvalidError:
    message = f"the version has {what}, which this table can't get again: it is not in the table's folder"
    hint = "restore it by Delta's own RESTORE, or name a later version"
    return InvalidError(message, where=uri, hint=hint)


def metadata_again(then: TableMetadata, now: TableMetadata) -> TableMetadata:
    """Returns the metadata of a version that is restored: as they were, but numbers that only grow stay.

    Neither does the version change from which on commits give their time, while it counts.
    """
    kept = {
        name: now.configuration[name]
        for name in GROWING
        if (number_of(now.configuration.get(name)) or 0) > (number_of(then.configuration.get(name)) or 0)
    }
    if then.is_on(COMMIT_TIMES) and now.is_on(COMMIT_TIMES):
        since = (SINCE_VERSION, SINCE_TIME)
        others = {name: text for name, text in then.configuration.items() if name not in since}
        given = {name: text for name, text in now.configuration.items() if name in since}
        then = replace(then, configuration={**others, **given})
    configuration = {**then.configuration, **kept}
    return then if configuration == then.configuration else replace(then, configuration=configuration)


def protocol_of_both(then: TableProtocol, now: TableProtocol) -> TableProtocol | None:
    """Returns the protocol with the features of both; None if `now` has them all. It never gets less."""
    readers, writers = reader_features(then), writer_features(then)
    if readers <= reader_features(now) and writers <= writer_features(now):
        return None
    readers |= reader_features(now)
    writers |= writer_features(now)
    return TableProtocol(LISTED_READER, LISTED_WRITER, tuple(sorted(readers)), tuple(sorted(writers)))


def _check_clustering(then: DeltaSnapshot, now: DeltaSnapshot, where: str) -> None:
    before, after = (each.live_domains.get(DOMAIN) for each in (then, now))
    if before != after:
        message = f"the table's clustering columns were changed after version {then.version}"
        hint = "restore it by Delta's own RESTORE, or name a later version"
        raise InvalidError(message, where=where, hint=hint)


def _check_stored(source: Source, version: int, adds: Sequence[AddFile]) -> None:
    """Raises `VersionExpiredError` if a file is gone that the table gets again."""
    paths = {path for file in adds for path in _stored(file)}
    missing = sorted(path for path, size in source.storage.sizes(sorted(paths)).items() if size is None)
    if missing:
        more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
        message = f"version {version} needs files that were cleaned up: {', '.join(missing[:_NAMED])}{more}"
        hint = "restore a later version whose files still exist"
        raise VersionExpiredError(message, oldest=0, where=source.uri, hint=hint)


def _stored(file: AddFile) -> list[str]:
    """Returns the paths in the table of a data file and the file of its deletion vector."""
    vector = file_of(file.deletion_vector)
    return [file_path(file.path).text, *([] if vector is None else [vector])]
