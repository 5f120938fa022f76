"""What a URI of Google or Azure names, and the numbers among the options: told without their client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

AZURE_HOSTS: Final = (".core.windows.net", ".fabric.microsoft.com")


def bucket_of(uri: str, authority: str) -> tuple[str, dict[str, str]]:
    """The bucket or container, and what the URI itself says of the account."""
    bucket, at, host = authority.partition("@")
    if not at:
        return bucket, {}
    if uri.startswith("gs:") or not host.endswith(AZURE_HOSTS):
        hint = (
            "write az://CONTAINER/PATH, with azure_storage_account_name or azure_endpoint among the options"
        )
        raise InvalidError(f"{host} is no known host of Azure's", where=uri, hint=hint)
    named = {"azure_storage_account_name": host.partition(".")[0]}
    if host.endswith(".fabric.microsoft.com"):
        named["azure_use_fabric_endpoint"] = "true"
    return bucket, named


def number_in(uri: str, given: Mapping[str, str], key: str, default: int) -> int:
    """A whole number among the options."""
    if (text := given.get(key, str(default))).isdecimal():
        return int(text)
    raise InvalidError(f"{key} is {text}", where=uri, hint="give a whole number")
