"""Commits of clients that stage a whole version: it goes through the log as that version or not at all.

A client whose commit succeeds goes on with the manifest that it made; after any error it reads the version
and compares the transaction with its own (decision 0129). So an answer is given once it is certain whether
the version will exist.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

from lance_namespace.errors import ConcurrentModificationError, ServiceUnavailableError

from lakefold_ingest.formats import note_published, read_view
from lakefold_ingest.writing.log_client import open_client
from lakefold_log.read.turns import TURN, WHOLE, Turn
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.branch_names import root_of
from lakefold_table.entry import Committed, Duplicate, Invalid, Rejected
from lakefold_table.errors import DamagedError, InvalidError, LakefoldError
from lakefold_table.lance.format import LanceFormat
from lakefold_table.lance.manifests.codec import decode_file
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.storage import open_canonical
from lakefold_table.uri import parse_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold.console.settings import Settings
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.log_client import LogClient
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.entry import Outcome
    from lakefold_table.lance.manifests.codec import ManifestFile
    from lakefold_table.storage.base import Storage

FOLDER: Final = LanceFormat.folder
LOGGER = logging.getLogger("lakefold")
MOST_STAGED_BYTES: Final = 1 << 30
"""How large a staged manifest may be: it is held in memory."""
CONNECT_S: Final = 30.0
SEND_S: Final = 60.0
"""How many seconds brokers have to store a proposal; it is not in the log if they don't."""
ANSWER_S: Final = 1500.0
"""For how long an outcome is awaited. pylance waits for half an hour itself."""
_BATCH: Final = UUID("9b1c7f0e-3d0b-4a0e-9a52-5c8f6f0c2f11")


@dataclass(frozen=True, slots=True)
class Staged:
    """A version that a client has staged: its number, and the name of its file in the folder of versions."""

    table: str
    branch: str
    version: int
    file: str


class VersionCommits:
    """Sends staged versions to the log. For any number of threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._config, self._topics = settings.kafka_config(), settings.topics()
        self._sent: dict[tuple[str, int], Event] = {}
        self._lock = Lock()

    def commit(self, table: str, branch: str, version: int, manifest_path: str) -> None:
        """Has a staged manifest become a version of a table; returns once that is published.

        `table`: its canonical URI. `manifest_path`: as the client's store names it. Raises
        `ConcurrentModificationError` if there is such a version or the log refuses it; `InvalidError` for a
        path or a manifest that isn't this version's; `ServiceUnavailableError` if it is still open whether
        the version will exist.
        """
        root = root_of(table, branch)
        staged = Staged(table, branch, version, _staged_name(root, manifest_path))
        with self._alone(root, version):
            self._commit(root, staged)

    @contextmanager
    def _alone(self, root: str, version: int) -> Iterator[None]:
        """Waits while another client's commit of the same version is in the log.

        It would be refused there, and a client that is refused soon comes again soon: pylance's pauses are
        multiples of how long its first attempt took.
        """
        answered = Event()
        while (other := self._begun(root, version, answered)) is not answered:
            other.wait(ANSWER_S)
        try:
            yield
        finally:
            with self._lock:
                del self._sent[root, version]
            answered.set()

    def _begun(self, root: str, version: int, answered: Event) -> Event:
        """Returns the event of the commit that is in the log; the given one if there is none."""
        with self._lock:
            return self._sent.setdefault((root, version), answered)

    def _commit(self, root: str, staged: Staged) -> None:
        version = staged.version
        storage = open_canonical(root, self._settings.storage_options)
        view = read_view(root, self._settings.storage_options)
        newest = 0 if view is None else view.version
        if newest >= version:
            _remove(storage, staged.file)
            raise ConcurrentModificationError(f"version {version} exists: the newest is {newest}")
        envelope = _envelope(staged, _read(storage, staged, root), view)
        outcome = self._ask(envelope, view)
        _remove(storage, staged.file)
        self._check(staged, outcome)
        note_published(root, self._settings.storage_options, version)

    def _ask(self, envelope: Envelope, view: View | None) -> Outcome:
        client = self._client()
        if view is not None:
            client.check_binding(view.bound, view.uri)
        # Others wait for a client that was refused, so that it isn't overtaken again (decision 0117).
        turn = Turn(uuid5(_BATCH, envelope.lance.uuid).bytes, frozenset(), frozenset([WHOLE]))
        started = time.monotonic()
        proposed = client.propose(
            envelope,
            None if view is None else view.partition,
            SEND_S,
            headers=((TURN, turn.encode()),),
            storage_options=self._settings.storage_options,
        )
        answer = proposed.answer(ANSWER_S)
        if answer.outcome is None:
            waited = time.monotonic() - started
            raise ServiceUnavailableError(
                f"the log has it at {answer.position}, and no committer answered within {waited:.0f} s:"
                " whether the version will exist is not known yet"
            )
        return answer.outcome

    def _client(self) -> LogClient:
        return open_client(self._config, self._topics, CONNECT_S)

    def _check(self, staged: Staged, outcome: Outcome) -> None:
        """Raises `ConcurrentModificationError`, so that the client tries again, for any other version."""
        match outcome.result:
            case Committed(version=version) | Duplicate(version=version) if version == staged.version:
                return
            case Rejected(conflict=conflict):
                raise ConcurrentModificationError(conflict.message)
            case Invalid(message=message, hint=hint):
                reason = f"{message} ({hint})" if hint else message
                LOGGER.warning("%s: version %s was refused: %s", staged.table, staged.version, reason)
                raise ConcurrentModificationError(reason)
            case result:
                raise ConcurrentModificationError(f"version {staged.version} is another one: {result}")


def _staged_name(root: str, path: str) -> str:
    """Returns the name of a staged file. Raises `InvalidError` if it isn't in the folder of versions."""
    folder, _, name = path.rpartition("/")
    location = parse_location(root)
    expected = f"{location.path}/{FOLDER}".strip("/")
    given = folder.partition("://")[2].partition("/")[2] if "://" in folder else folder
    if (
        given.strip("/") not in (expected, f"{location.authority}/{expected}".strip("/"))
        or ".manifest-" not in name
    ):
        hint = f"stage it as {FOLDER}/…manifest-UUID in the table's own folder"
        raise InvalidError(f"the manifest {path[-200:]!r} is not staged in the table {root}", hint=hint)
    return name


