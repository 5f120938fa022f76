"""The demo: the whole way on real events, with nothing pretended, on one machine.

Every part runs as in production, each in a process of its own: a Kafka broker, a Spark streaming query
(`query`), the committer, which is killed on the way, and a reader that follows the table (`follower`).
`run` starts them, watches them and proves at the end that the table holds exactly the rows that were sent
(`proof`). What is shown meanwhile is a `screen`'s business.
"""

from __future__ import annotations

from typing import Final

DEPARTURES: Final = 336_776
"""How many departures from New York's airports in 2013 the data set has."""
