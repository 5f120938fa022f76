"""Runs in a client's own environment: does one step for each line of JSON on stdin, and answers with one.

Nothing of Lakefold can be imported here. A handle is opened under a name and kept, so that what is done with
it can be done from a version that is old by then. A commit that the client itself calls a conflict is tried
again from a new handle, as its users would; the answer says how often.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

ATTEMPTS = 30


def client_of(uri: str) -> Any:
    """The client that this environment was made for; what the others need isn't installed."""
    if importlib.util.find_spec("pyspark"):
        from tests.clients.sql import LanceSpark

        return LanceSpark(uri)
    if importlib.util.find_spec("duckdb"):
        from tests.clients.sql import DuckDB

        return DuckDB(uri)
    from tests.clients.arrow import LanceDB, Polars, Pylance

    if importlib.util.find_spec("polars"):
        return Polars(uri)
    return LanceDB(uri) if importlib.util.find_spec("lancedb") else Pylance(uri)


def is_conflict(error: BaseException) -> bool:
    """Whether the client says that the same may be tried again."""
    return "conflict" in str(error).lower() or "preempted" in str(error).lower()


def main() -> None:
    """Answer until stdin ends."""
    client = client_of(sys.argv[1])
    print(json.dumps({"version": client.version}), flush=True)
    handles: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        do, name = asked.pop("do"), asked.pop("handle", "")
        answer: dict[str, Any] = {}
        for attempt in range(ATTEMPTS):
            try:
                if do == "open":
                    handles[name] = client.open()
                    answer = {"value": client.number(handles[name])}
                else:
                    table = handles[name] if name in handles and not attempt else client.open()
                    answer = {"value": getattr(client, do)(table, **asked)}
            except BaseException as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
                if is_conflict(error):
                    continue
            break
        print(json.dumps({**answer, "attempts": attempt + 1}), flush=True)


if __name__ == "__main__":
    main()
