"""Random histories of a Delta table by committers and delta-spark."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tests.delta_logs.comparing import check_same
from tests.delta_logs.histories import History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from tests.servers.delta_spark import DeltaSpark


class HistoryWithDeltaSpark(History):
    """The other client is delta-spark. There is a checkpoint at each version, by whoever made it."""

    most_interval = 1
    needs_newest_commit = True

    def __init__(self, path: Path, seed: int, judge: DeltaSpark) -> None:
        self.judge = judge
        super().__init__(path, seed)

    def their_steps(self) -> list[Callable[[], object]]:
        return [self.insert, self.delete, self.update, self.merge, self.overwrite, self.optimize, self.tag]

    def turns(self, *, drawn: bool) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
        """Steps of a committer, each with one of delta-spark after it: drawn ones, or all that there are.

        Not all without deletion vectors: there the changes of rows differ, which are the first ones.
        """
        if not drawn:
            each = zip([self.append, *reversed(self.our_steps())], self.their_steps(), strict=True)
            yield from islice(each, None if self.has_vectors else 4)
        for _ in range(12 if drawn else 0):
            yield self.random.choice(self.our_steps()), self.random.choice(self.their_steps())

    def operations(self) -> set[str]:
        """The operations by which versions of the table came to be."""
        history = self.judge.sql(f"DESCRIBE HISTORY delta.`{self.path}`")
        return {operation for _, _, _, _, operation, *_ in history}

    def sql(self, statement: str, **values: object) -> None:
        self.judge.sql(statement.format(t=f"delta.`{self.path}`", **values))

    def write(self, mode: str) -> None:
        """Writes new rows. This release of delta-spark has no INSERT with this release of Spark."""
        values = ", ".join(f"({x}L)" for x in self.new_rows())
        self.judge.write(f"SELECT * FROM VALUES {values} AS v(x)", self.table.path, mode=mode)  # noqa: S608 - ours

    def two_values(self) -> tuple[int, int]:
        """One of the values in the table, if it has some, and another one."""
        value = self.random.choice(sorted(+self.rows) or range(10))
        return value, self.random.choice([other for other in range(10) if other != value])

    def insert(self) -> None:
        self.write("append")

    def delete(self) -> None:
        value, _ = self.two_values()
        self.sql("DELETE FROM {t} WHERE x = {value}", value=value)
        self.rows[value] = 0

    def update(self) -> None:
        value, new = self.two_values()
        self.sql("UPDATE {t} SET x = {new} WHERE x = {value}", value=value, new=new)
        self.rows[new] += self.rows.pop(value, 0)

    def merge(self) -> None:
        """Rows with one value are removed, and one with another value is added, if there is none."""
        gone, new = self.two_values()
        statement = (
            "MERGE INTO {t} t USING (SELECT * FROM VALUES ({gone}L), ({new}L) AS s(x)) s ON t.x = s.x "
            "WHEN MATCHED AND t.x = {gone} THEN DELETE WHEN NOT MATCHED AND s.x = {new} THEN INSERT *"
        )
        self.sql(statement, gone=gone, new=new)
        self.rows[gone] = 0
        self.rows[new] = max(self.rows[new], 1)

    def overwrite(self) -> None:
        self.rows.clear()
        self.write("overwrite")

    def optimize(self) -> None:
        self.sql("OPTIMIZE {t}")

    def tag(self) -> None:
        self.sql("ALTER TABLE {t} SET TBLPROPERTIES ('note' = '{note}')", note=self.random.random())

    def their_rows(self) -> list[int]:
        return [x for (x,) in self.judge.rows(self.table.path)]

    def check_state(self, ours: DeltaSnapshot) -> None:
        check_same(ours, self.judge.state(self.table.path))