def _read(storage: Storage, staged: Staged, root: str) -> ManifestFile:
    """Returns the staged manifest. Raises `InvalidError` if it is none of this version."""
    path = f"{FOLDER}/{staged.file}"
    size = storage.size(path)
    if size is None or size > MOST_STAGED_BYTES:
        what = "doesn't exist" if size is None else f"has {size} bytes, more than {MOST_STAGED_BYTES}"
        raise InvalidError(f"the staged manifest {what}", where=f"{root}/{path}", hint="stage it again")
    try:
        file = decode_file(storage.get(path), path)
    except (DamagedError, FileNotFoundError) as error:
        raise InvalidError(f"the staged manifest can't be read: {error}", where=root) from error
    if file.head.version != staged.version:
        message = f"the staged manifest is version {file.head.version}, not {staged.version}"
        raise InvalidError(message, where=root, hint="stage the version that is to be created")
    return file


def _envelope(staged: Staged, file: ManifestFile, view: View | None) -> Envelope:
    table_id = "" if view is None else view.carried.full_id
    envelope = Envelope(
        table=staged.table, branch=staged.branch, as_version=staged.version, table_id=table_id
    )
    envelope.lance.CopyFrom(_transaction(staged, file))
    if view is None and not staged.branch:
        create = envelope.create
        create.stable_row_ids = has_stable_row_ids(file.head)
        create.data_storage_version = file.head.data_format.version
        create.v1_manifest_paths = staged.file.partition(".")[0] == str(staged.version)
    return envelope


def _transaction(staged: Staged, file: ManifestFile) -> Transaction:
    if file.transaction is None:
        raise InvalidError(
            f"the staged manifest of version {staged.version} doesn't contain its transaction",
            where=staged.table,
            hint="use a client that stores it there, as pylance 14 does",
        )
    return file.transaction


def _remove(storage: Storage, name: str) -> None:
    """Removes a staged file; a clean-up finds it if that fails."""
    try:
        storage.delete(f"{FOLDER}/{name}")
    except LakefoldError as error:
        LOGGER.warning("the staged manifest %s stays: %s", name, error)
