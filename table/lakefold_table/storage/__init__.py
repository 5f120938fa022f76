"""Where a table's objects lie: one small set of calls, and a store for each place.

The loop: `open_storage` picks the store by the scheme of the table's canonical URI. A reader asks it for
whole objects, their heads or their tails. Who publishes writes the files that nobody sees yet by
`put_if_absent` or `put`, and then the one that makes the version by `put_if_absent`: `STORED` says that the
version exists and survives a crash, `EXISTS` that another was first, `DoubtfulPutError` that only reading
back can tell.

`base` says what every store promises, `paths` what may name an object. `local` is a folder: `durable` orders
its system calls, `failures` says what a failed one means. `s3` is a bucket: `aws` makes its clients from
`aws_options` and says what their errors mean, `parts` puts what is too large for one request. `objects` is a
bucket at Google or Azure, whose client's `answers` it reads. `external` is a bucket whose versions are
committed in a manifest store: `dynamodb` is that, `staged` finishes what somebody else began. `memory` is
for tests, with a plan of faults. What holds for all of them is proven by one suite,
`tests/contracts/behaviour.py`. `option_names` tells an option that no store has.

A store whose client isn't installed says which extra brings it; no other store needs that client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, PlaceError
from lakefold_table.storage.local import LocalStorage
from lakefold_table.storage.memory import MemoryStorage
from lakefold_table.storage.option_names import tell_unknown
from lakefold_table.uri import FILE, canonical, place

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from lakefold_table.storage.base import Storage

__all__ = ["open_canonical", "open_storage"]

_OBJECTS: Final = ("objects", "lakefold_table.storage.objects", "open_objects")
_BY_EXTRA: Final = {
    "s3": ("s3", "lakefold_table.storage.s3", "S3Storage"),
    "s3+ddb": ("s3", "lakefold_table.storage.dynamodb", "on_dynamodb"),
    **dict.fromkeys(["gs", "az", "abfss"], _OBJECTS),
}
"""Stores that need a client of their own: the scheme; the extra, the module, what opens one."""


def open_storage(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Storage:
    """The store whose root is `uri` (any text that `canonical` takes); nothing is created or asked for yet.

    `storage_options` are the options of an object store, as pylance takes them; local stores have none and,
    as pylance does, take no notice of them, so that one configuration serves many tables. One that no store
    has is told by a warning in the log.

    Raises `InvalidError` for a scheme that this release has no store for, for options that can't be used,
    and where the client of an object store isn't installed.
    """
    name = canonical(uri)
    scheme = place(name).scheme
    if scheme == FILE:
        return LocalStorage(name)
    if scheme == "memory":
        return MemoryStorage(name)
    if scheme in _BY_EXTRA:
        return _opened(name, scheme, storage_options)
    hint = f"put the table on a local disk (a path or file:///PATH) or on {', '.join(map(_uri, _BY_EXTRA))}"
    raise PlaceError(f"storage for {scheme}:// is not built in this release", where=name, hint=hint)


def open_canonical(uri: str, storage_options: Mapping[str, str] | None = None) -> Storage:
    """As `open_storage`, for a canonical URI, which was judged by its text: what is opened is that place.

    Raises `PlaceError` if it isn't that place any more, because a symbolic link was put into its path.
    """
    storage = open_storage(uri, storage_options)
    if place(storage.uri) != place(uri):
        raise PlaceError(
            f"a symbolic link was put into this path: it leads to {storage.uri} now",
            where=uri,
            hint="put the folder back in its place",
        )
    return storage


def _opened(uri: str, scheme: str, storage_options: Mapping[str, str] | None) -> Storage:
    tell_unknown(storage_options or ())
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
