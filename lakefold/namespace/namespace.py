"""The Lance Namespace of a root: its namespaces, tables and versions, with commits through the log."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import lance_namespace as interface
from lance_namespace.errors import (
    ConcurrentModificationError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    TableAlreadyExistsError,
    TableTagNotFoundError,
)
from lance_namespace_urllib3_client.models.branch_contents import BranchContents
from lance_namespace_urllib3_client.models.index_content import IndexContent
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema
from lance_namespace_urllib3_client.models.tag_contents import TagContents

from lakefold.branching.functions import branch as begin_branch
from lakefold.branching.functions import restore, tag
from lakefold.namespace.commits import VersionCommits
from lakefold.namespace.dataset_changes import DatasetChanges
from lakefold.namespace.descriptions import schema_json, statistics_of
from lakefold.namespace.folders import MARKER, CatalogFolders
from lakefold.namespace.names import SEPARATOR
from lakefold.namespace.queries import TableQueries
from lakefold.namespace.requests import Asked, DatedVersion, DeletedRows, UpdatedRows, operation
from lakefold.namespace.rows import TableRows, key_of
from lakefold_ingest.formats import read_view
from lakefold_reader.as_json import iso
from lakefold_reader.consumers.expire_versions import clean_up, plan
from lakefold_reader.snapshot.snapshot import open_table
from lakefold_reader.versions.times import nearest_time
from lakefold_table.branch_names import root_of
from lakefold_table.errors import InvalidError, PreconditionError
from lakefold_table.storage.base import Put
from lakefold_table.uri import FILE, canonical, local_path, parse_location
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold.console.settings import BrokerOptions, Settings
    from lakefold.namespace.names import Names
    from lakefold_reader.format.source import Source

_STATUS: Final = {
    "committed": "Succeeded",
    "duplicate": "Succeeded",
    "waiting": "Queued",
    "answered": "Running",
    "rejected": "Failed",
    "invalid": "Failed",
    "replaced": "Failed",
}
"""The interface's word for each state of a proposal."""


