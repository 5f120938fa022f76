"""The paths of new data files, by the partitions that they are in."""

from __future__ import annotations

import secrets
import string
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.actions.paths import encode_percent
from lakefold_table.delta.table_features.partition_values import NULL_PARTITION
from lakefold_table.delta.table_features.property_values import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Values = tuple[str | None, ...]
"""The values of the partition columns as the log has them, in their order; None is null."""
RANDOM: Final = "delta.randomizeFilePrefixes"
"""With true, files are in folders with random names: a store that is divided by names shares its load."""
RANDOM_LENGTH: Final = "delta.randomPrefixLength"
_FEW_LETTERS: Final = 2
_LETTERS: Final = string.ascii_lowercase + string.digits
_MOST_FOLDER: Final = 180
"""The longest value in a folder's name. The name only helps people: the log has the whole value."""


def folder_of(names: Sequence[str], values: Values) -> str:
    """Returns the folder of a partition's files, with a slash at its end; empty without partitions."""
    parts = (
        f"{encode_percent(name)}={NULL_PARTITION if value is None else _cut(encode_percent(value))}/"
        for name, value in zip(names, values, strict=True)
    )
    return "".join(parts)


def prefix_length(configuration: Mapping[str, str | None]) -> int:
    """Returns how many letters the random folder of each new file has, 0 if the table wants none."""
    if (configuration.get(RANDOM) or "").lower() != "true":
        return 0
    length = number_of(configuration.get(RANDOM_LENGTH))
    return _FEW_LETTERS if length is None or length < 1 else min(length, _MOST_FOLDER)


def random_folder(length: int) -> str:
    """Returns the name of a folder with a slash at its end; empty if it is to have no letters."""
    return f"{''.join(secrets.choice(_LETTERS) for _ in range(length))}/" if length else ""


def log_path(path: str) -> str:
    """Returns the path of a data file as the log has it (Delta fact 3.1)."""
    return "/".join(encode_percent(part).replace("%3D", "=") for part in path.split("/"))


def _cut(text: str) -> str:
    """Returns a percent-encoded text that is not too long for a name, without half of an escape."""
    if len(text) <= _MOST_FOLDER:
        return text
    cut = text[:_MOST_FOLDER]
    return cut if "%" not in cut[-2:] else cut[: cut.rindex("%")]
