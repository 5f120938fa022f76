"""Fills a table with old rows at a limited rate, beside a live stream, and continues where it stopped.

Run `lakefold up` and `lakefold committer` in this folder first. Usage: python backfill.py [ROWS_PER_SECOND]
"""

import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet

import lakefold

TABLE = "temperatures.lance"
OLD = Path("temperatures-of-last-year")
DAYS, ROWS_OF_A_DAY = 10, 5_000


def write_old_files() -> None:
    """Writes what another system would have left: a Parquet file for each day."""
    OLD.mkdir(exist_ok=True)
    for day in range(DAYS):
        rows = pa.table({"day": [day] * ROWS_OF_A_DAY, "celsius": [20.0 + day] * ROWS_OF_A_DAY})
        pyarrow.parquet.write_table(rows, OLD / f"day-{day:03}.parquet")


def backfill(rows_per_second: float) -> None:
    """Appends the files in order. What is in the table from an earlier run is not added twice."""
    started, sent = time.monotonic(), 0
    for number, file in enumerate(sorted(OLD.glob("*.parquet"))):
        rows = pyarrow.parquet.read_table(file)
        # The key of the batch is its number: a file that is in the table already is a duplicate.
        outcome = lakefold.append(TABLE, rows, app_id="backfill", batch_id=number)
        print(f"{file.name}: {outcome.kind}, version {outcome.version}")
        sent += rows.num_rows
        time.sleep(max(0.0, started + sent / rows_per_second - time.monotonic()))


def live(stop: threading.Event) -> int:
    """Appends today's rows all the time; returns how many."""
    count = 0
    with lakefold.Writer(TABLE, max_delay=0.1) as writer:
        while not stop.wait(0.01):
            writer.append(pa.table({"day": [DAYS], "celsius": [21.5]}))
            count += 1
    return count


def main(rows_per_second: float) -> None:
    write_old_files()
    stop, counts = threading.Event(), []
    stream = threading.Thread(target=lambda: counts.append(live(stop)))
    stream.start()
    backfill(rows_per_second)
    stop.set()
    stream.join()
    days = lakefold.open(TABLE).to_arrow(columns=["day"])["day"]
    old = pc.sum(pc.less(days, DAYS)).as_py()
    print(f"{old} old rows, {len(days) - old} live ones")
    assert old == DAYS * ROWS_OF_A_DAY
    assert len(days) - old >= counts[0]


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
