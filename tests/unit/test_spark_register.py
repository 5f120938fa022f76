"""`register` works in each version of Spark, also if Spark has found the format by itself."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from lakefold.spark import register
from lakefold.spark_format import LakefoldFormat
from lakefold_ingest.spark import data_source
from lakefold_table.errors import InvalidError


class _RefusedError(AnalysisException):
    """An error of the JVM's, as pyspark 4.0 raises it."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self._condition = condition

    def getCondition(self) -> str:  # noqa: N802 - Spark's name
        """Returns what Spark calls the error."""
        return self._condition


def test_a_session_that_keeps_the_format_it_found_is_taken_as_it_is() -> None:
    session = MagicMock()
    session.dataSource.register.side_effect = _RefusedError("DATA_SOURCE_ALREADY_EXISTS")
    register(session)
    session.dataSource.register.assert_called_once_with(LakefoldFormat)


def test_other_refusals_are_raised() -> None:
    session = MagicMock()
    session.dataSource.register.side_effect = _RefusedError("UNSUPPORTED_FEATURE")
    with pytest.raises(AnalysisException, match="UNSUPPORTED"):
        register(session)


def test_a_stream_of_spark_4_0_is_refused_with_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_source, "DataSourceStreamArrowWriter", None)
    with pytest.raises(InvalidError, match=r"Spark before 4\.1 can't stream .* foreachBatch with lakefold"):
        LakefoldFormat({"path": "memory://t"}).streamWriter(StructType(), overwrite=False)


def test_the_continuous_trigger_is_refused_at_its_first_epoch() -> None:
    """Spark gives the tasks no rows then, and the driver no results of them."""
    with pytest.raises(InvalidError, match=r"trigger\(continuous=…\): Spark gives a Python"):
        data_source.StreamWriter(MagicMock(), None).commit([None, None], 0)
