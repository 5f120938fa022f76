"""Files that arrive in a folder become rows of a table, each file once, also if the query starts again.

Run `lakefold up` and `lakefold committer` in this folder first. Usage: python new_files.py
"""

import json
from pathlib import Path

from pyspark.sql import SparkSession

import lakefold
from lakefold.spark import register

TABLE, INBOX, ROWS = "measurements.lance", Path("inbox"), 100


def arrive(day: int) -> None:
    """Plays another system that writes files. A file gets its name once it is complete."""
    INBOX.mkdir(exist_ok=True)
    lines = [
        json.dumps({"day": day, "sensor": number, "celsius": 20 + number / 10}) for number in range(ROWS)
    ]
    part = INBOX / f".day-{day}.part"
    part.write_text("\n".join(lines))
    part.rename(INBOX / f"day-{day}.json")


def load_new_files(spark: SparkSession) -> None:
    """Adds the files that came since the last call; a schedule may call it, or a query runs all the time."""
    files = (
        spark.readStream.schema("day INT, sensor INT, celsius DOUBLE")
        .option("maxFilesPerTrigger", 2)
        .json(str(INBOX))
    )
    query = (
        files.writeStream.format("lakefold")
        .option("table", TABLE)
        .option("checkpointLocation", "measurements-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    spark = SparkSession.builder.master("local[2]").appName("new files").getOrCreate()
    register(spark)
    for day in range(3):
        arrive(day)
    load_new_files(spark)
    first = lakefold.open(TABLE).count_rows()
    arrive(3)
    load_new_files(spark)
    load_new_files(spark)
    rows = lakefold.open(TABLE).count_rows()
    print(f"{first} rows of three files, and {rows - first} of the fourth")
    assert (first, rows) == (3 * ROWS, 4 * ROWS)
    spark.stop()


if __name__ == "__main__":
    main()
