"""A service that writes small batches for hours: many requests share a file and a version.

Run `lakefold up` and `lakefold committer` in this folder first. Usage: python service.py [SECONDS]
"""

import asyncio
import random
import sys
import time

import pyarrow as pa

import lakefold

TABLE = "requests.lance"
SCHEMA = pa.schema([("user", pa.int64()), ("path", pa.string()), ("ms", pa.float64())])


async def handle(writer: lakefold.Writer, user: int) -> int | None:
    """Handles a request: returns once its row can be read, with the version that has it."""
    row = {"user": user, "path": random.choice(["/", "/cart", "/buy"]), "ms": random.expovariate(0.1)}
    outcome = await writer.append_async(pa.Table.from_pylist([row], schema=SCHEMA))
    return outcome.version


async def serve(seconds: float) -> None:
    # One Writer for the process. With an app id, a service that starts again continues after its last batch.
    async with lakefold.Writer(TABLE, app_id="service-1", max_delay=0.1) as writer:
        requests, versions, end = 0, set(), time.monotonic() + seconds
        while time.monotonic() < end:
            # 200 requests at once; each waits about as long as `max_delay`.
            versions |= set(await asyncio.gather(*(handle(writer, user) for user in range(200))))
            requests += 200
    print(f"{requests} requests are rows of {len(versions)} versions")
    rows = lakefold.open(TABLE).count_rows()
    assert rows >= requests, (rows, requests)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) if len(sys.argv) > 1 else 10))
