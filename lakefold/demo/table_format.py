"""The format of the demo's table: what its files are, and which other client reads it to compare the rows.

That client checks Lakefold's reader, so its functions don't use it: this module may import pylance and
delta-rs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DemoFormat:
    """A format. `folder`: the table's, in the demo's folder; `services_folder`: that of the services' table.

    `files`: what Spark writes.

    `client`: the other client. `read`: returns all rows of the newest version by it. `modules`: what the demo
    imports for it, and the packages that contain it. `python`: what a user imports to count the rows of the
    table by it, and the expression, with the table's path in place of `{}`.
    """

    folder: str
    services_folder: str
    files: str
    client: str
    read: Callable[[Path], pa.Table]
    modules: Mapping[str, str]
    python: tuple[str, str]


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
    # LanceDB opens only folders with this suffix.
    "lance": DemoFormat(
        folder="flights.lance",
        services_folder="requests.lance",
        files="Lance files (fragments)",
        client="pylance",
        read=_read_with_pylance,
        modules={"lance": "pylance"},
        python=("lance", "lance.dataset({}).count_rows()"),
    ),
    "delta": DemoFormat(
        folder="flights",
        services_folder="requests",
        files="Parquet files",
        client="delta-rs",
        read=_read_with_delta_rs,
        modules={"deltalake": "deltalake"},
        python=("deltalake", "deltalake.DeltaTable({}).to_pyarrow_dataset().count_rows()"),
    ),
}
"""By the names that `--format` takes."""
