"""What waits in the log for one table: on which versions it was built, what it rewrites, its files.

A proposal that waits needs the version that it was built on, because the committer compares it with all
that came after. A tag, a restore or a new branch needs the version that it names. So a clean-up keeps these
versions, and the files that the proposals name. A Rewrite that waits shows that another maintainer has done
the work already.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from lakefold_log.codec.envelope import parsed
from lakefold_log.read.answered_offsets import answered_offsets
from lakefold_log.read.consumer import PartitionReader
from lakefold_log.read.lookup import Lookup
from lakefold_maintenance.format import TableSurvey, WaitingEntry
from lakefold_maintenance.formats import format_of
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.allocation import check_allocated
from lakefold_table.app_removal import FORGET_APP
from lakefold_table.branch_deletion import DELETE_BRANCH
from lakefold_table.branch_names import MAIN, names_of
from lakefold_table.errors import RetryError
from lakefold_table.tag_proposal import TAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics

TIMEOUT_S: Final = 30.0
SMALL: Final = 16_384
"""Messages of at most this many bytes are decoded without counting first how much memory they take."""
NEVER: Final = math.inf
_BATCH: Final = 5_000
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class WaitingProposals:
    """The proposals for a branch that have no outcome yet.

    `oldest_read`: the lowest version that one of them was built on, or names; None if there is none, 0 if it
    is not known (the proposal is stored beside the table). `rewritten`: the fragments that compactions among
    them replace, as their format names them. `files`: the paths of the files that they name, those for other
    branches of the table too. `unknown`: one of these is stored beside the table, so that it is not known
    which files it names.
    """

    count: int = 0
    oldest_read: int | None = None
    rewritten: frozenset[int | str] = frozenset()
    files: frozenset[str] = frozenset()
    unknown: bool = False


def read_waiting(survey: TableSurvey, kafka: KafkaConfig, topics: Topics, group: str) -> WaitingProposals:
    """Returns what waits for the survey's branch, by the committed offset of the committers' group.

    Raises `RetryError` if no message of it comes for `TIMEOUT_S` seconds, `GapError` if the log is another
    one meanwhile.
    """
    lookup = Lookup(kafka, topics, survey.table, survey.partition, timeout_s=TIMEOUT_S)
    status = lookup.status(group)
    if status.next_offset >= status.end:
        return WaitingProposals()
    keys = [name.encode() for name in names_of(survey.table, survey.branch)]
    with PartitionReader(lookup.admin, topics.transactions, status.log, status.next_offset) as reader:
        # The reader fetches messages already while it is read which of them are answered.
        done: set[int] = set()
        if status.outcomes_from is not None:
            first, signers = status.outcomes_from, status.signers
            done.update(
                answered_offsets(lookup.admin, topics, lookup.log, status.next_offset, first, signers)
            )

        def envelopes() -> Iterator[Envelope]:
            """Yields what waits for the table, one after the other: there may be a hundred thousand."""
            heard_at = time.monotonic()
            while reader.position < status.end:
                messages = reader.poll(_BATCH, _POLL_S)
                if messages:
                    heard_at = time.monotonic()
                elif time.monotonic() >= heard_at + TIMEOUT_S:
                    text = f"no message that waits in the log came for {TIMEOUT_S:g} s: {reader.last_error}"
                    raise RetryError(text, where=f"{topics.transactions}/{status.log.partition}")
                for message in messages:
                    if message.key in keys and message.offset < status.end and message.offset not in done:
                        yield from _decoded(message.value, survey)

        return waiting_of(envelopes(), survey.branch)


def waiting_of(envelopes: Iterable[Envelope], branch: str) -> WaitingProposals:
    """Returns what these envelopes need of a branch.

    Of those for other branches the files count, and the version of this one at which they begin theirs.
    """
    count, oldest, rewritten, files, unknown = 0, NEVER, set[int | str](), set[str](), False
    for envelope in envelopes:
        if envelope.HasField(TAG):
            # It needs the version that it will name, and no file.
            if (envelope.tag.branch or MAIN) == (branch or MAIN) and not envelope.tag.delete:
                count, oldest = count + 1, min(oldest, envelope.tag.version)
            continue
        if envelope.HasField(DELETE_BRANCH) or envelope.HasField(FORGET_APP):
            count += envelope.branch == branch
            continue
        known = format_of(envelope)
        unknown |= known is None
        files.update(() if known is None else known.files_of(envelope))
        waits = WaitingEntry(0) if known is None else known.waiting(envelope)
        if waits.begins_at is not None and waits.begins_from(branch):
            oldest = min(oldest, waits.begins_at)
        if envelope.branch != branch:
            continue
        count += 1
        oldest = min(oldest, waits.read_version)
        rewritten.update(waits.rewritten)
    return WaitingProposals(
        count, None if oldest == NEVER else int(oldest), frozenset(rewritten), frozenset(files), unknown
    )


def _decoded(data: bytes, survey: TableSurvey) -> list[Envelope]:
    """Returns the envelope, or nothing if the message is none: it will be answered Invalid.

    One that names the root of the survey's branch as its table is returned as if it named the branch.
    """
    try:
        envelope = Envelope.FromString(data) if len(data) <= SMALL else parsed(data)
    except DecodeError as error:
        check_allocated(error)
        return []
    if envelope.table != survey.table:
        envelope.branch = survey.branch
    return [envelope]
