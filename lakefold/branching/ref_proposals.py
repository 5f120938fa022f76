"""The proposals of `tag`, `branch` and `restore`: each names one version of a table, or a branch."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from lakefold.branching.chosen_version import ChosenVersion, newest_id
from lakefold_table.entry import Outcome, Rejected
from lakefold_table.errors import InvalidError, NotATableError, VersionExpiredError

if TYPE_CHECKING:
    from lakefold.console.settings import Settings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_reader.format.source import Source

ATTEMPTS: Final = 10
"""How often a restore is built at most."""


def tagging(chosen: ChosenVersion, name: str, *, move: bool) -> Envelope:
    """Returns the proposal that tags a version."""
    from lakefold_protos.lakefold.log_pb2 import Envelope, Tag

    proposed = Tag(name=name, version=chosen.version, branch=chosen.branch, move=move, uuid=str(uuid4()))
    return Envelope(table=chosen.main.uri, tag=proposed, table_id=chosen.main_id, version_mark=chosen.mark)


def untagging(table: str, name: str, settings: Settings) -> Envelope:
    """Returns the proposal that removes a tag. Raises `OtherFormatError` if the table's format has none."""
    from lakefold_protos.lakefold.log_pb2 import Envelope, Tag

    main = main_branch(table, settings)
    removed = Tag(name=name, delete=True, uuid=str(uuid4()))
    return Envelope(table=main.uri, tag=removed, table_id=newest_id(main))


def main_branch(table: str, settings: Settings) -> Source:
    """Returns a table's main branch. Raises `OtherFormatError` if its format has no branches."""
    from lakefold_reader.formats import open_branch
    from lakefold_reader.versions.branches import main_and_branch

    return main_and_branch(open_branch(table, None, settings.storage_options))[0]


def check_free(name: str) -> None:
    """Raises `InvalidError` for the name of a consumer's tag."""
    from lakefold_table.ref_files import CONSUMER_TAG

    if name.startswith(CONSUMER_TAG):
        message = f"the tag {name} belongs to a named consumer"
        raise InvalidError(message, hint="use `lakefold consumers TABLE --set` or `--drop`")


def id_of_branch(main: Source, name: str) -> str:
    """Returns the `Marks.full_id` of a branch, "" if it doesn't exist or has no marks."""
    from lakefold_reader.versions.branches import branched
    from lakefold_table.versions.refs import UnknownRefError

    try:
        return newest_id(branched(main, name))
    except (UnknownRefError, NotATableError):
        return ""


def deleting(main: str, name: str, table_id: str = "") -> Envelope:
    """Returns the proposal that deletes a branch of the table at `main`. `table_id`: that of the branch."""
    from lakefold_protos.lakefold.log_pb2 import DeleteBranch, Envelope

    deletion = DeleteBranch(uuid=str(uuid4()))
    return Envelope(table=main, branch=name, delete_branch=deletion, table_id=table_id)


def branching(chosen: ChosenVersion, name: str) -> Envelope:
    """Returns the proposal that begins a branch at a version: a shallow Clone below the table's root."""
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.uri import local_path

    uri = chosen.source.uri
    # The branch has no id yet, so the version that it begins at is named.
    envelope = Envelope(table=chosen.main.uri, branch=name, version_mark=chosen.mark)
    envelope.lance.uuid, envelope.lance.read_version = str(uuid4()), chosen.version
    clone = envelope.lance.clone
    clone.is_shallow, clone.ref_version, clone.branch_name = True, chosen.version, name
    # As other Lance clients name a local table, in the manifest that is made of it.
    clone.ref_path = local_path(uri) if uri.startswith("file:") else uri
    if chosen.branch:
        clone.ref_name = chosen.branch
    return envelope


def check_branch(chosen: ChosenVersion, table: str) -> None:
    """Raises `InvalidError` if TABLE is the folder of another branch than the one that has the version."""
    from lakefold_table.uri import canonical

    if canonical(table) not in {chosen.main.uri, chosen.source.uri}:
        named = f"the branch {chosen.branch}" if chosen.branch else "the main branch"
        message = f"version {chosen.version} is of {named}, and not of the branch in this folder"
        hint = f"to restore {named}, name its folder, {chosen.source.uri}"
        raise InvalidError(message, where=canonical(table), hint=hint)


def restoring(chosen: ChosenVersion, newest: int) -> Envelope:
    """Returns the proposal that restores a version of a branch whose newest version is `newest`.

    Raises as `WriterFormat.restore`, and `VersionExpiredError` if maintenance is about to remove files of the
    version: what can't be restored is not sent.
    """
    from lakefold_ingest.formats import FORMATS
    from lakefold_maintenance.files.removal_note import read_note
    from lakefold_maintenance.formats import files_of
    from lakefold_protos.lakefold.log_pb2 import Envelope

    envelope = Envelope(
        table=chosen.main.uri, branch=chosen.branch, table_id=chosen.table_id, version_mark=chosen.mark
    )
    FORMATS[chosen.source.format.name].restore(envelope, chosen.source, chosen.version, newest)
    removing = sorted(read_note(chosen.main.storage).removing.keys() & set(files_of(envelope)))
    if removing:
        message = f"maintenance is about to remove {len(removing):,} files of version {chosen.version:,}"
        hint = f"restore a later version; one of the files is {removing[0]}"
        raise VersionExpiredError(message, oldest=0, where=chosen.main.uri, hint=hint)
    return envelope


def send_restore(settings: Settings, chosen: ChosenVersion, wait: float, message: str = "") -> Outcome:
    """Sends the restore, built again on the newest version if it may be; returns its outcome.

    If it was refused, others who change rows let it go first (`read.turns`).
    """
    from lakefold.branching.undone_versions import newest_before
    from lakefold.proposals.logged_proposal import send_and_wait
    from lakefold_log.read.turns import TURN, WHOLE, Turn

    attempt, turn = 1, Turn(uuid4().bytes, frozenset(), frozenset({WHOLE}))
    while True:
        begun = monotonic()
        envelope = restoring(chosen, newest_before(chosen, None))
        turn = replace(turn, build_s=monotonic() - begun)
        outcome = send_and_wait(settings, envelope, wait, message, ((TURN, turn.encode()),))
        may_pass = isinstance(outcome.result, Rejected) and outcome.result.conflict.retryable
        if not may_pass or attempt == ATTEMPTS or newest_id(chosen.source) != chosen.table_id:
            return outcome
        attempt += 1
