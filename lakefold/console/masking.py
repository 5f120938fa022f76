"""Hides secrets in what is logged, whoever wrote it: our own parts, or a library that quotes its options.

Settings are masked where they are printed (`settings.py`), by their names. A log line may hold an option or a
URI in the middle of a sentence, so here the sentences are searched too.
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
    """The text without the values of what is called a secret, and without logins inside URIs."""
    if "://" in text:
        text = _LOGIN_IN_URI.sub(MASK, text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(rf"\1{MASK}", text)
    return text


def is_secret(name: str) -> bool:
    """Whether an option of this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def mask_line(_: object, __: str, line: MutableMapping[str, object]) -> MutableMapping[str, object]:
    """A structlog processor: masks each value of a line."""
    for name, value in line.items():
        line[name] = MASK if value and _SECRET_NAME.search(name) else _masked_value(value)
    return line


def _masked_value(value: object) -> object:
    """The value, or what it is made of, masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return mask_line(None, "", dict(value))
    if isinstance(value, list | tuple):
        return [_masked_value(one) for one in value]
    return value
