"""Queries of a catalog's clients: filters, nearest vectors and full text, evaluated by pylance.

The only module of the catalog that opens a table by pylance.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from lance_namespace.errors import TableIndexNotFoundError

from lakefold_reader.pylance.errors import translated_errors
from lakefold_reader.pylance.process import check_process
from lakefold_table.errors import InvalidError
from lakefold_table.packages import explained_imports

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_OPEN: Final = 32
"""How many tables stay open, with what pylance has cached of them."""
_ALL: Final = 1 << 62
"""A number of rows that means all: LanceDB asks for the largest number that there is."""
_NEAREST: Final = {
    "k": "k",
    "nprobes": "nprobes",
    "minimum_nprobes": "minimum_nprobes",
    "maximum_nprobes": "maximum_nprobes",
    "refine_factor": "refine_factor",
    "ef": "ef",
}


class TableQueries:
    """Answers queries. For any number of threads."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._opened: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, uri: str, predicate: str | None, version: int | None) -> int:
        """Returns how many rows a predicate holds for. Raises `InvalidError` if it can't be evaluated."""
        with translated_errors(uri):
            return int(self._dataset(uri, version).count_rows(predicate))

    def query(self, uri: str, given: Mapping[str, Any]) -> bytes:
        """Returns the rows that a query finds, as a file of Arrow. `given`: the fields of the request."""
        with translated_errors(uri):
            dataset = self._dataset(uri, given.get("version"))
            table = dataset.scanner(**_scan(given, dataset.schema)).to_table()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    def explain(self, uri: str, given: Mapping[str, Any], *, verbose: bool) -> str:
        """Returns the plan of a query as text."""
        with translated_errors(uri):
            dataset = self._dataset(uri, given.get("version"))
            return str(dataset.scanner(**_scan(given, dataset.schema)).explain_plan(verbose))

    def analyze(self, uri: str, given: Mapping[str, Any]) -> str:
        """Runs a query; returns its plan with what each step has cost."""
        with translated_errors(uri):
            dataset = self._dataset(uri, given.get("version"))
            return str(dataset.scanner(**_scan(given, dataset.schema)).analyze_plan())

    def index_statistics(self, uri: str, index: str) -> dict[str, Any]:
        """Returns the statistics of an index. Raises `TableIndexNotFoundError` if there is none."""
        with translated_errors(uri):
            dataset = self._dataset(uri, None)
            if index not in {each.name for each in dataset.describe_indices()}:
                raise TableIndexNotFoundError(f"the table {uri} has no index {index!r}")
            stats = dataset.stats.index_stats(index)
        chosen = {name: stats.get(name) for name in ("index_type", "num_indices")}
        chosen |= {name: stats.get(name) for name in ("num_indexed_rows", "num_unindexed_rows")}
        metric = next((each["metric_type"] for each in stats["indices"] if "metric_type" in each), None)
        return {**chosen, "distance_type": metric}

    def indices(self, uri: str) -> list[dict[str, Any]]:
        """Returns a table's indices: the name, the columns and the type of each."""
        with translated_errors(uri):
            return [
                {"index_name": each.name, "columns": list(each.field_names), "index_type": each.index_type}
                for each in self._dataset(uri, None).describe_indices()
            ]

    def _dataset(self, uri: str, version: int | None) -> Any:  # noqa: ANN401 - pylance is published without types
        check_process()
        with explained_imports():
            import lance

        with self._lock:
            opened = self._opened.get(uri)
        if opened is None:
            opened = lance.dataset(uri, storage_options=self._options or None)
        elif opened.latest_version != opened.version:
            opened = opened.checkout_version(opened.latest_version)
        with self._lock:
            self._opened[uri] = opened
            self._opened.move_to_end(uri)
            while len(self._opened) > MOST_OPEN:
                self._opened.popitem(last=False)
        return opened if version is None else opened.checkout_version(version)


def _scan(given: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Returns the arguments of pylance's scanner that a query means."""
    limit = given.get("k")
    vector = _vector(given.get("vector"))
    text = given.get("full_text_query")
    scan: dict[str, Any] = {
        "columns": _columns(given.get("columns")),
        "filter": given.get("filter") or None,
        "offset": given.get("offset") or None,
        "prefilter": given.get("prefilter", True) if vector or text else None,
        "with_row_id": given.get("with_row_id") or None,
        "fast_search": given.get("fast_search") or None,
    }
    if text:
        scan["full_text_query"] = _full_text(text)
    if vector:
        scan["nearest"] = _nearest(given, vector, schema)
    elif limit is not None and limit < _ALL:
        scan["limit"] = limit
    return {name: value for name, value in scan.items() if value is not None}


def _vector(given: object) -> list[float] | list[list[float]]:
    if isinstance(given, dict):
        given = given.get("single_vector") or given.get("multi_vector")
    return given if isinstance(given, list) else []


def _nearest(given: Mapping[str, Any], vector: list[Any], schema: pa.Schema) -> dict[str, Any]:
    nearest = {ours: given[theirs] for theirs, ours in _NEAREST.items() if given.get(theirs) is not None}
    nearest |= {"q": vector, "column": given.get("vector_column") or _vector_column(schema)}
    if given.get("distance_type"):
        nearest["metric"] = given["distance_type"]
    if given.get("bypass_vector_index"):
        nearest["use_index"] = False
    bounds = given.get("lower_bound"), given.get("upper_bound")
    if bounds != (None, None):
        nearest["distance_range"] = bounds
    return nearest


def _vector_column(schema: pa.Schema) -> str:
    """Returns the only column of vectors. Raises `InvalidError` if there is none, or several."""
    names = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    if len(names) != 1:
        hint = "name it as vector_column"
        raise InvalidError(f"the table has the vector columns ({', '.join(names)})", hint=hint)
    return str(names[0])


def _columns(given: object) -> object:
    """Returns columns as pylance takes them: a list, or expressions by their names."""
    if isinstance(given, dict) and given.keys() <= {"column_names", "column_aliases"}:
        return given.get("column_names") or given.get("column_aliases")
    if isinstance(given, list) and given and isinstance(given[0], list):
        return dict(given)
    return given


def _full_text(given: Mapping[str, Any]) -> object:
    """Returns a full-text query as pylance takes it: the words, and the columns if some are chosen."""
    if "string_query" in given:
        given = given["string_query"] or {}
    if "structured_query" in given or not isinstance(given.get("query"), str):
        raise InvalidError("structured full-text queries are not built", hint="give the words as a text")
    columns = given.get("columns") or []
    return {"query": given["query"], "columns": columns} if columns else given["query"]
