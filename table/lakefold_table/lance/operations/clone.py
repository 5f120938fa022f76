"""Clone: creates a table from a version of another table, which shares its files or has copies of them.

A branch is a shallow clone in a folder below the root of the main branch. The first version keeps the number
of the version that was cloned. A shallow clone names the source as a further base path of files (Lance facts
1.7, 1.8 and 6.15).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import BasePath, DataFragment, IndexSection, Manifest
from lakefold_table.branch_names import branch_root, check_branch_name
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.errors import InvalidError
from lakefold_table.format import Fetched, Requirements
from lakefold_table.lance.conflicts import History
from lakefold_table.lance.manifests.features import check_writable
from lakefold_table.lance.manifests.fragments import Fragments, Numbered
from lakefold_table.lance.manifests.live_files import LiveFiles
from lakefold_table.lance.manifests.naming import MAX_SEGMENT, Scheme, is_detached
from lakefold_table.lance.operations.update_bases import free_id, with_bases
from lakefold_table.lance.refs.names import branch_path
from lakefold_table.lance.state import LanceState
from lakefold_table.nesting import needs_around, neighbour_fault
from lakefold_table.roots import above, below, is_whole
from lakefold_table.version_mark import mark_of, version_fault

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFile, DeletionFile, IndexMetadata
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.change import Proposal
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: the source's version and other tables nearby; none if the table exists."""
    clone = envelope.lance.clone
    if state is not None or _request_fault(envelope) is not None:
        return Requirements()
    source = Requirements(states=frozenset({(clone.ref_path, clone.ref_version)}))
    return Requirements.all_of([source, needs_around(_root_of(envelope), clone.branch_name)])


def change(table: VersionBuilder, _proposal: Proposal) -> Rejected:
    """Returns a refusal: a clone creates a table, and this table exists."""
    version = table.version - 1
    return Rejected(
        Conflict(
            retryable=False,
            message=f"the table exists already, at version {version}: clone to another path",
            other_version=version,
        )
    )


def begin(envelope: Envelope, fetched: Fetched) -> LanceState | Invalid:
    """Returns the first version of the clone, without its time, marks and transaction.

    Returns `Invalid` if the clone is not possible. Reads all fragments of the source, since each file has to
    name its base.
    """
    fault = _request_fault(envelope)
    if fault is not None:
        return fault
    clone = envelope.lance.clone
    fault = neighbour_fault(_root_of(envelope), fetched.neighbours, clone.branch_name)
    if fault is not None:
        return fault
    source = fetched.states.get((clone.ref_path, clone.ref_version))
    if not isinstance(source, LanceState):
        return Invalid(
            f"version {clone.ref_version} of {clone.ref_path} does not exist or can't be read from here",
            "name the root of a table below the committer's roots, and one of its versions",
        )
    by = fetched.deleted.get(clone.ref_path)
    if by is not None and clone.is_shallow:
        # Its files are about to be removed, or are being removed.
        return Invalid(
            f"the branch {source.branch} at {clone.ref_path} was deleted by the proposal at {by}",
            "clone a version of another branch",
        )
    fault = version_fault(envelope, clone.ref_version, mark_of(source)) or _source_fault(envelope, source)
    if fault is not None:
        return fault
    return _shallow(clone, source) if clone.is_shallow else _deep(source)


def _request_fault(envelope: Envelope) -> Invalid | None:
    """Returns what is wrong with the proposal itself, whatever the source has."""
    transaction, clone = envelope.lance, envelope.lance.clone
    if not is_whole(clone.ref_path):
        return Invalid(
            f"the clone's source {clone.ref_path!r} is not an absolute path or URI", "give the whole path"
        )
    if not clone.ref_version or is_detached(clone.ref_version):
        return Invalid(
            f"a clone can't begin with version {clone.ref_version}", "name a version of the source's branch"
        )
    if transaction.read_version not in (0, clone.ref_version):
        return Invalid(
            f"the clone is of version {clone.ref_version}, its read version is {transaction.read_version}",
            "set the read version to the version that is cloned",
        )
    if envelope.branch and not clone.HasField("branch_name"):
        return Invalid(
            f"the clone doesn't say that it is the branch {envelope.branch}", "set its branch_name"
        )
    return _branch_fault(envelope) if clone.HasField("branch_name") else None


