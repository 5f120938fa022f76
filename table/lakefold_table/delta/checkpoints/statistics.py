"""Statistics of a file as a checkpoint may hold them: in columns, instead of the JSON of the add action.

A table with `delta.checkpoint.writeStatsAsJson` = false has them in `stats_parsed` alone (Delta fact 4.2).
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from lakefold_table.delta.json_text import to_json


def stats_text(parsed: dict[str, Any]) -> str:
    """Returns the statistics as the JSON of a commit. Values that JSON can't hold are left out."""
    return to_json(_member(parsed))


def _member(content: Any) -> Any:  # noqa: ANN401 - any value of a column
    match content:
        case dict():
            members = {name: _member(each) for name, each in content.items()}
            return {name: each for name, each in members.items() if each is not None}
        case dt.datetime():
            text = content.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return text if content.tzinfo is None else f"{text}Z"
        case dt.date():
            return content.isoformat()
        case Decimal():
            return float(content)
        case float():
            return content if content - content == 0 else None
        case bytes():
            return None
        case _:
            return content
