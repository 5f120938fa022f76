"""By this module Spark knows `format("lakefold")` without `lakefold.spark.register`.

When a session first needs a Python source, Spark imports each installed module whose name begins with
`pyspark_`, and takes the class `DefaultSource` of it. That happens in sessions that use no table of Lakefold
as well, so Lakefold is imported with the first table only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from lakefold.spark_format import ScanFormat


class DefaultSource(DataSource):
    """What Spark makes an `ScanFormat` of."""

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`."""
        return "lakefold"

    def __new__(cls, options: dict[str, str]) -> ScanFormat:  # type: ignore[misc] # Spark needs a class, and takes any source that it makes
        """Returns the source of a table."""
        from lakefold.spark_format import ScanFormat

        return ScanFormat(options)