def _branch_fault(envelope: Envelope) -> Invalid | None:
    """Returns why the clone can't be this branch.

    Clients find a branch by its name, from which its folder follows.
    """
    clone = envelope.lance.clone
    if not clone.is_shallow:
        return Invalid(
            "a deep clone can't be a branch", "make the clone shallow, or leave the branch's name out"
        )
    try:
        check_branch_name(clone.branch_name)
    except InvalidError as error:
        return Invalid(error.message, error.hint)
    file = branch_path(clone.branch_name).rpartition("/")[2]
    if len(file) > MAX_SEGMENT:
        return Invalid(f"the branch's file would be called {file}, which is too long", "give a shorter name")
    root = branch_root(clone.branch_name)
    clone_root = _root_of(envelope)
    if above(clone_root, root) != clone_root:
        return None
    return Invalid(
        f"the branch {clone.branch_name} can't be stored at {clone_root}",
        "name the same branch in the envelope and in the clone",
    )


def _source_fault(envelope: Envelope, source: LanceState) -> Invalid | None:
    """Returns why the source can't be cloned, or for a branch, why it isn't a branch of this table."""
    clone, parent = envelope.lance.clone, source.branch
    try:
        check_writable(source.head, clone.ref_path)
    except InvalidError as error:
        return Invalid(str(error), error.hint)
    if not clone.HasField("branch_name"):
        return None
    if clone.ref_name != parent:
        return Invalid(
            f"{clone.ref_path} is {f'the branch {parent}' if parent else 'not a branch'}, "
            f"the clone calls it {clone.ref_name!r}",
            "name the source's branch in ref_name; leave ref_name out for the main branch",
        )
    main = above(_root_of(envelope), branch_root(clone.branch_name))
    if parent and above(main, branch_root(parent)) != main:
        return Invalid(
            "a branch of a branch is stored below the main branch's root",
            "send the clone to the table of the main branch",
        )
    return None


def _root_of(envelope: Envelope) -> str:
    """Returns the root URI of the clone."""
    root = branch_root(envelope.branch or None)
    return below(envelope.table, root) if root else envelope.table


def _shallow(clone: Transaction.Clone, source: LanceState) -> LanceState:
    """Returns the source's version, its own files under a new base, which gets the lowest free id from 0."""
    base = BasePath(is_dataset_root=True, path=clone.ref_path)
    base.id = free_id({base_path.id for base_path in source.head.base_paths}, 0)
    if clone.HasField("ref_name"):
        base.name = clone.ref_name
    head = with_bases(source.head, [*source.head.base_paths, base])
    head.ClearField("branch")
    if clone.HasField("branch_name"):
        head.branch = clone.branch_name
    return _relocated(source, head, base.id)


def _deep(source: LanceState) -> LanceState:
    """Returns the source's version, all its files in the clone itself: the writer has copied them."""
    head = with_bases(source.head, ())
    head.ClearField("branch")
    return _relocated(source, head, None)


def _relocated(source: LanceState, head: Manifest, base: int | None) -> LanceState:
    """Returns the source with its own files under `base`, or with all files in the table itself if None."""
    section = IndexSection.FromString(source.index_section)
    for index in section.indices:
        _set_base(index, base)
    fragments = Fragments.of(
        Numbered.of(_fragment_with_base(fragment, base)) for fragment in source.fragments
    )
    return replace(
        source,
        head=head,
        fragments=fragments,
        files=LiveFiles.of(fragments, head.base_paths),
        index_section=section.SerializeToString(deterministic=True),
        transaction=None,
        history=History(source.version, {}),
        scheme=Scheme.V2,
    )


def _fragment_with_base(fragment: DataFragment, base: int | None) -> DataFragment:
    for file in fragment.files:
        _set_base(file, base)
    if fragment.HasField("deletion_file"):
        _set_base(fragment.deletion_file, base)
    return fragment


def _set_base(file: DataFile | DeletionFile | IndexMetadata, base: int | None) -> None:
    if base is None:
        file.ClearField("base_id")
    elif not file.HasField("base_id"):
        file.base_id = base
