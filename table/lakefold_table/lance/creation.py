"""The first version of a table: an Overwrite that creates it, with the choices that stay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.manifests.features import Flag, set_flag
from lakefold_table.lance.schemas.columns import KNOWN_VERSIONS, LEGACY_FILES, some
from lakefold_table.lance.schemas.data_files import FILE_VERSIONS, LEGACY, NAMES, FileVersion
from lakefold_table.lance.schemas.keys import check_primary_key
from lakefold_table.lance.schemas.logical_types import is_known_type
from lakefold_table.lance.schemas.schema import RESERVED_NAMES, TOP, check_structure, depth
from lakefold_table.lance.validity import base_path_fault, config_fault, reserved_key_fault
from lakefold_table.nesting import neighbour_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.format import Fetched

MAX_DEPTH = 63
"""The most levels of a schema that Arrow's C interface, and so pylance, can show (Lance fact 4.10)."""
DEFAULT_STORAGE_VERSION = "2.2"


def creation_fault(envelope: Envelope, fetched: Fetched) -> Invalid | None:
    """Returns what is wrong with a proposal to create a table, apart from its fragments, or None."""
    transaction, version = envelope.lance, envelope.create.data_storage_version
    overwrite = transaction.overwrite
    if envelope.branch:
        return Invalid(
            f"the branch {envelope.branch!r} does not exist, and an overwrite can't create it",
            "create it with a Clone of the version that it branches off",
        )
    if transaction.WhichOneof("operation") != "overwrite":
        return Invalid(
            "a table is created by an overwrite", "send an empty overwrite with the schema, then append"
        )
    if transaction.read_version:
        return Invalid(
            f"read version {transaction.read_version}, but the table does not exist yet", "create it with 0"
        )
    if version and version not in KNOWN_VERSIONS:
        return Invalid(
            f"data storage version {version!r} is not known", f"use one of {', '.join(KNOWN_VERSIONS)}"
        )
    bases = Counter(base.id for base in overwrite.initial_bases)
    if any(count > 1 for count in bases.values()):
        return Invalid("two bases have the same id", "give each base an id of its own")
    return (
        neighbour_fault(envelope.table, fetched.neighbours)
        or base_path_fault(overwrite.initial_bases, fetched.outside)
        or schema_fault(overwrite.schema)
        or config_fault(overwrite.config_upsert_values)
        or reserved_key_fault(overwrite.schema_metadata)
    )


def first_head(envelope: Envelope) -> Manifest:
    """Returns the manifest before the first version: schema and choices, version 0, no fragments."""
    overwrite, create = envelope.lance.overwrite, envelope.create
    head = Manifest(
        fields=overwrite.schema,
        schema_metadata=overwrite.schema_metadata,
        config=overwrite.config_upsert_values,
        base_paths=overwrite.initial_bases,
    )
    head.data_format.file_format = "lance"
    head.data_format.version = create.data_storage_version or NAMES[version_to_create(envelope)]
    if create.stable_row_ids:
        set_flag(head, Flag.STABLE_ROW_IDS)
    if overwrite.config_upsert_values:
        head.writer_feature_flags |= Flag.TABLE_CONFIG
    if overwrite.initial_bases:
        set_flag(head, Flag.BASE_PATHS)
    return head


def version_to_create(envelope: Envelope) -> FileVersion:
    """Returns the version of the table's data files: the requested version, or that of its first files."""
    named = envelope.create.data_storage_version
    of_files = None if named else version_of_all(envelope.lance.overwrite.fragments)
    return of_files or FILE_VERSIONS[named or DEFAULT_STORAGE_VERSION]


def version_of_all(fragments: Iterable[DataFragment]) -> FileVersion | None:
    """Returns the version that all files of these fragments have, or None if there is no file or they differ.

    If no older file is left, that is the version of the table's data files: pylance's writer chooses the
    version in this way (Lance fact 6.5), and a proposal doesn't contain it otherwise.
    """
    files = {
        (file.file_major_version, file.file_minor_version)
        for fragment in fragments
        for file in fragment.files
    }
    if files and files <= LEGACY_FILES:
        return LEGACY
    return files.pop() if len(files) == 1 else None


def schema_fault(fields: Sequence[Field]) -> Invalid | None:
    """Returns why Lance clients couldn't read a table with this schema, or None (Lance fact 4.10)."""
    if not fields:
        return Invalid("a table needs at least one column", "give the schema")
    if depth(fields) > MAX_DEPTH:
        return Invalid(
            f"the schema is nested deeper than {MAX_DEPTH} levels", "no Lance client can open such a table"
        )
    try:
        check_structure(fields)
    except DamagedError as error:
        return Invalid(
            f"the schema is not sound: {error.reason}",
            "give each field an id of its own, a parent before it, and the children that its type needs",
        )
    siblings = Counter((field.parent_id, field.name) for field in fields)
    twice = [name for (_, name), count in siblings.items() if count > 1]
    if twice:
        return Invalid(f"several fields have the names {some(twice)}", "rename all but one")
    columns = [field.name for field in fields if field.parent_id == TOP]
    wrong = [name for name in columns if not name or "." in name or name in RESERVED_NAMES]
    if wrong:
        return Invalid(
            f"columns can't have the names {some(wrong)}",
            f"a name must not be empty, contain a dot or be one of {', '.join(sorted(RESERVED_NAMES))}",
        )
    cut = [field.name for field in fields if "\0" in field.name]
    if cut:
        return Invalid(
            f"the names {some(cut)} contain a NUL", "no Lance client can open such a table: rename"
        )
    unknown = {field.logical_type for field in fields if not is_known_type(field.logical_type)}
    if unknown:
        return Invalid(f"the logical types {some(unknown)} are not known", "use the types that Lance stores")
    return primary_key_fault(fields)


def primary_key_fault(fields: Sequence[Field]) -> Invalid | None:
    """Returns why the columns that are declared as primary key can't serve as such, or None.

    No Lance client opens such a table.
    """
    try:
        check_primary_key(fields)
    except InvalidError as error:
        return Invalid(error.reason, error.hint)
    return None


def nullability_fault(forbidden: Sequence[str]) -> Invalid | None:
    """Returns why a schema that forbids nulls in these fields can't be said to preserve nullability, or None.

    Rows with nulls may be committed at the same time, and no client can read a table that has some (Lance
    fact 4.10).
    """
    if not forbidden:
        return None
    return Invalid(
        f"the schema is declared to preserve nullability, but forbids nulls in {some(forbidden)}",
        "leave preserves_nullability out",
    )
