"""A log that loses its end and grows again: other entries are at the offsets of folded entries.

Kafka doesn't sync its files. The broker's data is set back here to an earlier clean stop, as a power cut or a
copy that is put back may do, and writers append before the committer comes.

Promise: same-entry (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import lance
import pytest

from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import GapError
from lakefold_table.marks.marks import RebindReason
from tests.integration.own_log import PATIENCE_S, OwnLog
from tests.integration.stage import Stage
from tests.integration.test_moving_verbs import Verbs
from tests.proposals import ids_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold.local.broker import Broker
    from tests.integration.conftest import TopicNames

TAKE_OVERS = 4
"""The brokers forget so many committers, but the table bears the last one's number."""
PATIENT = ("--timeout", "120")
"""What the log can't show in time is left out."""


def everything(own: OwnLog) -> str:
    """Also what was answered and reported is set back."""
    del own
    return ""


def transactions(own: OwnLog) -> str:
    """The outcomes and the group's offset stay, and lie beyond the log's end until it has grown."""
    return f"{own.topics.transactions}-0"


@pytest.mark.parametrize("part", [everything, transactions])
def test_other_entries_at_offsets_that_were_folded(
    own_broker: Broker, topic_names: TopicNames, tmp_path: Path, part: Callable[[OwnLog], str]
) -> None:
    own = OwnLog.make(own_broker.bootstrap_servers, topic_names)
    stage = Stage(own_broker.bootstrap_servers, topic_names, own, tmp_path)
    stage.begin(1, 2)
    data, kept = own_broker.directory / "data" / part(own), tmp_path / "kept"
    own_broker.stop(PATIENCE_S)
    shutil.copytree(data, kept)
    own_broker.start()
    lost = [stage.batch(3), stage.batch(4)]
    for _ in range(TAKE_OVERS):
        stage.fold()
    stage.send(*lost)
    stage.fold()
    own_broker.stop(PATIENCE_S)
    shutil.rmtree(data)
    shutil.copytree(kept, data)
    own_broker.start()
    others = [stage.batch(number, read=4) for number in (5, 6, 7)]
    again = stage.batch(4)
    stage.send(*others, again)
    version, number = lance.dataset(str(stage.path)).version, len(stage.outcomes())

    with pytest.raises(GapError) as caught:
        stage.fold()
    for envelope in (lost[1], others[1]):
        assert envelope.lance.uuid in str(caught.value)
    assert (f"{own.topics.transactions}/0@4" in str(caught.value)) or "offset 5" in str(caught.value)
    assert lance.dataset(str(stage.path)).version == version
    assert len(stage.outcomes()) == number

    verbs = Verbs(stage)
    (other,) = verbs("explain", "4", *PATIENT)
    assert (other["state"], other["outcome"], other["version"]) == ("replaced", None, None)
    assert other["proposal"]["uuid"] == others[1].lance.uuid
    for envelope in (lost[1], others[1]):
        assert envelope.lance.uuid in other["another_entry"]
    (other,) = verbs("explain", "3", *PATIENT)
    assert (other["state"], other["proposal"]["batch_id"]) == ("replaced", 5)
    (old,) = verbs("explain", "app:3", *PATIENT)
    assert (old["state"], old["proposal"]) == ("committed", None)
    # Its position is known only if its outcome is left.
    assert (others[0].lance.uuid in (old["another_entry"] or "")) == (part is transactions)
    (old,) = verbs("explain", "2", *PATIENT)
    assert (old["state"], old["proposal"]["batch_id"], old["another_entry"]) == ("committed", 2, None)

    stage.fold(accept=True)
    (new,) = verbs("explain", "4", *PATIENT)
    assert (new["state"], new["another_entry"], new["not_proven"]) == ("committed", None, None)
    assert new["proposal"]["uuid"] == others[1].lance.uuid
    answers = {outcome.uuid: outcome.result for outcome in stage.outcomes()[number:]}
    assert [type(answers[envelope.lance.uuid]) for envelope in others] == [Committed] * 3
    assert isinstance(answers[again.lance.uuid], Duplicate)
    assert ids_in(stage.uri) == [1, 2, 3, 4, 5, 6, 7]
    assert [move.why for move in stage.marks.moves] == [RebindReason.LOST]
    stage.send(stage.batch(8))
    assert stage.fold() == {"committed": 1, "versions": 1}
    assert "different" not in stage.replay().values()


def test_a_damaged_segment_loses_nothing_once_it_is_brought_back(
    own_broker: Broker, topic_names: TopicNames, tmp_path: Path
) -> None:
    own = OwnLog.make(own_broker.bootstrap_servers, topic_names)
    stage = Stage(own_broker.bootstrap_servers, topic_names, own, tmp_path)
    stage.begin(1, 2)
    stage.send(stage.batch(3))
    own_broker.stop(PATIENCE_S)
    segment = own_broker.directory / "data" / transactions(own) / "00000000000000000000.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    own_broker.start()
    with pytest.raises(GapError, match="messages are damaged in the brokers' files") as caught:
        stage.fold()
    assert "restore the segment from a copy" in caught.value.hint
    assert ids_in(stage.uri) == [1, 2]
    own_broker.stop(PATIENCE_S)
    segment.write_bytes(whole)
    own_broker.start()
    stage.fold()
    assert ids_in(stage.uri) == [1, 2, 3]
