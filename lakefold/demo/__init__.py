"""The demo: runs all parts of Lakefold on real events, on a single machine.

Every part runs as in production, in its own process: a Kafka broker, a Spark streaming query (`query`), the
committer, which is killed once, a reader that follows the table (`follower`), and eight services that append
to a second table all at once (`services`). `run` starts and watches them and checks at the end that the table
contains exactly the rows that were sent (`verification`). `screen` shows the progress.
"""

from __future__ import annotations

from typing import Final

DEPARTURES: Final = 336_776
"""The number of departures from New York's airports in 2013 in the data set."""
