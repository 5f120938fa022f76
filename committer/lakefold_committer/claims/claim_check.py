"""Claims: fetches the envelopes that they name, and removes those that no reader needs again.

A claim's file that is missing or has other bytes is a fault of the entry: the fold answers it Invalid, after
it has checked whether the table has the position or the key already. Only a store that can't be reached
raises, and a lack of memory. The path is made of the claim's hash and the table's own root, so a message
can't make a committer read elsewhere.

A few megabytes may take a hundred times as much memory once they are decoded. The memory is computed from the
bytes (`Format.memory_to_fold`) before they are decoded. An entry that needs more than a claim may take is
refused for good; an entry that needs more than the process has left now is tried again later.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from google.protobuf.message import DecodeError

from lakefold_committer.claims.memory_budget import memory_left
from lakefold_log.codec.claims import FOLDER, is_claims_envelope, path_of
from lakefold_log.codec.envelope import UnknownKind, classify, parse_large, parsed
from lakefold_table.entry import Committed, Duplicate, Entry, Invalid, Outcome, Tagged, Undecodable
from lakefold_table.errors import InvalidError, LakefoldError, NoMemoryError, StopError
from lakefold_table.formats import BUILT_IN, Formats
from lakefold_table.storage import open_canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Claim
    from lakefold_table.storage.base import Storage

LOG = structlog.get_logger("lakefold.committer")
KEPT_US: Final = 7 * 24 * 3600 * 1_000_000
"""A file is removed that is older by this time than a message up to which all were answered, whatever its
outcome was."""
SWEEP_SECONDS: Final = 24 * 3600.0
CLAIM_BYTES: Final = 512 << 20
"""How much memory folding one claim may take, unless a setting says otherwise."""
_NO_CLAIM: Final = "-"
"""A name that no claim has: an error of a request for it is an error of the folder."""
_AGAIN: Final = "send the proposal again: nothing of it was folded"


class Claims:
    """The claims of a partition, or of a file. Several threads may fetch and clean up at once.

    `store` opens the store of a table by its URI; without it, `storage_options` are used. `most_bytes`: how
    much memory folding a claim may take (None: any). `free_memory` returns how much this process may still
    take (None: unknown).
    """

    def __init__(
        self,
        storage_options: Mapping[str, str] | None = None,
        *,
        store: Callable[[str], Storage] | None = None,
        most_bytes: int | None = CLAIM_BYTES,
        free_memory: Callable[[], int | None] = memory_left,
        formats: Formats = BUILT_IN,
    ) -> None:
        self._store = store or partial(open_canonical, storage_options=storage_options)
        self._most_bytes = most_bytes
        self._free_memory = free_memory
        self._formats = formats
        self._fetched_offsets: set[int] = set()
        self._swept: dict[str, float] = {}

    def fetch(self, group: Sequence[Entry]) -> Sequence[Entry]:
        """Returns the group with the envelope of its claim: an entry with a claim is alone in its group.

        Raises `RetryError` if the store can't be reached, `NoMemoryError` if too little memory is left,
        `LocationError` if no table can be stored at the path, `StopError` if the folder of claims can't be
        used, or if the envelope holds a proposal of a kind that this release doesn't know.
        """
        return [self._fetched(entry) for entry in group] if group[0].is_claim else group

    def clean_up(
        self, reads: Sequence[Entry | Undecodable], outcomes: Sequence[Outcome], low_watermark: int
    ) -> None:
        """Removes the files of these entries, whose outcomes were reported, and once a day older files.

        Every entry of the partition below `low_watermark` was answered; others may wait for their files, for
        as long as their table or branch is parked. A refused entry keeps its file for a week, so that it can
        be sent again as it is. Nothing depends on the removal: if it fails, a later call removes the file.
        """
        tables: set[str] = set()
        for read, outcome in zip(reads, outcomes, strict=True):
            was_fetched = read.position.offset in self._fetched_offsets
            # Other queues fetch theirs meanwhile.
            self._fetched_offsets.discard(read.position.offset)
            if isinstance(outcome.result, Committed | Tagged | Duplicate):
                tables.add(outcome.table)
                if was_fetched and isinstance(read, Entry):
                    self._remove(read.envelope.table, path_of(read.envelope.claim))
        now = time.monotonic()
        answered = [read.time_us for read in reads if read.position.offset < low_watermark]
        for table in tables if answered else ():
            if now - self._swept.get(table, -SWEEP_SECONDS) >= SWEEP_SECONDS:
                self._swept[table] = now
                self._sweep(table, min(answered[-1], time.time_ns() // 1000) - KEPT_US)

    def _fetched(self, entry: Entry) -> Entry:
        storage = self._store(entry.envelope.table)
        claimed = _claimed_entry(entry, storage, partial(self._allow, entry), self._formats)
        if isinstance(claimed, Invalid):
            return replace(entry, fault=claimed)
        self._fetched_offsets.add(entry.position.offset)
        # The digest of an entry is that of its message, which is the claim.
        return replace(claimed, data=entry.data)

    def _allow(self, entry: Entry, needed: int, held: int = 0) -> None:
        """Raises `InvalidError` if a claim may not take this memory, `NoMemoryError` if it isn't left.

        `held`: how many of these bytes it has taken already.
        """
        most, bytes_left = self._most_bytes, self._free_memory()
        if most is not None and needed > most:
            raise InvalidError(
                f"folding the claimed envelope takes about {needed} bytes of memory, "
                f"more than the {most} of claim_memory",
                hint="split the transaction, or set the committer's claim_memory higher and send it again",
            )
        if bytes_left is not None and needed - held > bytes_left:
            raise NoMemoryError(
                f"folding a claim takes about {needed} bytes of memory, and {bytes_left + held} are left",
                where=str(entry.position),
                hint="give the committer more memory, or set its claim_memory lower to have it refused",
            )

    def _remove(self, table: str, path: str) -> None:
        try:
            self._store(table).delete(path)
        except LakefoldError as error:
            LOG.warning("a claim's file stays for a later clean-up", table=table, path=path, error=str(error))

    def _sweep(self, table: str, before_us: int) -> None:
        """Removes files that were stored before this time: those that crashes left, and of refused entries.

        Messages are sent within minutes of their files, and all messages of the partition up to a week after
        were answered.
        """
        try:
            storage = self._store(table)
            for file in list(storage.list(FOLDER)):
                stored_us = storage.stored_at(file.path)
                if stored_us is not None and stored_us < before_us:
                    storage.delete(file.path)
        except LakefoldError as error:
            LOG.warning("claims are not cleaned up", table=table, error=str(error))


def _claimed_entry(
    entry: Entry, storage: Storage, allow: Callable[..., None], formats: Formats
) -> Entry | Invalid:
    """Returns the entry that the claim names, or why it is invalid."""
    try:
        data = _bytes_of(entry.envelope.claim, storage, allow)
        large = parse_large(data, partial(allow, held=len(data)), formats)
        envelope, proposal = (parsed(data), None) if large is None else (large.envelope, large.proposal)
    except InvalidError as error:
        return Invalid(error.message, error.hint)
    except DecodeError as error:
        return Invalid(f"the claimed file is not an Envelope: {error}", "write lakefold.log.v1.Envelope")
    if envelope.HasField("claim"):
        return Invalid("the claimed envelope holds a claim itself", "write the whole proposal there")
    if not is_claims_envelope(entry.envelope, envelope):
        message = "the claimed envelope has another table, key or branch than the message"
        return Invalid(message, "give both the same table, app_id, batch_id and branch")
    key = envelope.table.encode()
    claimed = classify(
        envelope, key, entry.position, entry.time_us, len(data), formats=formats, proposal=proposal
    )
    if isinstance(claimed, UnknownKind):
        raise StopError(claimed.message, where=str(claimed.position), hint=claimed.hint)
    return Invalid(claimed.message, claimed.hint) if isinstance(claimed, Undecodable) else claimed


def _bytes_of(claim: Claim, storage: Storage, allow: Callable[[int], None]) -> bytes:
    """Returns the claimed bytes, never more than the claim says.

    Raises `InvalidError` if they can't be read, `StopError` if none of the table's claims can.
    """
    path = path_of(claim)
    allow(claim.size)
    try:
        size = storage.size(path)
        is_other = size is not None and size != claim.size
        data = b"" if is_other else storage.get_range(path, 0, claim.size)
    except FileNotFoundError:
        hint = f"a claim is written first; {_AGAIN}"
        raise InvalidError(f"the claimed file does not exist: {path}", hint=hint) from None
    except InvalidError as error:
        _check_folder(storage)
        raise InvalidError(f"the claimed file can't be read: {error.message}", hint=error.hint) from error
    if is_other:
        raise InvalidError(f"the claimed file has {size} bytes, the claim says {claim.size}", hint=_AGAIN)
    if hashlib.sha256(data).digest() != claim.sha256:
        raise InvalidError(f"the claimed file has other bytes than its hash: {path}", hint=_AGAIN)
    return data


def _check_folder(storage: Storage) -> None:
    """Raises `StopError` if the folder of claims can't be used: its table waits until that is repaired.

    An error of a single file in it is its sender's, and doesn't raise.
    """
    try:
        storage.size(f"{FOLDER}/{_NO_CLAIM}")
    except InvalidError as error:
        message = f"the folder of claims can't be used: {error.message}"
        raise StopError(message, where=error.where, hint=error.hint) from error
