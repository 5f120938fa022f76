"""`lakefold.tag`, `lakefold.branch` and `lakefold.restore`: the verbs of these names as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack, overload

from lakefold.branching.branch_removal import is_deleted, remove_files
from lakefold.branching.chosen_version import VersionChoice
from lakefold.branching.ref_proposals import (
    branching,
    check_branch,
    check_free,
    deleting,
    id_of_branch,
    main_branch,
    send_restore,
    tagging,
    untagging,
)
from lakefold.branching.revert import RevertReport, all_but, send_revert
from lakefold.console.options import Point
from lakefold.console.outcomes import result_text
from lakefold.console.settings import BrokerOptions
from lakefold.proposals.logged_proposal import send_and_wait
from lakefold.writing.options import function_settings
from lakefold_log.write.authorship import check_message
from lakefold_table.branch_names import check_branch_name
from lakefold_table.entry import Invalid, Outcome, RefusedError, Rejected
from lakefold_table.errors import InvalidError, Text
from lakefold_table.versions.table_address import TableAddress

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from lakefold.console.settings import Settings
    from lakefold_protos.lakefold.log_pb2 import Envelope

WAIT_S: Final = 60.0
"""How many seconds a function waits for an outcome if no other time is given."""


class ProposalOptions(BrokerOptions, total=False):
    """Options of functions that send one proposal: `BrokerOptions`, and `commit_message`, which says why.

    `lakefold log` and `explain` show it.
    """

    commit_message: str


class VersionOptions(ProposalOptions, total=False):
    """`ProposalOptions`, and how a version is chosen: by one of these, or the newest one if none is given.

    `version`: its number. `tag`: its tag. `as_of`: when it was the newest, ISO 8601. `at_position`: a
    position of the log that it was the first to contain. `branch`: the branch that has it.
    """

    version: int | None
    tag: str | None
    as_of: str | None
    at_position: str | None
    branch: str | None


def tag(
    table: str | os.PathLike[str],
    name: str,
    *,
    move: bool = False,
    delete: bool = False,
    **options: Unpack[VersionOptions],
) -> Outcome:
    """Gives a version of a table a name, through the log. Clean-ups keep a version that a tag names.

        lakefold.tag("s3://lake/flights.lance", "release-3", version=7)
        lakefold.open("s3://lake/flights.lance", tag="release-3")

    The version is the newest one, or the one that `options` choose. `move`: a tag of this name that exists
    names it from now on. `delete`: the tag is removed; the version stays until a clean-up.

    Raises `RefusedError` (with `.outcome`) if it was refused, e.g. because the tag exists, `InvalidError` for
    a wrong option or a consumer's tag, `RetryError` if no outcome came in time: it may still be folded.
    """
    settings = settings_of(options)
    check_free(name)
    if delete:
        return _sent(settings, untagging(str(table), name, settings), options)
    chosen = _choice(options).find_with_refs(str(table), settings.storage_options)
    return _sent(settings, tagging(chosen, name, move=move), options)


def branch(
    table: str | os.PathLike[str], name: str, *, delete: bool = False, **options: Unpack[VersionOptions]
) -> Outcome | None:
    """Begins a branch of a table, through the log. It shares the files of the version that it begins at.

        lakefold.branch("s3://lake/flights.lance", "audit")
        lakefold.append("s3://lake/flights.lance/tree/audit", rows)
        lakefold.open("s3://lake/flights.lance", branch="audit")

    The version is the newest one, or the one that `options` choose. `delete`: the branch is deleted with its
    versions and files, which can't be undone. If that was interrupted, another call continues; it returns
    None if the log has the deletion already.

    Raises `RefusedError` (with `.outcome`) if it was refused, e.g. because the branch exists or is needed,
    `InvalidError` for a wrong option, `RetryError` if no outcome came in time: it may still be folded.
    """
    settings = settings_of(options)
    check_branch_name(name)
    if not delete:
        chosen = _choice(options).find_with_refs(str(table), settings.storage_options)
        return _sent(settings, branching(chosen, name), options)
    main = main_branch(str(table), settings)
    address, outcome = TableAddress(main.uri, settings.storage_options), None
    if not is_deleted(address, name):
        outcome = _sent(settings, deleting(main.uri, name, id_of_branch(main, name)), options)
    remove_files(address, name, lambda _: None)
    return outcome


@overload
def restore(
    table: str | os.PathLike[str], *, except_: None = None, **options: Unpack[VersionOptions]
) -> Outcome: ...


@overload
def restore(
    table: str | os.PathLike[str],
    *,
    except_: str | Iterable[str | tuple[str, int]],
    **options: Unpack[VersionOptions],
) -> RevertReport: ...


def restore(
    table: str | os.PathLike[str],
    *,
    except_: str | Iterable[str | tuple[str, int]] | None = None,
    **options: Unpack[VersionOptions],
) -> Outcome | RevertReport:
    """Publishes a new version of a table with the rows and columns of an earlier one, through the log.

        why = "the load of Tuesday was wrong"
        lakefold.restore("s3://lake/flights.lance", version=7, commit_message=why)
        lakefold.append("s3://lake/flights.lance", rows, app_id="loader", batch_id=8)
        lakefold.restore("s3://lake/flights.lance", version=7, except_=["loader:8"])

    The versions after it stay readable. Their batches are remembered, so to put rows back send them with
    `on_rolled_back="again"`, or under another app id. `lakefold restore --dry-run` prints which batches it
    would undo. The restore of a Delta table is built again if others commit at the same time, 10 times at
    most.

    With `except_` only these batches are undone, and all else that came after the version stays, as if it was
    restored and everything was put on again but for them. The result is that of `lakefold.revert`, with its
    errors; a batch that the version contains already is an error.

    Raises `RefusedError` (with `.outcome`) if it was refused, `InvalidError` if no version is named,
    `VersionExpiredError` if its files are gone, `RetryError` if no outcome came in time.
    """
    settings, choice = settings_of(options), _choice(options)
    if choice.is_newest:
        raise InvalidError("no version is named", hint="give version=, tag=, as_of= or at_position=")
    chosen = choice.find(str(table), settings.storage_options)
    check_branch(chosen, str(table))
    wait_s, message = options.get("timeout", WAIT_S), options.get("commit_message", "")
    if except_ is not None:
        request = all_but(except_, chosen.version)
        return send_revert(settings, chosen.source, request, wait_s=wait_s, properties={}, message=message)
    return checked(send_restore(settings, chosen, wait_s, message))


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Returns the settings of a function with these options. Raises `InvalidError` for a wrong option."""
    known = {**ProposalOptions.__annotations__, **VersionOptions.__annotations__}
    settings = function_settings(options, known)
    check_message(options.get("commit_message", ""))
    return settings


def _choice(options: VersionOptions) -> VersionChoice:
    point = Point(options.get("as_of"), options.get("at_position"))
    number, tag = options.get("version"), options.get("tag")
    given = [each for each in (number, tag, point.as_of, point.at_position) if each is not None]
    if len(given) > 1 or (tag is not None and options.get("branch") is not None):
        message = "a version is chosen by one of version, tag, as_of and at_position; a tag has its branch"
        raise InvalidError(message, hint="give one of them")
    return VersionChoice(number, tag, options.get("branch"), point)


def _sent(settings: Settings, envelope: Envelope, options: ProposalOptions) -> Outcome:
    wait_s, message = options.get("timeout", WAIT_S), options.get("commit_message", "")
    return checked(send_and_wait(settings, envelope, wait_s, message))


def checked(outcome: Outcome, hint: Text = "") -> Outcome:
    """Returns an outcome. Raises `RefusedError` with this hint if it is a refusal."""
    if isinstance(outcome.result, Rejected | Invalid):
        raise RefusedError(result_text(outcome), outcome=outcome, where=outcome.table, hint=hint)
    return outcome
