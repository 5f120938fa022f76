"""The registry of formats whose rows are found and changed: opens a version in the format of its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_ingest.delta.view import DeltaView
from lakefold_ingest.lance.view import lance_view
from lakefold_ingest.merge.delta.version_changes import open_delta_version
from lakefold_ingest.merge.lance.version_changes import open_lance_version, whole_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_ingest.merge.read_version import ReadVersion
    from lakefold_ingest.rows.target import Target
    from lakefold_ingest.view import TableSettings, View


def open_read_version(view: View, storage_options: Mapping[str, str]) -> ReadVersion:
    """Opens the version of `view`. Raises `InvalidError` if rows of the table can't be found or changed."""
    if isinstance(view, DeltaView):
        return open_delta_version(view, storage_options)
    return open_lance_version(lance_view(view, "changing rows"), storage_options)


def target_of(view: View, settings: TableSettings) -> Target:
    """Returns where and how rows with all columns of the table are written."""
    if isinstance(view, DeltaView):
        return view.whole_rows(settings)
    return whole_rows(lance_view(view, "changing rows"), settings)
