"""Waits up to a minute until each committer of a headless service is ready: ready.py SERVICE PORT REPLICAS.

`helm test` runs it in the committers' image. It prints what each committer answers, and exits with 1 if one
of them isn't ready at the end, or if there are fewer than REPLICAS of them.
"""

from __future__ import annotations

import socket
import sys
import time
import urllib.error
import urllib.request

PATIENCE_S = 60.0
PAUSE_S = 1.0


def answer(address: str, port: int) -> tuple[bool, str]:
    """Returns whether the committer at an address is ready, and the text of its page."""
    host = f"[{address}]" if ":" in address else address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/readyz", timeout=5) as page:
            return True, page.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return False, refused.read().decode()
    except OSError as error:
        return False, str(error)


def survey(service: str, port: int) -> dict[str, tuple[bool, str]]:
    """Returns the answer of each committer by its address; nothing if the service has no pods yet."""
    try:
        addresses = socket.getaddrinfo(service, port, type=socket.SOCK_STREAM)
    except OSError:
        return {}
    return {address: answer(address, port) for address in sorted({str(each[4][0]) for each in addresses})}


def main() -> int:
    """Waits, prints and returns the exit code."""
    service, port, replicas = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answers = survey(service, port)
        done = len(answers) >= replicas and all(ready for ready, _ in answers.values())
        if done or time.monotonic() >= deadline:
            break
        time.sleep(PAUSE_S)
    for address, (_, text) in answers.items():
        print(f"{address}: {text.strip()}")
    print(f"{sum(ready for ready, _ in answers.values())} of {replicas} committers are ready")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
