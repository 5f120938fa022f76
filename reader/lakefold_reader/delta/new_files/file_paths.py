"""The paths of new data files, by the partitions that they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.actions.paths import encode_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

Values = tuple[str | None, ...]
"""The values of the partition columns as the log has them, in their order; None is null."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_MOST_FOLDER: Final = 180
"""The longest value in a folder's name. The name only helps people: the log has the whole value."""


def folder_of(names: Sequence[str], values: Values) -> str:
    """Returns the folder of a partition's files, with a slash at its end; empty without partitions."""
    parts = (
        f"{encode_percent(name)}={_NULL if value is None else _cut(encode_percent(value))}/"
        for name, value in zip(names, values, strict=True)
    )
    return "".join(parts)


def log_path(path: str) -> str:
    """Returns the path of a data file as the log has it (Delta fact 3.1)."""
    return "/".join(encode_percent(part).replace("%3D", "=") for part in path.split("/"))


def _cut(text: str) -> str:
    """Returns a percent-encoded text that is not too long for a name, without half of an escape."""
    if len(text) <= _MOST_FOLDER:
        return text
    cut = text[:_MOST_FOLDER]
    return cut if "%" not in cut[-2:] else cut[: cut.rindex("%")]
