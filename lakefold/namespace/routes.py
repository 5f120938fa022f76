"""The routes of the Lance Namespace over HTTP, as data: which operation a method and a path mean.

`{id}` is an id whose names are joined by `$`; `$` alone is the root. A route without a request's name has
none beside the parameters of its path and query. Operations that the catalog doesn't have are listed too:
they are answered by their names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


_READS: Final = ("list_", "describe_", "get_", "count_", "query_", "explain_", "analyze_", "table_exists")
"""How the names of operations begin that only read."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path. `operation`: the method of the namespace. `request`: the name of its model.

    `sends_rows`: the body is a stream of Arrow, and the request is in the query. `parameters`: what of the
    query belongs to the request.
    """

    method: str
    path: str
    operation: str
    request: str
    parameters: tuple[str, ...] = ()
    sends_rows: bool = False

    @property
    def waits(self) -> bool:
        """Whether an answer may wait for the log."""
        return not self.operation.startswith(_READS)

    def matched(self, path: str) -> Mapping[str, str] | None:
        """Returns the parameters in a path, None if it is another route's."""
        match = _pattern(self.path).fullmatch(path)
        return None if match is None else match.groupdict()


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "/?")


def _table(path: str, operation: str, request: str, *parameters: str) -> Route:
    return Route("POST", f"/v1/table/{{id}}/{path}", operation, request, parameters)


def _rows(path: str, operation: str, request: str, *parameters: str) -> Route:
    return Route("POST", f"/v1/table/{{id}}/{path}", operation, request, parameters, sends_rows=True)


_PAGE: Final = ("page_token", "limit")
_MERGE: Final = (
    "on",
    "when_matched_update_all",
    "when_matched_update_all_filt",
    "when_not_matched_insert_all",
    "when_not_matched_by_source_delete",
    "when_not_matched_by_source_delete_filt",
    "timeout",
    "use_index",
)

ROUTES: Final = (
    Route("POST", "/v1/namespace/{id}/create", "create_namespace", "CreateNamespaceRequest"),
    Route("POST", "/v1/namespace/{id}/describe", "describe_namespace", "DescribeNamespaceRequest"),
    Route("POST", "/v1/namespace/{id}/drop", "drop_namespace", "DropNamespaceRequest"),
    Route("POST", "/v1/namespace/{id}/exists", "namespace_exists", "NamespaceExistsRequest"),
    Route("GET", "/v1/namespace/{id}/list", "list_namespaces", "ListNamespacesRequest", _PAGE),
    Route("GET", "/v1/namespace/{id}/table/list", "list_tables", "ListTablesRequest", _PAGE),
    Route("GET", "/v1/table", "list_all_tables", "ListTablesRequest", _PAGE),
    Route("POST", "/v1/table/batch-commit", "batch_commit_tables", "BatchCommitTablesRequest"),
    Route(
        "POST",
        "/v1/table/version/batch-create",
        "batch_create_table_versions",
        "BatchCreateTableVersionsRequest",
    ),
    _table("describe", "describe_table", "DescribeTableRequest", "with_table_uri", "load_detailed_metadata"),
    _table("exists", "table_exists", "TableExistsRequest"),
    _table("declare", "declare_table", "DeclareTableRequest"),
    _table("register", "register_table", "RegisterTableRequest"),
    _table("deregister", "deregister_table", "DeregisterTableRequest"),
    _table("drop", "drop_table", "DropTableRequest"),
    _table("rename", "rename_table", "RenameTableRequest"),
    _table("restore", "restore_table", "RestoreTableRequest"),
    _table("stats", "get_table_stats", "GetTableStatsRequest"),
    _table("version/list", "list_table_versions", "ListTableVersionsRequest", *_PAGE, "descending", "branch"),
    _table("version/describe", "describe_table_version", "DescribeTableVersionRequest"),
    _table("version/create", "create_table_version", "CreateTableVersionRequest"),
    _table("version/delete", "batch_delete_table_versions", "BatchDeleteTableVersionsRequest"),
    _table("tags/list", "list_table_tags", "ListTableTagsRequest", *_PAGE),
    _table("tags/version", "get_table_tag_version", "GetTableTagVersionRequest"),
    _table("tags/create", "create_table_tag", "CreateTableTagRequest"),
    _table("tags/update", "update_table_tag", "UpdateTableTagRequest"),
    _table("tags/delete", "delete_table_tag", "DeleteTableTagRequest"),
    _table("branches/list", "list_table_branches", "ListTableBranchesRequest", *_PAGE),
    _table("branches/create", "create_table_branch", "CreateTableBranchRequest"),
    _table("branches/delete", "delete_table_branch", "DeleteTableBranchRequest"),
    _table("count_rows", "count_table_rows", "CountTableRowsRequest"),
    _table("query", "query_table", ""),
    _table("explain_plan", "explain_table_query_plan", ""),
    _table("analyze_plan", "analyze_table_query_plan", "AnalyzeTableQueryPlanRequest"),
    _table("update", "update_table", "UpdateTableRequest"),
    _table("delete", "delete_from_table", "DeleteFromTableRequest"),
    _table("add_columns", "alter_table_add_columns", ""),
    _table("alter_columns", "alter_table_alter_columns", ""),
    _table("drop_columns", "alter_table_drop_columns", "AlterTableDropColumnsRequest"),
    _table("backfill_column", "alter_table_backfill_columns", "AlterTableBackfillColumnsRequest"),
    _table("update_field_metadata", "update_field_metadata", "UpdateFieldMetadataRequest"),
    _table("schema_metadata/update", "update_table_schema_metadata", "UpdateTableSchemaMetadataRequest"),
    _table("create_index", "create_table_index", ""),
    _table("create_scalar_index", "create_table_scalar_index", ""),
    _table("index/list", "list_table_indices", "ListTableIndicesRequest"),
    _table("index/{index_name}/stats", "describe_table_index_stats", "DescribeTableIndexStatsRequest"),
    _table("index/{index_name}/drop", "drop_table_index", "DropTableIndexRequest"),
    _rows("create", "create_table", "CreateTableRequest", "mode"),
    _rows("insert", "insert_into_table", "InsertIntoTableRequest", "mode"),
    _rows("merge_insert", "merge_insert_into_table", "MergeInsertIntoTableRequest", *_MERGE),
    Route("POST", "/v1/materialized_view/{id}/create", "create_materialized_view", ""),
    Route("POST", "/v1/materialized_view/{id}/refresh", "refresh_materialized_view", ""),
    Route("POST", "/v1/transaction/{id}/describe", "describe_transaction", "DescribeTransactionRequest"),
    Route("POST", "/v1/transaction/{id}/alter", "alter_transaction", "AlterTransactionRequest"),
)
"""Every route of the interface."""


def route_of(method: str, path: str) -> tuple[Route, Mapping[str, str]] | None:
    """Returns the route of a request and the parameters in its path, None if there is none."""
    for route in ROUTES:
        parameters = route.matched(path) if route.method == method else None
        if parameters is not None:
            return route, parameters
    return None
