"""The format of the demo's table: what its files are, and which other client reads it to compare the rows.

That client checks Lakefold's reader, so its functions don't use it: this module may import pylance and
delta-rs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DemoFormat:
    """A format. `suffix`: of the folders of tables. `files`: what Spark writes.

    `client`: the other client; `module`: its module, and `package` the package that contains it. `read`
    returns all rows of the newest version by it. `count`: the expression by which a user counts the rows,
    with the table's path in place of `{}`.
    """

    suffix: str
    files: str
    client: str
    module: str
    package: str
    read: Callable[[Path], pa.Table]
    count: str


def _read_with_pylance(table: Path) -> pa.Table:
    import lance

    dataset = lance.dataset(str(table))
    dataset.validate()
    return dataset.to_table()


def _read_with_delta_rs(table: Path) -> pa.Table:
    import pyarrow as pa
    from deltalake import DeltaTable

    newest = DeltaTable(str(table))
    return newest.to_pyarrow_table().cast(pa.schema(newest.schema().to_arrow()))


FORMATS: Final = {
    "lance": DemoFormat(
        suffix=".lance",  # LanceDB opens only folders with this suffix.
        files="Lance files (fragments)",
        client="pylance",
        module="lance",
        package="pylance",
        read=_read_with_pylance,
        count="lance.dataset({}).count_rows()",
    ),
    "delta": DemoFormat(
        suffix="",
        files="Parquet files",
        client="delta-rs",
        module="deltalake",
        package="deltalake",
        read=_read_with_delta_rs,
        count="deltalake.DeltaTable({}).to_pyarrow_dataset().count_rows()",
    ),
}
"""By the names that `--format` takes."""
