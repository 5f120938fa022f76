"""The test in its namespaces: starts the cluster, installs the chart, runs the scenarios, and checks the end.

python -m tests.cluster.inside WORK TOOLS IMAGE MAINTAINERS_IMAGE [SCENARIO]…
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.bounds import too_slow
from tests.cluster.cluster import Cluster
from tests.cluster.load import Load
from tests.cluster.machine import TABLES, prepare_machine
from tests.cluster.pod_logs import kept_pod_logs
from tests.cluster.scenarios import SCENARIOS, first_installation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUIET_S: Final = 5.0


def run_scenarios(cluster: Cluster, names: Sequence[str]) -> None:
    """Runs the scenarios while the load runs, prints the worst latency in each, and checks the end."""
    with Load(cluster.broker.bootstrap_servers, TABLES) as load:
        worst = {"no event": _measured("no event", load, partial(threading.Event().wait, QUIET_S))}
        rest: dict[str, Iterator[None]] = {}
        for name in names:
            worst[name] = _measured(name, load, partial(_begin, name, cluster, rest))
        for name, scenario in rest.items():
            worst[f"{name}, its end"] = _measured(f"{name}, its end", load, partial(next, scenario, None))
        load.finish()
        began = time.monotonic()
        load.check()
    _say(f"{load.count} proposals answered once, each row there once, each version folded again")
    _say(f"(checked in {time.monotonic() - began:.0f} s)")
    _say("\n| scenario | worst latency of a proposal |\n|---|---|")
    for name, seconds in worst.items():
        _say(f"| {name} | {seconds:.1f} s |")


def main() -> int:
    """Returns the exit code. Raises the error of a scenario or of a check that failed."""
    work, tools, image, maintainers, *names = sys.argv[1:]
    # As the documentation asks of writers that share a volume with committers and a maintainer.
    os.umask(0o002)
    prepare_machine(Path(work))
    cluster = Cluster(Path(work), Path(tools))
    try:
        began = time.monotonic()
        cluster.start([Path(tools) / "pause.tar", Path(image), Path(maintainers)])
        _say(f"the cluster runs after {time.monotonic() - began:.0f} s")
        with kept_pod_logs(cluster.folder, cluster.logs / "pods"):
            first_installation(cluster)
            _say(f"the chart is installed and ready after {time.monotonic() - began:.0f} s")
            run_scenarios(cluster, names or [*SCENARIOS])
    except BaseException:
        _say(_state_of(cluster))
        raise
    finally:
        cluster.stop()
    return 0


def _begin(name: str, cluster: Cluster, rest: dict[str, Iterator[None]]) -> None:
    """Runs a scenario. If it is a generator, runs it up to its `yield`, and adds it to `rest`."""
    scenario = SCENARIOS[name](cluster)
    if isinstance(scenario, Iterator):
        next(scenario)
        rest[name] = scenario


def _measured(name: str, load: Load, event: Callable[[], object]) -> float:
    """Returns the worst latency in seconds of proposals that waited between the event and its last answer.

    Raises `AssertionError` if it is longer than `bounds` allow with the machine's load then.
    """
    began = time.monotonic()
    event()
    load.settle()
    worst, busy = load.worst_since(began), os.getloadavg()[0] / (os.cpu_count() or 1)
    _say(
        f"{name}: {time.monotonic() - began:.0f} s, worst latency {worst:.1f} s, {load.count} proposals, "
        f"load {busy:.1f} for each core"
    )
    fault = too_slow(name, worst, busy)
    assert not fault, fault
    return worst


def _say(text: str) -> None:
    print(text, flush=True)


def _state_of(cluster: Cluster) -> str:
    """What a person looks at first after a failure."""
    pods = cluster.kubectl("get", "pods", "--all-namespaces", "-o", "wide")
    events = cluster.kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
    return pods + "\n".join(events.splitlines()[-40:])


if __name__ == "__main__":
    sys.exit(main())
