"""Records in `.lakefold/` which local broker `lakefold up` started in a folder.

So the other verbs find it without a setting, and `down` stops the right broker.
"""

from __future__ import annotations

import os
from pathlib import Path

from lakefold.local.broker import Broker
from lakefold.local.records import read_record, write_record

HOME = ".lakefold"
_POINTER = "broker.json"


def default_folder() -> Path:
    """Returns the folder for a local broker's files if `--dir` names no other folder."""
    return _home(None) / "broker"


def known_broker(folder: Path | None = None) -> Broker | None:
    """Returns the broker that `up` started in `folder` (default: the current folder), running or not.

    Returns None if `up` started none there, or `down` has stopped it.
    """
    noted = read_record(_home(folder) / _POINTER).get("folder")
    return Broker(_home(folder) / noted) if isinstance(noted, str) else None


def nearest_broker() -> Broker | None:
    """Returns the broker of the current folder, else of the nearest folder above it that has one.

    A folder above counts only if its record belongs to this user: in e.g. `/tmp` others could name theirs.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        record = _home(folder) / _POINTER
        try:
            is_own = folder == here or record.stat().st_uid == os.getuid()
        except OSError:
            continue
        known = known_broker(folder) if is_own else None
        if known is not None:
            return known
    return None


def remember(broker: Broker, folder: Path | None = None) -> None:
    """Records `broker` as the broker of `folder`. A path inside `.lakefold` is stored as a relative path."""
    home = _home(folder)
    home.mkdir(parents=True, exist_ok=True)
    below = broker.directory.is_relative_to(home)
    noted = str(broker.directory.relative_to(home) if below else broker.directory)
    write_record(home / _POINTER, {"folder": noted})


def forget(folder: Path | None = None) -> None:
    """Removes the record of the broker of `folder`. The broker and its files stay as they are."""
    (_home(folder) / _POINTER).unlink(missing_ok=True)


def _home(folder: Path | None) -> Path:
    return (folder or Path.cwd()).absolute() / HOME
