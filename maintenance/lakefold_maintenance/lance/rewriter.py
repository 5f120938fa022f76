"""Rewrites fragments with pylance's own compaction tasks. Only this module of maintenance imports pylance.

pylance plans by its own rules; here a task is given the fragments of our plan, in pylance's JSON form. It
reads them at the version of the survey, without the deleted rows, and writes one new fragment. Nothing is
committed: no version names the new files until the committer has accepted the proposal.

Memory is bounded by the number of threads and the batches that each of them reads, not by the fragments'
size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lakefold_maintenance.format import TableSurvey, TaskLimits
from lakefold_maintenance.lance.survey import fragments_of
from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_reader.lance.read_errors import explained
from lakefold_reader.pylance.errors import translated_errors
from lakefold_reader.pylance.process import check_process
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.packages import explained_imports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance import LanceDataset

    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_reader.format.source import Source

_DELETION_TYPES: Final = ("array", "bitmap")
_INLINE: Final = (
    ("inline_row_ids", "row_id_meta", "Inline"),
    ("inline_last_updated_at_versions", "last_updated_at_version_meta", "inline"),
    ("inline_created_at_versions", "created_at_version_meta", "inline"),
)
"""Of each sequence that a fragment may have: its field, and pylance's two names for it."""


@dataclass(frozen=True, slots=True)
class RewrittenTask:
    """See `RewriteResult`. `old`, `new`: the fragments that were read and written."""

    task: RewriteTask
    old: Sequence[DataFragment]
    new: Sequence[DataFragment]

    @property
    def files(self) -> list[str]:
        """The paths of the new files in the table."""
        return [data_path(file.path) for fragment in self.new for file in fragment.files]


class Rewriter:
    """Runs tasks on a version of a table, which is opened when the first task is run."""

    def __init__(self, source: Source, version: int, limits: TaskLimits | None = None) -> None:
        self._source = source
        self._version = version
        self._limits = limits or TaskLimits()

    def run(self, task: RewriteTask, old: Sequence[DataFragment]) -> RewrittenTask:
        """Rewrites the fragments of a task and returns when the new files are durable.

        `old`: the fragments as the version has them. Raises `DamagedError` or `VersionExpiredError` if a file
        can't be read, `RetryError` if the store can't be reached or is full, `InvalidError` if it refuses the
        files.
        """
        with explained(self._source, self._version), translated_errors(self._source.uri):
            # Opening the version fails too if another maintainer has removed it.
            options = {
                **self._options,
                # A new fragment, whatever the policy's target: the plan decides how large it becomes.
                "target_rows_per_fragment": max(task.rows, 1),
                "defer_index_remap": False,
                "num_threads": self._limits.threads,
                "batch_size": self._limits.batch_rows,
            }
            document = {
                "task": {"fragments": [_as_json(fragment) for fragment in old]},
                "read_version": self._version,
                "options": options,
            }
            result = self._execute(document)
        rewritten = RewrittenTask(
            task,
            old,
            [_from_json(each) for each in result["new_fragments"]],
        )
        self._source.storage.make_durable(rewritten.files)
        return rewritten

    def _execute(self, document: Mapping[str, object]) -> dict[str, Any]:
        from lance.optimize import CompactionTask

        task = CompactionTask.from_json(json.dumps(document))  # type: ignore[attr-defined] # not in its stubs
        result: dict[str, Any] = json.loads(task.execute(self._dataset).json())
        return result

    @cached_property
    def _dataset(self) -> LanceDataset:
        return open_dataset(self._source, self._version)

    @cached_property
    def _options(self) -> dict[str, object]:
        """Returns all options of a task with pylance's defaults for this table: a task needs each of them."""
        dataset = self._dataset
        from lance.optimize import Compaction

        # No fragment has less than one row, so nothing is planned.
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": 1, "materialize_deletions": False})
        document: str = plan.json()  # type: ignore[attr-defined] # not in its stubs
        options: dict[str, object] = json.loads(document)["options"]
        return options


class LanceRewriter:
    """See `TableRewriter`."""

    def __init__(self, survey: TableSurvey, limits: TaskLimits) -> None:
        self._survey = survey
        self._rewriter = Rewriter(survey.source, survey.version, limits)

    def run(self, task: RewriteTask) -> RewrittenTask:
        """See `TableRewriter.run`."""
        return self._rewriter.run(task, fragments_of(self._survey, task))


def open_dataset(source: Source, version: int) -> LanceDataset:
    """Returns a version as pylance opens it."""
    with explained_imports():
        import lance

    check_process()
    return lance.dataset(source.uri, version=version, storage_options=dict(source.options) or None)


def _as_json(fragment: DataFragment) -> dict[str, object]:
    """Returns the fragment in pylance's form. Raises `InvalidError` for what pylance can't rewrite."""
    if fragment.overlays:
        message = f"fragment {fragment.id} has overlays, which can't be compacted"
        raise InvalidError(message, hint="pylance doesn't open such tables")
    form: dict[str, object] = {
        "id": fragment.id,
        "files": [_file_as_json(file) for file in fragment.files],
        "physical_rows": fragment.physical_rows,
    }
    if fragment.HasField("deletion_file"):
        deletion = fragment.deletion_file
        form["deletion_file"] = {
            "read_version": deletion.read_version,
            "id": deletion.id,
            "file_type": _DELETION_TYPES[deletion.file_type],
            "num_deleted_rows": deletion.num_deleted_rows or None,
            "base_id": deletion.base_id if deletion.HasField("base_id") else None,
        }
    for field, name, tag in _INLINE:
        sequence: bytes = getattr(fragment, field)
        if sequence:
            form[name] = {tag: list(sequence)}
    return form


def _file_as_json(file: DataFile) -> dict[str, object]:
    return {
        "path": file.path,
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.file_major_version,
        "file_minor_version": file.file_minor_version,
        "file_size_bytes": file.file_size_bytes or None,
        "base_id": file.base_id if file.HasField("base_id") else None,
    }


def _from_json(form: Mapping[str, Any]) -> DataFragment:
    """Returns a new fragment, without an id: the committer numbers it."""
    fragment = DataFragment(physical_rows=form["physical_rows"])
    for file in form["files"]:
        fragment.files.add(
            path=file["path"],
            fields=file["fields"],
            column_indices=file["column_indices"],
            file_major_version=file["file_major_version"],
            file_minor_version=file["file_minor_version"],
            file_size_bytes=file["file_size_bytes"] or 0,
        )
    for field, name, tag in _INLINE:
        if name in form:
            if tag not in form[name]:
                raise DamagedError(f"pylance wrote {name} in a form that is not known: {list(form[name])}")
            setattr(fragment, field, bytes(form[name][tag]))
    return fragment
