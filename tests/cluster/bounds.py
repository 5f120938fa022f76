"""How long a proposal may wait in a scenario: what docs/operations/size.md promises, with room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BOUNDS_S: Final[Mapping[str, float]] = {
    "node drained": 2.0,
    "rollout": 5.0,
    "pod deleted": 4.0,
    "committer killed": 5.0,
}
"""The worst latency in seconds, by the scenario, on a machine that isn't busy."""
BUSY_S: Final = 20.0
"""The same for each of these scenarios if other work keeps the machine busy."""
BUSY_LOAD: Final = 2.0
"""From this load for each core on, a machine is busy."""


def too_slow(name: str, worst: float, load_per_core: float) -> str:
    """Returns what is wrong with the worst latency in a scenario, with the figures; empty if nothing is."""
    bound = BOUNDS_S.get(name)
    if bound is None:
        return ""
    limit = bound if load_per_core < BUSY_LOAD else BUSY_S
    if worst < limit:
        return ""
    load = f"a load of {load_per_core:.1f} for each core"
    return f"{name}: a proposal waited {worst:.1f} s, and may wait less than {limit:.0f} s with {load}"


def not_spread(pods: Iterable[Mapping[str, Any]], nodes: Iterable[str]) -> str:
    """Returns which nodes should have a pod and have none, and where the pods are; empty if each has some."""
    used = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "no node") for pod in pods}
    empty = sorted(set(nodes) - set(used.values()))
    if not empty:
        return ""
    where = ", ".join(f"{name} on {node}" for name, node in sorted(used.items()))
    return f"no committer is on {', '.join(empty)}: {where or 'there is none'}"
