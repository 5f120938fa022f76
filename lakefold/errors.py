"""Errors of the command line and of `lakefold.spark`: this machine or its settings are not suitable."""

from __future__ import annotations

from typing import Final

from lakefold_table.errors import InvalidError

INSTALLED_BY: Final = {
    "confluent_kafka": "pip install 'lakefold[kafka]'",
    "prometheus_client": "pip install 'lakefold[committer]'",
    "pyspark": "pip install 'lakefold[ingest]'",
    "lance": "the committer's image leaves pylance out: run this verb where lakefold is installed by pip",
    "duckdb": "only the demo needs it: run `make demo` in a clone of the repository",
}
"""The libraries that an installation may lack, and what to do then."""


class SetupError(InvalidError):
    """The machine lacks something that is needed (Java, a library, a port), or has an unsuitable version."""

    exit_code = 2


class SettingError(InvalidError):
    """A setting is wrong or missing.

    The message names it; `where` is the flag, variable or file it comes from.
    """

    exit_code = 2


class MissingPackageError(SetupError):
    """A package that this installation of Lakefold lacks is needed."""


def missing_package(error: ModuleNotFoundError) -> MissingPackageError | None:
    """Returns which package has to be installed, None if the error is a fault in Lakefold."""
    if error.name not in INSTALLED_BY:
        return None
    return MissingPackageError(f"{error.name} is not installed", hint=INSTALLED_BY[error.name])
