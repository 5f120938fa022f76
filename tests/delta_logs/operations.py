"""What delta-spark did to the tables whose logs are in `recorded/`, statement by statement.

`python -m tests.delta_logs.recording` has it do this again, and writes the logs anew. A statement is SQL, in
which `{}` is the table, `{path}` its folder and `{other}` a second table, or one of the constants here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STREAM: Final = "STREAM"
"""A streaming query appends what is new in the second table."""
CREATE: Final = "CREATE BY BUILDER "
"""Begins the creation of a table with the columns that follow (`DeltaSpark.create`)."""
CHECKPOINTED: Final = ("checkpoints", "v2 checkpoints")
"""The histories of which the checkpoints are recorded as well."""

_PEOPLE: Final = "id BIGINT, name STRING, p STRING"

HISTORIES: Final[dict[str, tuple[str, ...]]] = {
    "plain": (
        f"CREATE TABLE {{}} ({_PEOPLE}) USING delta PARTITIONED BY (p) COMMENT 'people'",
        "INSERT INTO {} VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, NULL, NULL)",
        "INSERT INTO {} VALUES (4, 'd', 'a/b c'), (5, 'e', 'ü=%'), (6, 'f', '')",
        "SET spark.databricks.delta.write.txnAppId = job",
        "SET spark.databricks.delta.write.txnVersion = 7",
        "INSERT INTO {} VALUES (7, 'g', 'x')",
        "RESET spark.databricks.delta.write.txnAppId",
        "RESET spark.databricks.delta.write.txnVersion",
        "DELETE FROM {} WHERE p = 'y'",
        "DELETE FROM {} WHERE id = 1",
        "UPDATE {} SET name = upper(name) WHERE p = 'x'",
        (
            "MERGE INTO {} t USING (SELECT * FROM VALUES (3L, 'm', NULL), (8L, 'n', 'x') AS s(id, name, p)) "
            "s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
        ),
        (
            "MERGE INTO {} t USING (SELECT 9L AS id, 'o' AS name, 'z' AS p) s ON t.id = s.id WHEN NOT "
            "MATCHED THEN INSERT *"
        ),
        "INSERT INTO {} REPLACE WHERE p = 'x' VALUES (10, 'q', 'x')",
        "SET spark.sql.sources.partitionOverwriteMode = dynamic",
        "INSERT OVERWRITE {} VALUES (11, 'r', 'x')",
        "RESET spark.sql.sources.partitionOverwriteMode",
        "INSERT INTO {} VALUES (12, 's', 'x')",
        "OPTIMIZE {}",
        "OPTIMIZE {} WHERE p = 'x'",
        "OPTIMIZE {} ZORDER BY (id)",
        "RESTORE TABLE {} TO VERSION AS OF 2",
        "INSERT OVERWRITE {} VALUES (13, 't', 'x')",
        "DELETE FROM {}",
        "VACUUM {} RETAIN 0 HOURS",
        "COMMENT ON TABLE {} IS 'persons'",
        f"CREATE OR REPLACE TABLE {{}} ({_PEOPLE}) USING delta PARTITIONED BY (p)",
        "INSERT INTO {} VALUES (14, 'u', 'x')",
        "REPLACE TABLE {} USING delta PARTITIONED BY (id) AS SELECT 1L AS id, 'v' AS word",
    ),
    "vectors": (
        (
            f"CREATE TABLE {{}} ({_PEOPLE}) USING delta PARTITIONED BY (p) TBLPROPERTIES "
            "('delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true')"
        ),
        "INSERT INTO {} SELECT id, 'n', IF(id < 20, 'x', 'y') FROM range(1, 40, 1, 1)",
        "INSERT INTO {} SELECT id, 'n', 'x' FROM range(40, 60, 1, 1)",
        "DELETE FROM {} WHERE id IN (1, 3)",
        "DELETE FROM {} WHERE id IN (2, 41)",
        "UPDATE {} SET name = 'u' WHERE id IN (5, 25)",
        (
            "MERGE INTO {} t USING (SELECT * FROM VALUES (6L, 'm', 'x'), (100L, 'm', 'x') AS s(id, name, p)) "
            "s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
        (
            "MERGE INTO {} t USING (SELECT 7L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE "
            "WHEN NOT MATCHED BY SOURCE AND t.id = 8 THEN UPDATE SET name = 'left'"
        ),
        "DELETE FROM {} WHERE id > 40 AND id < 60",
        "REORG TABLE {} APPLY (PURGE)",
        "INSERT INTO {} VALUES (200, 'z', 'y')",
        "OPTIMIZE {}",
        "RESTORE TABLE {} TO VERSION AS OF 4",
        "DELETE FROM {} WHERE p = 'y'",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')",
        "DELETE FROM {} WHERE id = 9",
        "DELETE FROM {} WHERE p = 'x' AND id IN (10, 42)",
    ),
    "columns": (
        (
            "CREATE TABLE {} (id BIGINT NOT NULL, name STRING, s STRUCT<a: INT, b: ARRAY<STRUCT<c: INT>>>, p "
            "DATE) "
            "USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        ),
        (
            "INSERT INTO {} VALUES (1, 'a', named_struct('a', 1, 'b', array(named_struct('c', 2))), DATE "
            "'2026-01-01')"
        ),
        "ALTER TABLE {} ADD COLUMNS (n INT COMMENT 'a number' AFTER id, m MAP<STRING, INT>)",
        "ALTER TABLE {} ADD COLUMNS (s.d INT, s.b.element.e STRING)",
        "INSERT INTO {} (id, n, p) VALUES (2, 3, NULL)",
        "ALTER TABLE {} RENAME COLUMN name TO `full name`",
        "ALTER TABLE {} RENAME COLUMN s.a TO z",
        "ALTER TABLE {} RENAME COLUMN p TO day",
        "ALTER TABLE {} ALTER COLUMN n COMMENT 'another number'",
        "ALTER TABLE {} ALTER COLUMN n FIRST",
        "ALTER TABLE {} ALTER COLUMN id DROP NOT NULL",
        "ALTER TABLE {} DROP COLUMN s.d",
        "ALTER TABLE {} DROP COLUMNS (m)",
        "INSERT INTO {} (id, n, day) VALUES (4, 5, DATE '2026-01-01')",
        "UPDATE {} SET `full name` = 'u' WHERE id = 1",
        "OPTIMIZE {}",
        "ALTER TABLE {} REPLACE COLUMNS (n INT, id BIGINT, day DATE)",
        "REPLACE TABLE {} USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name') AS SELECT 1L AS id",
    ),
    "mapped by id": (
        (
            "CREATE TABLE {} (id BIGINT, name STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' "
            "= 'id')"
        ),
        "INSERT INTO {} VALUES (1, 'a')",
        "ALTER TABLE {} ADD COLUMNS (y INT)",
        "ALTER TABLE {} RENAME COLUMN name TO word",
        "ALTER TABLE {} DROP COLUMN y",
        "INSERT INTO {} VALUES (2, 'b')",
    ),
    "features": (
        "CREATE TABLE {} (id BIGINT, name STRING) USING delta",
        "INSERT INTO {} VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE {} SET TBLPROPERTIES ('note' = '1', 'delta.checkpointInterval' = '100')",
        "ALTER TABLE {} UNSET TBLPROPERTIES ('note')",
        "ALTER TABLE {} ADD COLUMNS (y INT)",
        "ALTER TABLE {} ADD CONSTRAINT positive CHECK (id > 0)",
        "ALTER TABLE {} DROP CONSTRAINT positive",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {} RENAME COLUMN y TO z",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM {} WHERE id = 1",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "INSERT INTO {} VALUES (3, 'c', 4)",
        "UPDATE {} SET z = 5 WHERE id = 3",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "INSERT INTO {} VALUES (6, 'd', 7)",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.domainMetadata' = 'supported')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER TABLE {} ALTER COLUMN z SET DEFAULT 9",
        "INSERT INTO {} (id, name) VALUES (8, 'e')",
        "ALTER TABLE {} ADD COLUMNS (t TIMESTAMP_NTZ)",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
        "INSERT INTO {} (id, name) VALUES (9, 'f')",
        (
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'false', 'delta.isolationLevel' = "
            "'Serializable')"
        ),
        "ALTER TABLE {} DROP FEATURE vacuumProtocolCheck",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'false')",
    ),
    "change feed": (
        (
            "CREATE TABLE {} (id BIGINT, name STRING) USING delta TBLPROPERTIES "
            "('delta.enableChangeDataFeed' = 'true', 'delta.enableInCommitTimestamps' = 'true')"
        ),
        "INSERT INTO {} SELECT id, 'n' FROM range(0, 9, 1, 1)",
        "UPDATE {} SET name = 'u' WHERE id = 3",
        "DELETE FROM {} WHERE id = 4",
        (
            "MERGE INTO {} t USING (SELECT explode(array(5L, 100L)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET name = 'm' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, "
            "'i')"
        ),
        "DELETE FROM {}",
    ),
    "evolving": (
        "CREATE TABLE {} (id BIGINT) USING delta",
        "INSERT INTO {} VALUES (1)",
        "SET spark.databricks.delta.schema.autoMerge.enabled = true",
        (
            "MERGE INTO {} t USING (SELECT 1L AS id, 'a' AS name) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
        "INSERT INTO {} SELECT 2L AS id, 'b' AS name, 3 AS n",
        "RESET spark.databricks.delta.schema.autoMerge.enabled",
        "ALTER TABLE {} CHANGE COLUMN name name STRING COMMENT 'a word'",
        "REPLACE TABLE {} USING delta AS SELECT 'x' AS id",
    ),
    "widened": (
        "CREATE TABLE {} (id INT, f FLOAT) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "INSERT INTO {} VALUES (1, 1.5)",
        "ALTER TABLE {} ALTER COLUMN id TYPE BIGINT",
        "INSERT INTO {} VALUES (2, 2.5)",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'false')",
        "DELETE FROM {} WHERE id = 1",
    ),
    "widened later": (
        "CREATE TABLE {} (id INT) USING delta",
        "INSERT INTO {} VALUES (1)",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ALTER TABLE {} ALTER COLUMN id TYPE BIGINT",
    ),
    "clustered": (
        "CREATE TABLE {} (id BIGINT, name STRING) USING delta CLUSTER BY (id)",
        "INSERT INTO {} VALUES (1, 'a')",
        "INSERT INTO {} VALUES (2, 'b')",
        "OPTIMIZE {}",
        "ALTER TABLE {} CLUSTER BY (name)",
        "ALTER TABLE {} CLUSTER BY NONE",
    ),
    "clustered later": (
        "CREATE TABLE {} (id BIGINT) USING delta",
        "INSERT INTO {} VALUES (1)",
        "ALTER TABLE {} CLUSTER BY (id)",
    ),
    "generated": (
        f"{CREATE}id BIGINT, d BIGINT id * 2, e INT",
        "INSERT INTO {} (id, e) VALUES (1, 3)",
        "UPDATE {} SET id = 2",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER TABLE {} ALTER COLUMN e SET DEFAULT 3",
        "INSERT INTO {} (id) VALUES (4)",
        "ALTER TABLE {} ALTER COLUMN e DROP DEFAULT",
    ),
    "identity": (
        f"{CREATE}id BIGINT IDENTITY, name STRING",
        "INSERT INTO {} (name) VALUES ('a')",
        "ALTER TABLE {} ALTER COLUMN id SYNC IDENTITY",
    ),
    "streamed": (
        "CREATE TABLE {} (id BIGINT, name STRING) USING delta",
        "CREATE TABLE {other} (id BIGINT, name STRING) USING delta",
        "INSERT INTO {other} VALUES (1, 'a')",
        STREAM,
        "INSERT INTO {other} VALUES (2, 'b')",
        STREAM,
        "INSERT INTO {} VALUES (3, 'c')",
    ),
    "cloned": (
        "CREATE TABLE {other} (id BIGINT, name STRING) USING delta",
        "INSERT INTO {other} VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE {} SHALLOW CLONE {other}",
        "INSERT INTO {} VALUES (3, 'c')",
        "DELETE FROM {} WHERE id = 1",
    ),
    "converted": (
        "CREATE TABLE people USING parquet LOCATION '{path}' AS SELECT 1L AS id, 'a' AS name",
        "CONVERT TO DELTA parquet.`{path}`",
        "INSERT INTO {} VALUES (2, 'b')",
    ),
    "types": (
        (
            "CREATE TABLE {} (b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, f4 FLOAT, f8 DOUBLE, d DECIMAL(20, "
            "3), "
            "s STRING, x BINARY, day DATE, t TIMESTAMP, n TIMESTAMP_NTZ, c CHAR(3), v VARCHAR(5)) USING delta"
        ),
        (
            "INSERT INTO {} VALUES (true, 1, 2, 3, 1.5, double('NaN'), 1.234, repeat('é', 50), X'00ff', DATE "
            "'2026-01-01', "
            "TIMESTAMP '2026-01-01 01:02:03.456789Z', TIMESTAMP_NTZ '2026-01-01 01:02:03.456789', 'ab', "
            "'cd'), "
            "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
        ),
        "DELETE FROM {} WHERE b",
    ),
    "partitioned by types": (
        (
            "CREATE TABLE {} (id BIGINT, b BOOLEAN, i INT, d DECIMAL(5, 2), day DATE, t TIMESTAMP, f DOUBLE, "
            "x BINARY) "
            "USING delta PARTITIONED BY (b, i, d, day, t, f, x)"
        ),
        (
            "INSERT INTO {} VALUES (1, true, 1, 1.25, DATE '2026-01-01', TIMESTAMP '2026-01-01 "
            "01:02:03.456789Z', 1.5, X'41')"
        ),
        "INSERT INTO {} VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "DELETE FROM {} WHERE day = DATE '2026-01-01'",
    ),
    "variant": (
        "CREATE TABLE {} (id BIGINT, v VARIANT) USING delta",
        "INSERT INTO {} SELECT 1L, parse_json('[1]')",
    ),
    "iceberg": (
        (
            "CREATE TABLE {} (id BIGINT) USING delta TBLPROPERTIES "
            "('delta.columnMapping.mode' = 'name', 'delta.enableIcebergCompatV2' = 'true')"
        ),
        "INSERT INTO {} VALUES (1)",
    ),
    "checkpoints": (
        (
            "CREATE TABLE {} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
            "('delta.checkpointInterval' = '2')"
        ),
        "INSERT INTO {} VALUES (1, 'x')",
        "INSERT INTO {} VALUES (2, 'y')",
        "DELETE FROM {} WHERE id = 1",
        "INSERT INTO {} VALUES (3, 'x')",
        "SET spark.databricks.delta.checkpoint.partSize = 2",
        "INSERT INTO {} VALUES (4, 'x')",
        "INSERT INTO {} VALUES (5, 'x')",
        "RESET spark.databricks.delta.checkpoint.partSize",
        "INSERT INTO {} VALUES (6, 'x')",
    ),
    "v2 checkpoints": (
        (
            "CREATE TABLE {} (id BIGINT) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '2', "
            "'delta.checkpointPolicy' = 'v2', 'delta.enableRowTracking' = 'true')"
        ),
        "INSERT INTO {} VALUES (1)",
        "INSERT INTO {} VALUES (2)",
        "INSERT INTO {} VALUES (3)",
        "SET spark.databricks.delta.checkpointV2.topLevelFileFormat = parquet",
        "INSERT INTO {} VALUES (4)",
        "RESET spark.databricks.delta.checkpointV2.topLevelFileFormat",
        "DELETE FROM {} WHERE id = 2",
    ),
}


class Refusal(NamedTuple):
    """Why a committer does not make some versions. `message`: a part of what it says."""

    message: str
    reason: str


EMPTY: Final = Refusal("the proposal has no actions", "a version without actions would change nothing")
DROPPED: Final = Refusal("takes the feature vacuumProtocolCheck", "proposals that wait may rely on it")
IDENTITY: Final = Refusal("identityColumns", "two proposals would generate the same values")
VARIANT: Final = Refusal("variantType", "nothing here writes or reads such values")
ICEBERG: Final = Refusal("icebergCompatV2", "what it needs of files is not checked")
OUTSIDE: Final = Refusal("is not below the table's root", "another table may remove its file")

REFUSED: Final[dict[str, dict[int, Refusal]]] = {
    "plain": {17: EMPTY, 18: EMPTY},
    "features": {30: EMPTY, 31: EMPTY, 32: EMPTY, 33: DROPPED},
    "identity": dict.fromkeys(range(3), IDENTITY),
    "cloned": {0: OUTSIDE},
    "variant": dict.fromkeys(range(2), VARIANT),
    "iceberg": dict.fromkeys(range(2), ICEBERG),
}
"""The versions that a committer refuses to make."""