class LakefoldNamespace(interface.LanceNamespace):
    """See `lakefold.catalog`. What it doesn't have raises `UnsupportedOperationError` with its name.

    For any number of threads. Requests may be the interface's models, dictionaries or objects with
    `model_dump`.
    """

    def __init__(self, settings: Settings, names: Names) -> None:
        self._settings = settings
        self._names = names
        self._folders = CatalogFolders(names, settings.storage_options)
        self._commits = VersionCommits(settings)
        self._changes = DatasetChanges(self, settings.storage_options)
        self._rows = TableRows(self._options, self._changes)
        self._queries = TableQueries(settings.storage_options)

    def namespace_id(self) -> str:
        """Returns what distinguishes this namespace from others: its root."""
        return f"lakefold {self._names.root}"

    def close(self) -> None:
        """Waits for the rows that were sent, and ends the writers."""
        self._rows.close()

    # Namespaces.

    @operation
    def create_namespace(self, request: Asked) -> interface.CreateNamespaceResponse:
        """Creates an empty namespace, by a marker in its folder."""
        uri = self._names.namespace(request.names)
        stores = self._folders
        if stores.has_namespace(uri) or stores.store(uri).put_if_absent(MARKER, [b"\n"]) is not Put.STORED:
            raise NamespaceAlreadyExistsError(f"the namespace {uri} exists")
        return interface.CreateNamespaceResponse()

    @operation
    def drop_namespace(self, request: Asked) -> interface.DropNamespaceResponse:
        """Drops a namespace without tables and namespaces."""
        uri = self._folders.namespace(request.names)
        if any(self._folders.named_tables(uri)) or any(self._folders.namespaces(uri)):
            raise NamespaceNotEmptyError(f"the namespace {uri} has tables or namespaces: drop these first")
        self._folders.store(uri).delete(MARKER)
        return interface.DropNamespaceResponse()

    @operation
    def namespace_exists(self, request: Asked) -> interface.NamespaceExistsResponse:
        """Raises `NamespaceNotFoundError` if there is no such namespace."""
        self._folders.namespace(request.names)
        return interface.NamespaceExistsResponse()

    @operation
    def describe_namespace(self, request: Asked) -> interface.DescribeNamespaceResponse:
        """Returns a namespace's properties: its location."""
        location = self._folders.namespace(request.names)
        return interface.DescribeNamespaceResponse(properties={"location": location})

    @operation
    def list_namespaces(self, request: Asked) -> interface.ListNamespacesResponse:
        """Returns the names of the namespaces in a namespace, page by page."""
        inner = self._folders.namespaces(self._folders.namespace(request.names))
        names, token = request.page(sorted(inner))
        return interface.ListNamespacesResponse(namespaces=names, page_token=token)

    # Tables.

    @operation
    def list_tables(self, request: Asked) -> interface.ListTablesResponse:
        """Returns the names of the Lance tables in a namespace, page by page; a page may have fewer."""
        namespace = request.names
        names, token = request.page(sorted(self._folders.named_tables(self._folders.namespace(namespace))))
        tables = [name for name in names if self._is_table([*namespace, name])]
        return interface.ListTablesResponse(tables=tables, page_token=token)

    @operation
    def list_all_tables(self, request: Asked) -> interface.ListTablesResponse:
        """Returns the ids of all Lance tables below the root, page by page: their names joined by `$`."""
        ids, token = request.page(sorted(self._folders.all_named_tables()))
        tables = [each for each in ids if self._is_table(each.split(SEPARATOR))]
        return interface.ListTablesResponse(tables=tables, page_token=token)

    def _is_table(self, names: Sequence[str]) -> bool:
        return self._folders.has_table(self._names.table(names))

    @operation
    def describe_table(self, request: Asked) -> interface.DescribeTableResponse:
        """Returns where a table is, and that its versions are created by this namespace."""
        names, version = request.names, request.get("version")
        uri = self._names.table(names)
        newest = self._folders.newest(uri, request.branch)
        if version is not None:
            self._folders.check_version(uri, request.branch, version)
        return interface.DescribeTableResponse(
            table=names[-1],
            namespace=names[:-1],
            version=version or newest,
            location=_location(uri),
            table_uri=uri,
            managed_versioning=True,
            var_schema=self._schema_of(root_of(uri, request.branch), version),
        )

    def _schema_of(self, uri: str, version: int | None) -> JsonArrowSchema | None:
        """Returns a table's schema, None if it has a type that the interface can't say."""
        if version is None:
            view = read_view(uri, self._settings.storage_options)
            schema = None if view is None else view.schema
        else:
            schema = open_table(uri, version=version, storage_options=self._settings.storage_options).schema
        with suppress(InvalidError):
            return None if schema is None else JsonArrowSchema.from_dict(schema_json(schema))
        return None

    @operation
    def table_exists(self, request: Asked) -> interface.TableExistsResponse:
        """Raises `TableNotFoundError` if there is no such table."""
        uri = self._names.table(request.names)
        self._folders.newest(uri, request.branch)
        if request.get("version") is not None:
            self._folders.check_version(uri, request.branch, request["version"])
        return interface.TableExistsResponse()

    @operation
    def declare_table(self, request: Asked) -> interface.DeclareTableResponse:
        """Returns where a table will be. Its first version creates it, so nothing is reserved."""
        uri = self._names.table(request.names)
        given = request.get("location")
        if given is not None:
            self._check_location(uri, str(given))
        if self._folders.has_table(uri):
            raise TableAlreadyExistsError(f"the table {uri} exists")
        return interface.DeclareTableResponse(location=_location(uri), managed_versioning=True)

    @operation
    def register_table(self, request: Asked) -> interface.RegisterTableResponse:
        """Confirms that a table lies where its name says: each table below the root is in the catalog."""
        uri = self._names.table(request.names)
        self._check_location(uri, str(request["location"]))
        self._folders.newest(uri)
        return interface.RegisterTableResponse(location=_location(uri))

    def _check_location(self, uri: str, given: str) -> None:
        if canonical(given) != uri:
            hint = f"it has to be at {uri}, where its name says"
            raise InvalidError(f"the table can't be at {given}", hint=hint)

    @operation
    def drop_table(self, request: Asked) -> interface.DropTableResponse:
        """Ends a table's binding to its log, then deletes it with all its files, as `lakefold drop` does."""
        from lakefold.binding.drop_table import publish_dropped, remove
        from lakefold.binding.rebinding import rebind_branches
        from lakefold.binding.verbs import cluster_of
        from lakefold_table.marks.marks import RebindReason

        uri = self._names.table(request.names)
        self._folders.newest(uri)
        self._rows.forget(uri)
        address = self._settings.address_of(uri)
        try:
            list(rebind_branches(address, RebindReason.DETACHED, None, cluster_of(self._settings)))
            remove(address, publish_dropped(address), lambda _: None)
        except PreconditionError as error:
            # E.g. entries wait for it: they are answered in a moment.
            raise ConcurrentModificationError(str(error)) from error
        return interface.DropTableResponse(id=request.names, location=_location(uri))

    @operation
    def get_table_stats(self, request: Asked) -> interface.GetTableStatsResponse:
        """Returns a table's rows, bytes, indices and the sizes of its fragments."""
        table = open_table(self._existing(request), storage_options=self._settings.storage_options)
        return statistics_of(table)

    @operation
    def describe_transaction(self, request: Asked) -> interface.DescribeTransactionResponse:
        """Returns what became of a proposal, by its transaction's uuid behind the names of its table."""
        from lakefold.reading.functions import explain

        names = request.names
        if len(names) < 2:  # noqa: PLR2004 - a table and a transaction
            raise InvalidError(
                "the id names no table", hint="give the names of the table, then the transaction's uuid"
            )
        explanation = explain(self._names.table(names[:-1]), names[-1], **self._options)
        said = {
            "outcome": explanation.state,
            "version": explanation.version,
            "position": explanation.position,
            "advice": explanation.advice,
        }
        properties = {name: str(value) for name, value in said.items() if value}
        return interface.DescribeTransactionResponse(
            status=_STATUS.get(explanation.state, "Running"), properties=properties
        )

    # Versions.

    @operation
    def list_table_versions(self, request: Asked) -> interface.ListTableVersionsResponse:
        """Returns a table's versions, page by page; the newest first with `descending`."""
        uri, branch, token = self._names.table(request.names), request.branch, request.get("page_token")
        source, descending = self._folders.source(uri, branch), bool(request.get("descending"))
        is_newest = descending and request.limit == 1 and not token
        numbers: Sequence[int]
        if is_newest:
            numbers = [self._folders.newest(uri, branch)]
        else:
            numbers = sorted(source.versions.numbers(), reverse=descending)
        if not numbers:
            self._folders.newest(uri, branch)
        if token:
            first = _number(token)
            numbers = [each for each in numbers if (each <= first if descending else each >= first)]
        shown, rest = numbers[: request.limit], numbers[request.limit :]
        return interface.ListTableVersionsResponse(
            versions=[_version(source, number, with_time=not is_newest) for number in shown],
            page_token=str(rest[0]) if rest else None,
        )

    @operation
    def describe_table_version(self, request: Asked) -> interface.DescribeTableVersionResponse:
        """Returns where the manifest of a version is; of the newest if the request names none."""
        uri, branch = self._names.table(request.names), request.branch
        number = request.get("version")
        if number is None:
            number = self._folders.newest(uri, branch)
        self._folders.check_version(uri, branch, number)
        return interface.DescribeTableVersionResponse(
            version=_version(self._folders.source(uri, branch), number)
        )

    @operation
    def create_table_version(self, request: Asked) -> interface.CreateTableVersionResponse:
        """Has a version that the client has staged go through the log. See `commits`."""
        uri, branch, number = self._names.table(request.names), request.branch, int(request["version"])
        self._commits.commit(uri, branch, number, str(request["manifest_path"]))
        return interface.CreateTableVersionResponse(
            version=_version(self._folders.source(uri, branch), number)
        )

    @operation
    def batch_delete_table_versions(self, request: Asked) -> interface.BatchDeleteTableVersionsResponse:
        """Removes the versions of some ranges that nothing needs; others of them stay.

        The newest version, those that tags, branches, consumers or running folds need, and those that
        verify the table's marks are needed.
        """
        self._existing(request)
        source = self._folders.source(self._names.table(request.names), request.branch)
        spans = [range(each["start_version"], each["end_version"]) for each in request["ranges"]]
        planned = plan(source, timedelta(0))
        chosen = [number for number in planned.versions if any(number in span for span in spans)]
        cleaned = clean_up(source, replace(planned, versions=chosen))
        return interface.BatchDeleteTableVersionsResponse(deleted_count=cleaned.versions)

    @operation
    def restore_table(self, request: Asked) -> interface.RestoreTableResponse:
        """Publishes an older version again, through the log."""
        uri = self._root(request)
        outcome = restore(uri, version=request["version"], **self._options)
        return interface.RestoreTableResponse(transaction_id=cast("Any", outcome).uuid)

    # Rows.

    @operation
    def create_table(self, request: Asked, request_data: bytes) -> interface.CreateTableResponse:
        """Creates a table with rows, an Arrow stream. `mode`: "create", "exist_ok" or "overwrite"."""
        uri, mode = self._names.table(request.names), str(request.get("mode", "create")).lower()
        done = self._rows.create(uri, request.names, request_data, mode, key_of(request))
        return interface.CreateTableResponse(version=done.version, location=_location(uri))

    @operation
    def insert_into_table(self, request: Asked, request_data: bytes) -> interface.InsertIntoTableResponse:
        """Adds rows, an Arrow stream; many clients share a file and a version."""
        uri, mode = self._root(request), str(request.get("mode", "append")).lower()
        done = self._rows.insert(uri, request_data, mode, key_of(request))
        return interface.InsertIntoTableResponse(version=done.version)

    @operation
    def merge_insert_into_table(
        self, request: Asked, request_data: bytes
    ) -> interface.MergeInsertIntoTableResponse:
        """Merges rows, an Arrow stream, by their keys."""
        done = self._rows.merge(self._root(request), request_data, request.fields, key_of(request))
        return interface.MergeInsertIntoTableResponse(
            version=done.version,
            num_updated_rows=done.updated,
            num_inserted_rows=done.inserted,
            num_deleted_rows=done.deleted,
        )

    @operation
    def update_table(self, request: Asked) -> interface.UpdateTableResponse:
        """Updates columns of the rows for which a predicate holds."""
        uri, predicate = self._root(request), request.get("predicate")
        done = self._rows.update(uri, request["updates"], predicate, key_of(request))
        return UpdatedRows(version=done.version, updated_rows=done.updated, rows_updated=done.updated)

    @operation
    def delete_from_table(self, request: Asked) -> interface.DeleteFromTableResponse:
        """Deletes the rows for which a predicate holds."""
        done = self._rows.delete(self._root(request), request["predicate"], key_of(request))
        return DeletedRows(version=done.version, num_deleted_rows=done.deleted)

    @operation
    def count_table_rows(self, request: Asked) -> interface.CountTableRowsResponse:
        """Returns how many rows there are, or for how many a predicate holds."""
        uri = self._existing(request)
        count = self._queries.count(uri, request.get("predicate"), request.get("version"))
        return interface.CountTableRowsResponse(count=count)

    @operation
    def query_table(self, request: Asked) -> bytes:  # type: ignore[override] # pylance's own returns bytes, too
        """Returns the rows that a filter, a vector or a full-text query finds, as a file of Arrow."""
        return self._queries.query(self._existing(request), request.fields)

    @operation
    def explain_table_query_plan(self, request: Asked) -> str:
        """Returns the plan of a query."""
        return self._queries.explain(
            self._existing(request), request["query"], verbose=bool(request.get("verbose"))
        )

    @operation
    def analyze_table_query_plan(self, request: Asked) -> str:
        """Runs a query and returns its plan with what each step has cost."""
        return self._queries.analyze(self._existing(request), request.fields)

    # Indices and columns.

    @operation
    def list_table_indices(self, request: Asked) -> interface.ListTableIndicesResponse:
        """Returns a table's indices."""
        listed = self._queries.indices(self._existing(request))
        indices = [IndexContent(**each, index_uuid="", status="done") for each in listed]
        return interface.ListTableIndicesResponse(indexes=indices)

    @operation
    def describe_table_index_stats(self, request: Asked) -> interface.DescribeTableIndexStatsResponse:
        """Returns how many rows an index covers."""
        stats = self._queries.index_statistics(self._existing(request), str(request["index_name"]))
        return interface.DescribeTableIndexStatsResponse(**stats)

    @operation
    def create_table_index(self, request: Asked) -> interface.CreateTableIndexResponse:
        """Builds an index of vectors, words or values, and commits it through the log."""
        self._existing(request)
        self._changes.create_index(request.names, request)
        return interface.CreateTableIndexResponse()

    @operation
    def create_table_scalar_index(self, request: Asked) -> interface.CreateTableScalarIndexResponse:
        """Builds an index of values, and commits it through the log."""
        self._existing(request)
        self._changes.create_index(request.names, request)
        return interface.CreateTableScalarIndexResponse()

    @operation
    def drop_table_index(self, request: Asked) -> interface.DropTableIndexResponse:
        """Removes an index, through the log."""
        self._existing(request)
        self._changes.drop_index(request.names, str(request["index_name"]))
        return interface.DropTableIndexResponse()

    @operation
    def alter_table_add_columns(self, request: Asked) -> interface.AlterTableAddColumnsResponse:
        """Adds columns with the values of SQL expressions, through the log."""
        self._existing(request)
        version = self._changes.add_columns(request.names, request["new_columns"])
        return interface.AlterTableAddColumnsResponse(version=version)

    @operation
    def alter_table_alter_columns(self, request: Asked) -> interface.AlterTableAlterColumnsResponse:
        """Renames columns, or has them take nulls, through the log."""
        self._existing(request)
        version = self._changes.alter_columns(request.names, request["alterations"])
        return interface.AlterTableAlterColumnsResponse(version=version)

    @operation
    def alter_table_drop_columns(self, request: Asked) -> interface.AlterTableDropColumnsResponse:
        """Drops columns, through the log."""
        self._existing(request)
        version = self._changes.drop_columns(request.names, request["columns"])
        return interface.AlterTableDropColumnsResponse(version=version)

    # Tags and branches.

    @operation
    def list_table_tags(self, request: Asked) -> interface.ListTableTagsResponse:
        """Returns a table's tags, without those of consumers."""
        tags = {name: TagContents(**each) for name, each in self._tags(request).items()}
        return interface.ListTableTagsResponse(tags=tags)

    @operation
    def get_table_tag_version(self, request: Asked) -> interface.GetTableTagVersionResponse:
        """Returns the version that a tag names."""
        name = request["tag"]
        named = self._tags(request).get(name)
        if named is None:
            raise TableTagNotFoundError(f"there is no tag {name!r}")
        return interface.GetTableTagVersionResponse(version=named["version"], branch=named["branch"])

    @operation
    def create_table_tag(self, request: Asked) -> interface.CreateTableTagResponse:
        """Gives a version a name, through the log."""
        self._tag(request)
        return interface.CreateTableTagResponse()

    @operation
    def update_table_tag(self, request: Asked) -> interface.UpdateTableTagResponse:
        """Moves a tag to another version, through the log."""
        self._tag(request, move=True)
        return interface.UpdateTableTagResponse()

    @operation
    def delete_table_tag(self, request: Asked) -> interface.DeleteTableTagResponse:
        """Removes a tag, through the log."""
        tag(self._existing(request), request["tag"], delete=True, **self._options)
        return interface.DeleteTableTagResponse()

    @operation
    def list_table_branches(self, request: Asked) -> interface.ListTableBranchesResponse:
        """Returns a table's branches."""
        branches = {
            name: BranchContents(
                parent_branch=each.parent or None,
                parent_version=each.parent_version,
                create_at=each.created_s,
                manifest_size=each.manifest_size,
            )
            for name, each in self._refs(request).branches().items()
        }
        return interface.ListTableBranchesResponse(branches=branches)

    @operation
    def create_table_branch(self, request: Asked) -> interface.CreateTableBranchResponse:
        """Begins a branch, through the log."""
        uri = root_of(self._existing(request), request.get("from_branch") or "")
        begin_branch(uri, request["name"], version=request.get("from_version"), **self._options)
        return interface.CreateTableBranchResponse()

    @operation
    def delete_table_branch(self, request: Asked) -> interface.DeleteTableBranchResponse:
        """Deletes a branch with its files, through the log."""
        begin_branch(self._existing(request), request["name"], delete=True, **self._options)
        return interface.DeleteTableBranchResponse()

    # What the operations share.

    @property
    def _options(self) -> BrokerOptions:
        """The options of functions that send a proposal."""
        settings = self._settings
        return {
            "bootstrap_servers": settings.bootstrap_servers,
            "kafka": settings.kafka,
            "transactions_topic": settings.transactions_topic,
            "outcomes_topic": settings.outcomes_topic,
            "storage_options": settings.storage_options,
        }

    def _existing(self, request: Asked) -> str:
        """Returns the table or branch that a request names, which exists."""
        self._folders.newest(self._names.table(request.names), request.branch)
        return self._root(request)

    def _root(self, request: Asked) -> str:
        """Returns where the table or branch is that a request names, whether it exists or not."""
        return root_of(self._names.table(request.names), request.branch)

    def _refs(self, request: Asked) -> Refs:
        self._existing(request)
        return Refs(self._folders.store(self._names.table(request.names)))

    def _tags(self, request: Asked) -> Mapping[str, dict[str, Any]]:
        return {
            name: {
                "version": each.version,
                "branch": each.branch or None,
                "manifest_size": each.manifest_size,
            }
            for name, each in self._refs(request).tags().items()
        }

    def _tag(self, request: Asked, *, move: bool = False) -> None:
        uri, branch = self._names.table(request.names), request.branch
        chosen = {"version": request["version"], **({"branch": branch} if branch else {})}
        self._existing(request)
        tag(uri, request["tag"], move=move, **chosen, **self._options)


def _number(token: object) -> int:
    """Returns the version at which a page begins. Raises `InvalidError`."""
    if not str(token).isdecimal():
        raise InvalidError(f"{str(token)[:100]!r} is no page token", hint="give the one of the last answer")
    return int(str(token))


def _location(uri: str) -> str:
    """Returns a table's URI as pylance opens it: the path of a local one."""
    return str(local_path(uri)) if parse_location(uri).scheme == FILE else uri


def _version(source: Source, number: int, *, with_time: bool = False) -> interface.TableVersion:
    """Returns a version as clients read it: its manifest is named by the path in its store."""
    path = source.versions.path(number)
    stored_us = source.storage.stored_at(path) if with_time else None
    return DatedVersion(
        version=number,
        manifest_path=f"{parse_location(source.uri).path}/{path}",
        manifest_size=source.storage.size(path),
        timestamp_millis=None if stored_us is None else stored_us // 1000,
        timestamp=None if stored_us is None else iso(nearest_time(stored_us)),
        metadata={},
    )
