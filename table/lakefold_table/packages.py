"""Packages that an installation may lack, and the extra that installs each of them.

A plain installation has neither Kafka's client nor pylance nor Spark, because e.g. a reader of Delta tables
needs none of them. `explained_imports` has the error of an import say what to install.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTALLED_BY: Final = {
    "confluent_kafka": "pip install 'lakefold[kafka]'",
    "opentelemetry": "pip install 'lakefold[kafka]', or 'lakefold[otel]' to export traces",
    "prometheus_client": "pip install 'lakefold[committer]'",
    "pyspark": "pip install 'lakefold[ingest]'",
    "pandas": "pip install 'lakefold[ingest]'",
    "lance_namespace": "pip install 'lakefold[catalog]'",
    "waitress": "pip install 'lakefold[catalog]'",
    "lance": "pip install 'lakefold[lance]' (the committer's image leaves pylance out)",
    "duckdb": "only the demo needs it: run `make demo` in a clone of the repository",
}


class MissingPackageError(LakefoldError):
    """A package that this installation of Lakefold lacks is needed. The hint names the extra that has it.

    It is no `InvalidError`: who answers a wrong request and goes on must not answer this one.
    """

    exit_code = 2

    def __init__(self, package: str) -> None:
        """`package` is the name by which it is imported, e.g. `lance`."""
        super().__init__(f"{package} is not installed", hint=_INSTALLED_BY[package])
        self.package = package


@contextmanager
def explained_imports() -> Iterator[None]:
    """Has imports of its block raise `MissingPackageError` if a package of an extra is not installed.

    Other `ModuleNotFoundError`s are raised as they are: they are faults of an installation or of Lakefold.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _INSTALLED_BY:
            raise
        raise MissingPackageError(package) from error
