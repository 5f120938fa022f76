"""A dashboard by duckdb over a table while rows stream into it.

Run `lakefold up` and `lakefold committer` in this folder first, and `pip install duckdb`.
Usage: python dashboard.py [REFRESHES]
"""

import sys
import threading

import duckdb
import pyarrow as pa

import lakefold

TABLE = "orders.lance"


def order(number: int) -> pa.Table:
    country = ("NL", "DE", "IN")[number % 3]
    return pa.Table.from_pylist([{"number": number, "country": country, "euros": number % 50 + 0.99}])


def sell(stop: threading.Event) -> None:
    """Appends an order every few milliseconds, as a shop does."""
    with lakefold.Writer(TABLE, max_delay=0.2) as writer:
        number = 1
        while not stop.wait(0.005):
            writer.append(order(number))
            number += 1


def show() -> int:
    """Prints the sales by country and returns the number of orders."""
    # All queries of a refresh read one version, so that their figures fit each other.
    table = lakefold.open(TABLE)
    orders = table.to_arrow(columns=["country", "euros"])
    print(f"version {table.version}: {orders.num_rows} orders")
    print(
        duckdb.sql(
            "SELECT country, count(*) AS orders, sum(euros) AS euros FROM orders GROUP BY 1 ORDER BY 1"
        )
    )
    return len(orders)


def main(refreshes: int) -> None:
    lakefold.append(TABLE, order(0))
    stop = threading.Event()
    shop = threading.Thread(target=sell, args=(stop,))
    shop.start()
    try:
        counts: list[int] = []
        # Waits for new versions without polling the table's rows.
        for _ in lakefold.tail(TABLE, start="latest", follow=True):
            counts.append(show())
            if len(counts) == refreshes:
                break
    finally:
        stop.set()
        shop.join()
    assert counts == sorted(counts)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
