"""What the cluster's test requires of its figures, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.bounds import BOUNDS_S, BUSY_LOAD, BUSY_S, not_spread, too_slow
from tests.cluster.packages import KNOWN, other_releases
from tests.cluster.scenarios import SCENARIOS
from tests.cluster.tools import PACKAGES


@pytest.mark.parametrize("name", BOUNDS_S)
def test_each_bound_counts_on_a_quiet_machine_and_a_wider_one_on_a_busy_machine(name: str) -> None:
    bound = BOUNDS_S[name]
    assert name in SCENARIOS
    assert too_slow(name, bound - 0.1, 0.5) == ""
    said = too_slow(name, bound, BUSY_LOAD - 0.1)
    assert said.startswith(f"{name}: a proposal waited {bound:.1f} s")
    assert too_slow(name, bound, BUSY_LOAD) == ""
    assert f"{BUSY_S:.1f} s" in too_slow(name, BUSY_S, 8.0)


def test_other_scenarios_have_no_bound() -> None:
    assert too_slow("node cut off for 20 s", 300.0, 0.1) == ""


def pod(name: str, node: str | None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {} if node is None else {"nodeName": node}}


def test_pods_are_spread_if_each_node_has_one() -> None:
    assert not_spread([pod("a", "n1"), pod("b", "n2")], ["n1", "n2"]) == ""
    assert not_spread([pod("a", "n1"), pod("b", "n1")], ["n1", "n2"]) == (
        "no committer is on n2: a on n1, b on n1"
    )
    assert "b on no node" in not_spread([pod("a", "n1"), pod("b", None)], ["n1", "n2"])
    assert "there is none" in not_spread([], ["n1"])


def test_a_package_of_another_major_release_is_named() -> None:
    assert KNOWN.keys() == set(PACKAGES)
    assert other_releases(KNOWN) == ""
    updated = {**KNOWN, "gcc": "4:12.9-1", "containerd": "1.7.1~ds1-1+deb12u9"}
    # The epoch is not part of the release.
    assert other_releases({**updated, "gcc": "5:12.2.0-3"}) == ""
    said = other_releases({**KNOWN, "runc": "2.0.1-1", "socat": ""})
    assert "runc 2.0.1-1 (known: 1.1.5), socat  (known: 1.7.4.4)" in said
