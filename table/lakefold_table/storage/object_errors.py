"""What the words of obstore's errors tell: its classes say too little, its sentences too much.

Most faults come as one class, whatever the server answered, and the text holds the whole URL (a signature
may stand in its query) and pages of what lies behind. So the status, the server's own code and one line for
people are taken out of the text here.
"""

from __future__ import annotations

import re
from typing import Final

_STATUS: Final = re.compile(r"(?:status code:|\(code:) (\d{3}) ?([A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^\n<]+)")
_CAUSE: Final = re.compile(r'(?:message|error): "([^"]+)"|kind: (Timeout)\b|\b(IncompleteMessage)\b')
_QUERY: Final = re.compile(r"\?\S*")
_JSON: Final = re.compile(r"\{.*", re.DOTALL)


def status_of(error: Exception) -> int:
    """The HTTP status of an answer, 0 where there was none."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def code_of(error: Exception) -> str:
    """The code that the server gave with its answer, the empty text where it gave none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def in_words(error: Exception) -> str:
    """What happened, in a line without any URL."""
    text = str(error)
    if answer := _STATUS.search(text):
        message = _MESSAGE.search(text)
        return f"the store answered {answer[1]} {answer[2]}".rstrip() + (f": {message[1]}" if message else "")
    words = _QUERY.sub("", text.partition("\n")[0]).rpartition(" - ")[2]
    cause = _CAUSE.search(text)
    return f"{words}: {next(filter(None, cause.groups()))}" if cause else words


def without_key(words: str) -> str:
    """The words about settings, without JSON: a key in the place of its file's name is told as that name."""
    return _JSON.sub("{…", words)
