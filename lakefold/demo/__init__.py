"""The demo: runs all parts of Lakefold on real events, on a single machine.

A Kafka broker, a Spark streaming query (`query`), the committer, which is killed once, the web page, and
eight services that append to a second table all at once (`services`) run as in production, each in its own
process. `run` starts and watches them, sends the events (`dataset`), follows the table (`follower`), and
checks at the end that the table contains exactly the rows that were sent (`verification`). `screen` shows the
progress.
"""

from __future__ import annotations

from typing import Final

DEPARTURES: Final = 336_776
"""The number of departures from New York's airports in 2013 in the data set."""
