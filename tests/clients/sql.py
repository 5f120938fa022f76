"""Clients that are spoken to in SQL: duckdb with its extension, and Spark with Lance's own connector.

They run in their own environments: nothing of Lakefold can be imported here. Both find tables as `NAME.lance`
in a folder. A handle is a connection of duckdb, or the session of Spark.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

TEXT_INDEX = (
    "base_tokenizer='simple', language='English', max_token_length=40, lower_case=true, stem=false, "
    "remove_stop_words=false, ascii_folding=false, with_position=false"
)
"""lance-spark wants every option of a full-text index to be given."""


class SQL:
    """What both share. `name`: the table in a statement. `vector`: four times a number, as a vector."""

    name: str
    vector: str

    def open(self) -> Any:
        raise NotImplementedError

    def number(self, table: Any) -> int:
        """Neither says which version it is at."""
        del table
        return 0

    def run(self, table: Any, statement: str) -> list[list[Any]]:
        raise NotImplementedError

    def read(self, table: Any) -> list[list[Any]]:
        return self.run(table, f"SELECT id, text FROM {self.name}")

    def append(self, table: Any, ids: list[int], text: str) -> None:
        self.run(table, f"INSERT INTO {self.name} {self._rows(ids, text)}")

    def delete(self, table: Any, ids: list[int]) -> None:
        self.run(table, f"DELETE FROM {self.name} WHERE id IN ({', '.join(map(str, ids))})")

    def merge(self, table: Any, ids: list[int], text: str) -> None:
        self.run(
            table,
            f"MERGE INTO {self.name} AS old USING ({self._rows(ids, text)}) AS new ON old.id = new.id"
            " WHEN MATCHED THEN UPDATE SET text = new.text, vec = new.vec"
            " WHEN NOT MATCHED THEN INSERT (id, text, vec) VALUES (new.id, new.text, new.vec)",
        )

    def restore(self, table: Any, version: int) -> None:
        del table, version
        message = "it has no statement for it"
        raise NotImplementedError(message)

    def _rows(self, ids: list[int], text: str) -> str:
        rows = (
            f"SELECT CAST({number} AS BIGINT) AS id, '{text}' AS text, {self.vector.format(number)} AS vec"
            for number in ids
        )
        return " UNION ALL ".join(rows)


class DuckDB(SQL):
    """duckdb's extension `lance`, from a package that carries it; duckdb checks its signature.

    A connection goes on reading the version of a table that it met first, so each handle is a connection.
    """

    name = "folder.main.t"
    vector = "[{0}, {0}, {0}, {0}]::FLOAT[4]"

    def __init__(self, uri: str) -> None:
        import duckdb
        import duckdb_extension_lance

        package = Path(duckdb_extension_lance.__file__).parent
        self.connection: Any = duckdb.connect()
        self.connection.load_extension(str(next(package.rglob("lance.duckdb_extension"))))
        self.connection.execute(f"ATTACH '{Path(uri).parent}' AS folder (TYPE LANCE)")
        self.uri = uri
        self.version: str = duckdb.__version__

    def open(self) -> Any:
        table = self.connection.cursor()
        self.run(table, f"SELECT count(*) FROM {self.name}")
        return table

    def run(self, table: Any, statement: str) -> list[list[Any]]:
        return [list(row) for row in table.execute(statement).fetchall()]

    def read_version(self, table: Any, version: int) -> list[list[Any]]:
        return self.run(table, f"SELECT id, text FROM {self.name} AT (VERSION => {version})")

    def scalar_index(self, table: Any) -> None:
        self.run(table, f"CREATE INDEX by_id ON '{self.uri}' (id) USING BTREE")

    def vector_index(self, table: Any) -> None:
        self.run(
            table,
            f"CREATE INDEX by_vec ON '{self.uri}' (vec) USING IVF_FLAT"
            " WITH (num_partitions = 1, metric_type = 'l2')",
        )

    def text_index(self, table: Any) -> None:
        self.run(table, f"CREATE INDEX by_text ON '{self.uri}' (text) USING INVERTED")

    def optimize(self, table: Any) -> None:
        self.run(table, f"OPTIMIZE '{self.uri}' WITH (target_rows_per_fragment = 1000000)")

    def cleanup(self, table: Any) -> None:
        self.run(table, f"VACUUM LANCE '{self.uri}' WITH (older_than_seconds = 0)")


class LanceSpark(SQL):
    """Spark with lance-spark, whose jars are named by the variable `CLIENT_JARS`."""

    name = "lance.t"
    vector = "array(float({0}), float({0}), float({0}), float({0}))"

    def __init__(self, uri: str) -> None:
        from pyspark.sql import SparkSession

        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraClassPath": os.environ["CLIENT_JARS"],
            "spark.sql.catalog.lance": "org.lance.spark.LanceNamespaceSparkCatalog",
            "spark.sql.catalog.lance.impl": "dir",
            "spark.sql.catalog.lance.root": str(Path(uri).parent),
            "spark.sql.extensions": "org.lance.spark.extensions.LanceSparkSessionExtensions",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(Path(uri).parent / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master("local[1]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.session: Any = builder.getOrCreate()
        self.version: str = self.session.version

    def open(self) -> Any:
        return self.session

    def run(self, table: Any, statement: str) -> list[list[Any]]:
        return [list(row) for row in table.sql(statement).collect()]

    def read_version(self, table: Any, version: int) -> list[list[Any]]:
        return self.run(table, f"SELECT id, text FROM {self.name} VERSION AS OF {version}")

    def scalar_index(self, table: Any) -> None:
        self.run(table, f"ALTER TABLE {self.name} CREATE INDEX by_id USING btree (id)")

    def vector_index(self, table: Any) -> None:
        self.run(table, f"ALTER TABLE {self.name} CREATE INDEX by_vec USING ivf_flat (vec)")

    def text_index(self, table: Any) -> None:
        self.run(table, f"ALTER TABLE {self.name} CREATE INDEX by_text USING fts (text) WITH ({TEXT_INDEX})")

    def optimize(self, table: Any) -> None:
        self.run(table, f"OPTIMIZE {self.name}")

    def cleanup(self, table: Any) -> None:
        self.run(table, f"VACUUM {self.name} WITH (before_timestamp_millis = {time.time_ns() // 1_000_000})")
