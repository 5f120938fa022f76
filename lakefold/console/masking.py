"""Hides secrets in log lines, both our own and those of libraries that quote their options.

`settings.py` masks settings by their names when it prints them. A log line may contain an option or a URI in
the middle of a sentence, so this module searches the text of sentences as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

MASK: Final = "***"
_SECRET_NAME = re.compile(
    r"(?:passw|secret|token|credential|(?:private|access|account|sas|master|encryption)[_.]key|key\.pem|"
    r"sasl\.jaas|signature|connection[_.]string)"
    r"[\w.\-]{0,40}",
    re.IGNORECASE,
)
# `sasl.password=x`, `"secret": "x"`, `secret_access_key: x`.
_ASSIGNED = re.compile(
    rf"({_SECRET_NAME.pattern}[\"']?\s?[=:]\s?)(\"[^\"]*\"|'[^']*'|[^\s,;&)}}\]\"']+)", re.IGNORECASE
)
_LOGIN_IN_URI = re.compile(r"(?<=://)[^/@\s:]{0,256}:[^/@\s]{0,1024}(?=@)")


def masked(text: str) -> str:
    """Returns the text with the values of secret options and the logins inside URIs replaced by `MASK`."""
    if "://" in text:
        text = _LOGIN_IN_URI.sub(MASK, text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(rf"\1{MASK}", text)
    return text


def is_secret(name: str) -> bool:
    """Returns whether an option of this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def mask_line(_: object, __: str, line: MutableMapping[str, object]) -> MutableMapping[str, object]:
    """Masks each value of a log line. This is a structlog processor."""
    for name, value in line.items():
        line[name] = MASK if value and _SECRET_NAME.search(name) else _masked_value(value)
    return line


def _masked_value(value: object) -> object:
    """Returns the value masked; of a dictionary or list, each of its values."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return mask_line(None, "", dict(value))
    if isinstance(value, list | tuple):
        return [_masked_value(item) for item in value]
    return value
