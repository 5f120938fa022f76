"""The stores that a table's objects can be in: one small set of calls, and a module for each kind of store.

`open_storage` picks the store by the scheme of the table's canonical URI. A reader fetches whole objects,
their heads or their tails. A writer stores the files that no version names yet by `put_if_absent` or `put`,
and then the file that makes the version by `put_if_absent`: `STORED` means that the version exists and
survives a crash, `EXISTS` that another writer was first, and after a `DoubtfulPutError` only reading back
shows which of the two it was.

`base` has what every store promises, and does what a store can do no better; `paths` has what may name an
object. `local` is a folder: `durable` orders its system calls, `os_errors` says what a failed call means.
`s3` is a bucket: `aws` makes its clients from `aws_options` and translates their errors, `multipart` uploads
what is too large for one request. `objects` is a bucket at Google or Azure. The package `manifest_stores`,
which knows how versions are named, has buckets whose versions are committed in another store. Tests have a
store in memory as well, which can plan faults. A single suite, `tests/contracts/behaviour.py`, checks what
holds for all of them. `option_names` warns of options that no store has.

If the client library of a store isn't installed, the error names the extra that contains it. Other stores
don't need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, LocationError, OptionName
from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.option_names import warn_unknown
from lakefold_table.uri import FILE, NOT_BUILT, canonical, parse_location

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from lakefold_table.storage.base import Storage

__all__ = ["open_canonical", "open_storage"]

OPENERS: Final[dict[str, Callable[[str], Storage]]] = {FILE: LocalStorage}
"""What opens a store without options and client library, by scheme. Tests add their store in memory."""
_OBJECTS: Final = ("objects", "lakefold_table.storage.objects", "open_objects")
_BY_EXTRA: Final = {
    "s3": ("s3", "lakefold_table.storage.s3", "S3Storage"),
    "s3+ddb": ("s3", "lakefold_table.manifest_stores.dynamodb", "open_dynamodb"),
    **dict.fromkeys(["gs", "az", "abfss"], _OBJECTS),
}
"""Stores that need a client library: by scheme the extra, the module, and the function that opens one."""


def open_storage(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Storage:
    """Returns the store whose root is `uri` (any text that `canonical` takes).

    Creates and requests nothing yet. `storage_options` are the options of an object store, as pylance takes
    them. Local stores have none and, like pylance, ignore them, so that the same configuration serves many
    tables. An option that no store has is logged as a warning.

    Raises `InvalidError` if this release has no store for the scheme, if an option can't be used, or if the
    client library of the store isn't installed.
    """
    name = canonical(uri)
    if storage_options is not None and not isinstance(storage_options, Mapping):
        hint = "give a mapping of texts, such as a dict"  # type: ignore[unreachable] # by callers that check types
        raise InvalidError(
            f"{storage_options!r} can't be its value", where=OptionName("storage_options"), hint=hint
        )
    scheme = parse_location(name).scheme
    if scheme in OPENERS:
        return OPENERS[scheme](name)
    if scheme in _BY_EXTRA:
        return _opened(name, scheme, storage_options)
    others = f"put the table on a local disk (a path or file:///PATH) or on {', '.join(map(_uri, _BY_EXTRA))}"
    hint = NOT_BUILT.get(scheme, others)
    raise LocationError(f"storage for {scheme}:// is not built in this release", where=name, hint=hint)


def open_canonical(uri: str, storage_options: Mapping[str, str] | None = None) -> Storage:
    """Returns what `open_storage` does, for a canonical URI. The store's root is exactly that URI.

    Raises `LocationError` if a symbolic link was put into the path since the URI was made canonical.
    """
    storage = open_storage(uri, storage_options)
    if parse_location(storage.uri) != parse_location(uri):
        raise LocationError(
            f"a symbolic link was put into this path: it leads to {storage.uri} now",
            where=uri,
            hint="put the folder back and remove the link",
        )
    return storage


def _opened(uri: str, scheme: str, storage_options: Mapping[str, str] | None) -> Storage:
    warn_unknown(storage_options or ())
    extra, module, name = _BY_EXTRA[scheme]
    try:
        store = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lakefold"):
            raise
        hint = f"pip install 'lakefold[{extra}]'"
        raise InvalidError(
            f"{scheme}:// needs {error.name}, which is not installed", where=uri, hint=hint
        ) from error
    opened: Storage = store(uri, storage_options)
    return opened


def _uri(scheme: str) -> str:
    return f"{scheme}://"
