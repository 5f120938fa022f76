"""`lakefold.create` and `lakefold.alter`, as `lakefold` exports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Unpack

from lakefold.branching.functions import WAIT_S, ProposalOptions, checked, settings_of
from lakefold.proposals.logged_proposal import send_and_wait
from lakefold.tables.schema_texts import field_of, schema_from
from lakefold.writing.dry_run import written
from lakefold.writing.options import batch_key, check_kinds, settings_for
from lakefold_ingest.alteration import Alteration
from lakefold_ingest.formats import DEFAULT_FILE_VERSION, property_text, read_view
from lakefold_ingest.merge.clauses import names_of
from lakefold_ingest.operations.alter import AlterTable
from lakefold_ingest.proposals.key import new_key
from lakefold_ingest.writing.batch import check_kind, creation_of
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    import os

    import pyarrow as pa

    from lakefold.console.settings import Settings
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_table.entry import Outcome


_MAY_EXIST: Final = ("if it may exist, give ", OptionName("if_not_exists"), "; to change it, alter it")


def create(
    table: str | os.PathLike[str],
    schema: pa.Schema | Mapping[str, pa.DataType | str],
    *,
    format: str = "lance",  # noqa: A002 - as every option of this name
    partition_by: str | Iterable[str] = (),
    properties: Mapping[str, str | bool | int] | None = None,
    stable_row_ids: bool = False,
    data_storage_version: str = DEFAULT_FILE_VERSION,
    if_not_exists: bool = False,
    **options: Unpack[ProposalOptions],
) -> Outcome | None:
    """Creates a table without rows, through the log.

        lakefold.create("s3://lake/planes.lance", {"tail": "string not null", "seats": "int"})
        columns = lakefold.open("s3://lake/planes.lance").schema
        lakefold.create("s3://lake/planes", columns, format="delta", partition_by="seats")

    `schema`: that of Arrow, or a type for each column, as Arrow or Spark names it. `format`: "lance" or
    "delta". `partition_by`, `properties`: those of a Delta table, e.g. {"delta.enableDeletionVectors": True};
    a Lance table has the property lakefold.isolation. `stable_row_ids`: rows keep their ids when they are
    moved. `data_storage_version`: of Lance's data files. `if_not_exists`: returns None if there is a table.

    Raises `RefusedError` (with `.outcome`) if the table exists or can't be created, `InvalidError` for a
    column or a property that it can't have, `RetryError` if no outcome came in time.
    """
    check_kinds({"stable_row_ids": stable_row_ids, "if_not_exists": if_not_exists})
    settings, columns = settings_of(options), schema_from(schema)
    write = settings_for(
        str(table),
        settings,
        wait_s=options.get("timeout", WAIT_S),
        commit_message=options.get("commit_message", ""),
        format=format,
        partition_by=partition_by,
        table_properties=properties or {},
        stable_row_ids=stable_row_ids,
        data_storage_version=data_storage_version,
    )
    outcome = create_table(settings, write, columns, if_not_exists=if_not_exists)
    return None if outcome is None else checked(outcome, _MAY_EXIST)


def create_table(
    settings: Settings, write: WriteSettings, columns: pa.Schema, *, if_not_exists: bool
) -> Outcome | None:
    """Creates a table, and returns the outcome, also a refusal; None if it exists and `if_not_exists`.

    Else raises as `create`.
    """
    creation = creation_of(write, new_key(), columns)

    def exists() -> bool:
        view = read_view(write.table, write.storage_options) if if_not_exists else None
        if view is not None:
            check_kind(write, view)
        return view is not None

    if exists():
        return None
    outcome = send_and_wait(settings, creation, write.timeout_s, write.commit_message)
    is_refused = isinstance(outcome.result, Rejected | Invalid)
    return None if is_refused and exists() else outcome


def alter(  # noqa: PLR0913 - its options
    table: str | os.PathLike[str],
    *,
    add: Mapping[str, pa.DataType | pa.Field | str] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: str | Iterable[str] = (),
    widen: Mapping[str, pa.DataType | str] | None = None,
    properties: Mapping[str, str | bool | int | None] | None = None,
    app_id: str | None = None,
    batch_id: int | None = None,
    dry_run: bool = False,
    **options: Unpack[ProposalOptions],
) -> BatchReport:
    """Changes columns and properties of a table through the log, all by one version.

        lakefold.alter("s3://lake/flights.lance", rename={"dep_delay": "delay"}, drop=["changed_at"])
        lakefold.create("s3://lake/counters", {"name": "string", "n": "int"}, format="delta")
        widening = {"delta.enableTypeWidening": True}
        lakefold.alter("s3://lake/counters", properties=widening, widen={"n": "long"})

    `add`: new columns, null in the rows of the table. `rename`: new names by the present ones. `drop`:
    columns that go; their values stay in data files until these are rewritten or cleaned up. `widen`: wider
    types; a Lance table's column is written again for that, as with `merge_schema`. `properties`: values,
    None removes one. Types are Arrow's, or named as Arrow or Spark names them. Only columns at the top level
    are changed.

    To rename or drop columns, a Delta table needs the property delta.columnMapping.mode = name, and for wider
    types delta.enableTypeWidening = true. Features that a property or a type needs are added to its protocol.
    A Lance table's properties, the keys of its configuration, are changed by a call of their own.

    If others change the table meanwhile, it is altered on their version. Nothing is sent if types and
    properties are so already; to add a column that exists is an error.
    With `app_id` and `batch_id` it is done once, however often the same call is made. With `dry_run` nothing
    is sent: the report (`kind` "planned") says what the committer would answer.

    Raises `InvalidError` that names what the table can't have or must keep, such as partition columns, keys
    and what a constraint uses, `RefusedError` (with `.outcome`) if the committer refused it, `RetryError` if
    no outcome came in time.
    """
    settings = settings_of(options)
    given = alteration_of(add, rename, names_of(drop, "drop"), widen, properties)
    write = settings_for(
        str(table),
        settings,
        wait_s=options.get("timeout", WAIT_S),
        commit_message=options.get("commit_message", ""),
        dry_run=dry_run,
    )
    return written(write, batch_key(app_id, batch_id), AlterTable(given), None)


def alteration_of(
    add: Mapping[str, pa.DataType | pa.Field | str] | None,
    rename: Mapping[str, str] | None,
    drop: tuple[str, ...],
    widen: Mapping[str, pa.DataType | str] | None,
    properties: Mapping[str, str | bool | int | None] | None,
) -> Alteration:
    """Returns what a user changes. Raises `InvalidError` for an unknown type, and as `Alteration`."""
    for name, given in {"add": add, "rename": rename, "widen": widen, "properties": properties}.items():
        if not isinstance(given, Mapping | None):
            raise InvalidError(f"{given!r} can't be its value", where=name, hint="give a mapping, by names")
    values = (properties or {}).items()
    return Alteration(
        tuple(field_of(name, kind) for name, kind in (add or {}).items()),
        rename or {},
        drop,
        {name: field_of(name, kind).type for name, kind in (widen or {}).items()},
        {name: None if value is None else property_text(value) for name, value in values},
    )
