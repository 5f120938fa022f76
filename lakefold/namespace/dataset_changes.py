"""Changes that a catalog has pylance make, as a client of this catalog: first rows, columns, indices.

pylance builds the index or the columns and commits them through the namespace that it is given, so each is a
proposal in the log as any client's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from lance_namespace.errors import TableIndexNotFoundError

from lakefold_reader.pylance.errors import translated_errors
from lakefold_reader.pylance.process import check_process
from lakefold_table.errors import InvalidError
from lakefold_table.packages import explained_imports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_namespace import LanceNamespace

    from lakefold.namespace.requests import Asked

_SCALAR: Final = {
    "BTREE": "BTREE",
    "BITMAP": "BITMAP",
    "LABEL_LIST": "LABEL_LIST",
    "NGRAM": "NGRAM",
    "FTS": "INVERTED",
    "INVERTED": "INVERTED",
}
"""Indices of values and words, by the interface's names, with pylance's."""
_WORDS: Final = (
    "base_tokenizer",
    "language",
    "with_position",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "ascii_folding",
)
_VECTORS: Final = ("num_partitions", "num_sub_vectors", "num_bits")


class DatasetChanges:
    """Creates tables, and changes columns and indices, of a namespace. For any number of threads."""

    def __init__(self, namespace: LanceNamespace, options: Mapping[str, str]) -> None:
        self._namespace = namespace
        self._options = dict(options)

    def create(self, names: Sequence[str], rows: pa.Table) -> int:
        """Creates a table with rows, by one version. Returns it. Raises `InvalidError` if it exists."""
        with translated_errors("/".join(names)):
            options = self._options or None
            dataset = _lance().write_dataset(
                rows, namespace_client=self._namespace, table_id=list(names), storage_options=options
            )
        return int(dataset.version)

    def create_index(self, names: Sequence[str], given: Asked) -> None:
        """Builds an index of a column. Raises `InvalidError` for a type that is unknown or doesn't fit it."""
        column, kind = given["column"], str(given["index_type"]).upper()
        dataset = self._dataset(names)
        more = {"name": given["name"]} if given.get("name") else {}
        with translated_errors(str(dataset.uri)):
            if kind in _SCALAR:
                words = {name: given[name] for name in _WORDS if given.get(name) is not None}
                more |= words if _SCALAR[kind] == "INVERTED" else {}
                dataset.create_scalar_index(column, _SCALAR[kind], replace=given.get("replace", True), **more)
            elif kind.startswith("IVF_"):
                chosen = _sizes(dataset, column) if kind.endswith("_PQ") else {}
                chosen |= {name: given[name] for name in _VECTORS if given.get(name) is not None}
                metric = given.get("distance_type") or given.get("metric_type") or "l2"
                dataset.create_index(column, kind, metric=metric, replace=True, **more, **chosen)
            else:
                raise InvalidError(
                    f"there is no index type {kind!r}", hint=f"e.g. {', '.join(_SCALAR)}, IVF_PQ"
                )

    def drop_index(self, names: Sequence[str], index: str) -> None:
        """Removes an index. Raises `TableIndexNotFoundError` if there is none of this name."""
        dataset = self._dataset(names)
        with translated_errors(str(dataset.uri)):
            if index not in {each.name for each in dataset.describe_indices()}:
                raise TableIndexNotFoundError(f"the table has no index {index!r}")
            dataset.drop_index(index)

    def add_columns(self, names: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> int:
        """Adds columns with the values of SQL expressions. Returns the version that has them."""
        dataset = self._dataset(names)
        with translated_errors(str(dataset.uri)):
            dataset.add_columns({each["name"]: each["expression"] for each in columns})
        return int(dataset.version)

    def alter_columns(self, names: Sequence[str], alterations: Sequence[Mapping[str, Any]]) -> int:
        """Renames columns, or has them take nulls. Returns the version that has it."""
        dataset = self._dataset(names)
        given = [{"path": each["path"], **_altered(each)} for each in alterations]
        with translated_errors(str(dataset.uri)):
            dataset.alter_columns(*given)
        return int(dataset.version)

    def drop_columns(self, names: Sequence[str], columns: Sequence[str]) -> int:
        """Drops columns. Returns the version without them."""
        dataset = self._dataset(names)
        with translated_errors(str(dataset.uri)):
            dataset.drop_columns(list(columns))
        return int(dataset.version)

    def _dataset(self, names: Sequence[str]) -> Any:  # noqa: ANN401 - pylance is published without types
        return _lance().dataset(
            namespace_client=self._namespace, table_id=list(names), storage_options=self._options or None
        )


def _lance() -> Any:  # noqa: ANN401 - pylance is published without types
    """Returns pylance. Raises `InvalidError` in a process that was forked after it was used."""
    check_process()
    with explained_imports():
        import lance

    return lance


def _sizes(dataset: Any, column: str) -> dict[str, int]:  # noqa: ANN401 - pylance is published without types
    """Returns how many partitions and parts of vectors an index has, as LanceDB chooses them."""
    kind = dataset.schema.field(column).type
    if not pa.types.is_fixed_size_list(kind):
        raise InvalidError(f"the column {column!r} has no vectors of one length", hint="e.g. float32[128]")
    size = kind.list_size
    parts = next((size // each for each in (16, 8) if size % each == 0), 1)
    return {"num_partitions": max(1, math.isqrt(dataset.count_rows())), "num_sub_vectors": parts}


def _altered(alteration: Mapping[str, Any]) -> dict[str, Any]:
    unknown = alteration.keys() - {"path", "rename", "nullable"}
    if unknown:
        hint = "rename it, or let it take nulls; lakefold.alter makes types wider"
        raise InvalidError(f"{min(unknown)} of a column can't be changed here", hint=hint)
    renamed = {"name": alteration["rename"]} if alteration.get("rename") else {}
    return renamed | ({"nullable": True} if alteration.get("nullable") else {})
