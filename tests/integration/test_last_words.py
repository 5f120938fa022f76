"""A process that stops at a gap can be asked why before it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog
from tests.integration.raw import delete_up_to
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import TopicNames

FOUND_SECONDS = 120.0


def test_a_gap_is_in_the_metrics_before_the_process_ends(
    bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    own = OwnLog.make(bootstrap, topic_names)
    own.propose(*range(5))
    delete_up_to(bootstrap, topic_names.transactions, 3)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        until(lambda: "offset 3" in committer.get("/readyz")[1], "the gap to be found", seconds=FOUND_SECONDS)
        assert committer.get("/readyz")[0] == 503
        page = committer.get("/metrics")[1]
        assert 'lakefold_gap{partition="0"} 1.0' in page
        assert "lakefold_ready 0.0" in page
        assert committer.process.wait(FOUND_SECONDS) == 5
        assert '"event": "gap"' in committer.log.read_text()
    with running_committer(bootstrap, topic_names, tmp_path) as again:
        until(lambda: "offset 3" in again.get("/readyz")[1], "the gap to be found", seconds=FOUND_SECONDS)
        assert again.stop() == 5
