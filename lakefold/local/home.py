"""Remembers, in `.lakefold/` of a folder, which local broker `lakefold up` started there.

So the other verbs find it without being told, and `down` stops the right one.
"""

from __future__ import annotations

import json
from pathlib import Path

from lakefold.local.broker import Broker

HOME = ".lakefold"
_POINTER = "broker.json"


def default_folder(folder: Path | None = None) -> Path:
    """Give the folder that keeps a local broker's files where nobody chose another."""
    return _home(folder) / "broker"


def known_broker(folder: Path | None = None) -> Broker | None:
    """Give the broker that `up` started in `folder` (default: the current one), running or crashed."""
    try:
        told = json.loads((_home(folder) / _POINTER).read_text())
    except FileNotFoundError:
        return None
    return Broker(_home(folder) / told["folder"])


def remember(broker: Broker, folder: Path | None = None) -> None:
    """Make `broker` the one that is found in `folder`; a path below `.lakefold` is kept relative."""
    home = _home(folder)
    home.mkdir(parents=True, exist_ok=True)
    below = broker.directory.is_relative_to(home)
    told = {"folder": str(broker.directory.relative_to(home) if below else broker.directory)}
    (home / _POINTER).write_text(json.dumps(told))


def forget(folder: Path | None = None) -> None:
    """Let `folder` know no broker; the broker and its files are left alone."""
    (_home(folder) / _POINTER).unlink(missing_ok=True)


def _home(folder: Path | None) -> Path:
    return (folder or Path.cwd()).absolute() / HOME
