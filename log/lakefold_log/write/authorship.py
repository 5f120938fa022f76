"""Says in each proposal who sent it, unless its sender has said so or the user doesn't let it.

The setting `author` is the name that is given; `none` has proposals name neither an author nor a program. If
it is not set, the name is the user's and the machine's, e.g. `anna@ingest-7`.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from lakefold_table.author import MAX_MESSAGE, MAX_NAME
from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope

NO_AUTHOR: Final = "none"
"""The setting `author` of a user who doesn't let proposals say who sent them."""
_OWN_PROGRAMS: Final = ("lakefold", "__main__.py")


def check_message(message: str) -> None:
    """Raises `InvalidError` if a message of a proposal is longer than a version keeps."""
    if len(message) > MAX_MESSAGE:
        text = f"it has {len(message):,} characters, more than {MAX_MESSAGE}"
        raise InvalidError(text, where=OptionName("commit_message"), hint="write a shorter message")


def sign(envelope: Envelope, author: str) -> None:
    """Adds to a proposal who sends it (`author`, empty for the user and the machine).

    One that names its author already is not changed, e.g. one that is sent again by somebody else.
    """
    is_named = envelope.HasField("author") and envelope.author.name
    if is_named or author.lower() == NO_AUTHOR:
        return
    envelope.author.name = (author or _user_and_machine())[:MAX_NAME]
    envelope.author.program = _program(tuple(sys.argv[:2]))[:MAX_NAME]


@cache
def _user_and_machine() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A container may run under a number that has no name.
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    return f"{user}@{socket.gethostname()}" if user else socket.gethostname()


@cache
def _program(arguments: Sequence[str]) -> str:
    """Returns the program and the release, of Lakefold's own commands with the verb."""
    path = PurePath(arguments[0] if arguments else "")
    # A worker of Spark is not the program that the user has started.
    name = "" if "pyspark" in path.parts else path.name
    if name in _OWN_PROGRAMS and len(arguments) > 1 and arguments[1].replace("-", "").isalpha():
        name = f"lakefold {arguments[1]}"
    return f"{name}, {_release()}" if name and name not in ("-c", "-m") else _release()


@cache
def _release() -> str:
    try:
        return f"Lakefold {version('lakefold')}"
    except PackageNotFoundError:
        return "Lakefold"
