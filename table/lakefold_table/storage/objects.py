"""Objects on Google Cloud Storage and Azure by obstore: one client library for both, and no code of our own.

The client is the one that Lance clients are built on, so it takes the same storage options and environment
variables and finds objects under the same names. It tries a failed request again by itself, which must not
happen to a conditional put: a put that was stored and lost its answer comes back as "exists" of our own
object. So that call has a client of its own that never retries, and whatever isn't a plain answer is a doubt
that only reading back settles. This is the one module that imports obstore, and is loaded only for its
schemes.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import obstore
from obstore import exceptions as said
from obstore.store import AzureStore, GCSStore

from lakefold_table.errors import InvalidError, PlaceError, RetryError
from lakefold_table.storage.base import DoubtfulPutError, Listed, Put
from lakefold_table.storage.bucket_uri import bucket_of, number_in
from lakefold_table.storage.concurrently import begun, together
from lakefold_table.storage.conditions import check_once, check_puts
from lakefold_table.storage.object_errors import code_of, in_words, status_of, without_key
from lakefold_table.storage.paths import check_folder, check_new_path, check_path, check_range
from lakefold_table.uri import canonical, place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore, RetryConfig

    from lakefold_table.errors import LakefoldError
    from lakefold_table.storage.base import Buffer

_DEFAULTS: Final = {"connect_timeout": "5s", "timeout": "60s"}
"""What the client's options are where nobody gives them. A manifest of 100 MB needs some seconds."""
_RETRIES: Final = 6
_RETRY_SECONDS: Final = 60
_AT_ONE_TIME: Final = 32
"""How many requests go out side by side where many objects are asked for or put."""
_FARTHEST: Final = 1 << 62

# What is said otherwise by pylance and by obstore.
_RENAMED: Final = {"google_storage_token": "google_bearer_token"}
_OWN_OPTIONS: Final = {"gs": ("google_", "gcs_"), "az": ("azure_",), "abfss": ("azure_",)}

# What obstore raises: its own errors, Python's for a missing object and for a path it can't take.
_RAISED: Final = (FileNotFoundError, ValueError, said.BaseError)
# How the servers say that the container or the bucket itself is missing, not the object in it.
_NO_BUCKET: Final = frozenset({"ContainerNotFound", "NoSuchBucket"})
# Azure's 409 and 412 and Google's 412 say "exists" by these codes, and other things by others (a container
# that is being deleted, a lease).
_TAKEN: Final = frozenset({"", "BlobAlreadyExists", "ConditionNotMet", "PreconditionFailed"})
_DENIED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_NO_SUCH_RANGE: Final = 416
_CLIENT_ERRORS: Final = range(400, 500)
# Client errors that may be another answer the next time.
_PASSING: Final = frozenset({408, 409, 412, 429})


@dataclass(frozen=True)
class Clients:
    """Of one bucket: `once` sends a request one time, `patient` again. `server` is equal for equal ones."""

    once: ObjectStore
    patient: ObjectStore
    server: object = field(default_factory=object)


def open_objects(uri: str, storage_options: Mapping[str, str] | None = None) -> ObjectStorage:
    """The store below `gs://BUCKET/…`, `az://CONTAINER/…` or `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…`.

    `storage_options`: as pylance takes them (`azure_storage_account_name`, `google_service_account`,
    `allow_http`, `timeout`, `client_max_retries`, …); what they leave open is taken from the environment, as
    pylance does. Options of other kinds of store are passed over. Nothing is asked for yet.

    Raises `InvalidError` where an option is unknown or malformed.
    """
    name = canonical(uri)
    return ObjectStorage(name, _clients(name, storage_options or {}))


class ObjectStorage:
    """The objects below one root, through obstore, as a `Storage`. Safe for many threads.

    `clients`: of the bucket (any of obstore's stores will do); the root is what `uri` names inside it.
    """

    cheap_size: Final = False

    def __init__(self, uri: str, clients: Clients) -> None:
        self._uri = uri
        self._clients = clients
        root = place(uri).path
        self._below = root + "/" if root else ""

    @property
    def uri(self) -> str:
        """The canonical URI of the root."""
        return self._uri

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        check_path(path)
        with self._told(path):
            return bytes(obstore.get(self._clients.patient, self._below + path).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`. A second request where the range begins behind the object's end."""
        check_range(path, start, length)
        check_path(path)
        found = None
        if length and start < _FARTHEST:
            found = self._part(path, {"range": (start, min(start + length, _FARTHEST))})
        if found is None:
            self._head(path)
            return b""
        return found[0]

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Storage.get_tail`. Two requests on Azure, which takes no range from the end."""
        check_range(path, 0, length)
        check_path(path)
        found = None
        if length:
            try:
                found = self._part(path, {"range": {"suffix": min(length, _FARTHEST)}})
            except said.NotSupportedError:
                meta = self._head(path)
                if size := meta["size"]:
                    # An object that another replaced in between is no end of this one: 412, try again.
                    part: GetOptions = {"range": (max(size - length, 0), size), "if_match": meta["e_tag"]}
                    found = self._part(path, part)
        return found or (b"", self._head(path)["size"])

    def size(self, path: str) -> int | None:
        """See `Storage.size`. One request."""
        check_path(path)
        try:
            return self._head(path)["size"]
        except FileNotFoundError:
            return None

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`."""
        asked = list(paths)
        return dict(zip(asked, together(self.size, asked, _AT_ONE_TIME), strict=True))

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: these stores tell whole seconds."""
        check_path(path)
        try:
            return int(self._head(path)["last_modified"].timestamp() * 1_000_000)
        except FileNotFoundError:
            return None

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`. One request, never sent twice."""
        check_new_path(path)
        data = b"".join(buffers)
        try:
            obstore.put(self._clients.once, self._below + path, data, mode="create", use_multipart=False)
        except said.AlreadyExistsError as error:
            if code_of(error) not in _TAKEN:
                raise self._doubt(path, error) from error
            return Put.EXISTS
        except _RAISED as error:
            told = self._telling(path, error, of_bucket=True)
            if isinstance(told, InvalidError):
                raise told from error
            raise self._doubt(path, error) from error
        return Put.STORED

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `PutsTogether`. After a lost answer the caller must look, as if the object had been there."""

        def put(one: tuple[str, Sequence[Buffer]]) -> Put:
            try:
                return self.put_if_absent(*one)
            except DoubtfulPutError:
                return Put.EXISTS

        return together(put, objects, _AT_ONE_TIME)

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        check_new_path(path)
        data = b"".join(buffers)
        with self._told(path, of_bucket=True):
            obstore.put(self._clients.patient, self._below + path, data, use_multipart=False)

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `BeginsPuts`: the request is sent by a thread of its own."""
        return begun(lambda: self.put(path, buffers))

    def get_marked(self, path: str) -> tuple[bytes, str]:
        """See `ReplacesKnown.get_marked`: the mark is what the store names this state of the object by."""
        check_path(path)
        with self._told(path):
            found = obstore.get(self._clients.patient, self._below + path)
            known = {"e_tag": found.meta["e_tag"], "version": found.meta["version"]}
            return bytes(found.bytes()), json.dumps({name: mark for name, mark in known.items() if mark})

    def replace(self, path: str, mark: str, buffers: Sequence[Buffer]) -> bool:
        """See `ReplacesKnown.replace`. One request, never sent twice."""
        check_new_path(path)
        data, known = b"".join(buffers), json.loads(mark)
        try:
            obstore.put(self._clients.once, self._below + path, data, mode=known, use_multipart=False)
        except (said.PreconditionError, FileNotFoundError):
            return False
        except _RAISED as error:
            told = self._telling(path, error, of_bucket=True)
            if isinstance(told, InvalidError) and not isinstance(error, said.AlreadyExistsError):
                raise told from error
            raise self._doubt(path, error) from error
        return True

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`. Everything is fetched at once, a request for each thousand names or so."""
        cut = len(self._below)
        objects = sorted((one["path"], one["size"]) for one in self._listed(check_folder(prefix))[0])
        return (Listed(path[cut:], size) for path, size in objects)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`."""
        return [one["path"].rpartition("/")[2] for one in self._listed(check_folder(prefix))[0]]

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ListsFolders`."""
        return [path.rpartition("/")[2] for path in self._listed(check_folder(prefix))[1]]

    @property
    def lists_in_order(self) -> bool:
        """See `ListsInOrder`: both providers list by name, and Lance clients rely on it too."""
        return True

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """See `ListsInOrder`. One request, unless the first thousands are of folders below."""
        folder = check_folder(prefix)
        start = (self._below + folder).rstrip("/")
        cut = len(start) + bool(start)
        with self._told(folder, of_bucket=True):
            listing = obstore.list(self._clients.patient, start or None, chunk_size=max(count, 1))
            names = (one["path"][cut:] for chunk in listing for one in chunk)
            return [*islice((name for name in names if name and "/" not in name), count)]

    def check_conditions(self) -> None:
        """See `ChecksConditions`: three requests, once for a bucket."""
        put = partial(self.put_if_absent, buffers=[b"probe"])
        check_once(self._clients.server, lambda: check_puts(self, lambda path: (put(path), put(path))))

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        objects, folders = self._listed("")
        paths = [*(one["path"] for one in objects), *folders]
        return any(path.rpartition("/")[2] not in besides for path in paths)

    def everything(self) -> Iterator[str]:
        """See `ListsAll`. A request for each thousand names, as the iterator goes on."""
        with self._told("", of_bucket=True):
            for chunk in obstore.list(self._clients.patient, self._below.rstrip("/") or None):
                yield from (one["path"][len(self._below) :] for one in chunk)

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        check_path(path)
        with suppress(FileNotFoundError), self._told(path):
            obstore.delete(self._clients.patient, self._below + path)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`: what these stores show, they keep; only missing objects are told."""
        asked = list(paths)
        for path in asked:
            check_path(path)
        together(self._head, asked, _AT_ONE_TIME)

    def _head(self, path: str) -> ObjectMeta:
        """What the store says of an object. Raises `FileNotFoundError`."""
        with self._told(path):
            return obstore.head(self._clients.patient, self._below + path)

    def _part(self, path: str, options: GetOptions) -> tuple[bytes, int] | None:
        """A part of an object and the object's size, None where no byte of it lies in the range."""
        try:
            found = obstore.get(self._clients.patient, self._below + path, options=options)
            return bytes(found.bytes()), found.meta["size"]
        except said.NotSupportedError:
            raise
        except _RAISED as error:
            if status_of(error) == _NO_SUCH_RANGE or "StartTooLarge" in str(error):
                return None
            raise self._telling(path, error) from error

    def _listed(self, folder: str) -> tuple[Sequence[ObjectMeta], Sequence[str]]:
        """The objects directly inside a folder, and the paths of the folders in it."""
        start = (self._below + folder).rstrip("/")
        with self._told(folder, of_bucket=True):
            found = obstore.list_with_delimiter(self._clients.patient, start or None)
        # Some tools mark a folder by an object of its own name.
        return [one for one in found["objects"] if one["path"] != start], found["common_prefixes"]

    def _doubt(self, path: str, error: Exception) -> DoubtfulPutError:
        return DoubtfulPutError(f"no sure answer to the put of {self._uri}/{path}: {in_words(error)}")

    @contextmanager
    def _told(self, path: str, *, of_bucket: bool = False) -> Iterator[None]:
        """Translate what obstore says (see `_telling`)."""
        try:
            yield
        except _RAISED as error:
            raise self._telling(path, error, of_bucket=of_bucket) from error

    def _telling(
        self, path: str, error: Exception, *, of_bucket: bool = False
    ) -> LakefoldError | FileNotFoundError:
        """The error that says what `error` asks of the caller. A missing object stays what it is.

        `of_bucket`: what is missing can only be the bucket itself.
        """
        where = f"{self._uri}/{path}".rstrip("/")
        status, code = status_of(error), code_of(error)
        missing = isinstance(error, FileNotFoundError) or status == _NOT_FOUND
        if missing and (of_bucket or code in _NO_BUCKET):
            hint = "create it first, or mend the name"
            return PlaceError("there is no such bucket or container", where=where, hint=hint)
        if missing:
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)
        return _unanswered(error, status, where)


def _unanswered(error: Exception, status: int, where: str) -> LakefoldError:
    """The error where the store neither did what was asked nor missed an object."""
    words = in_words(error)
    if status in _DENIED or isinstance(error, said.PermissionDeniedError | said.UnauthenticatedError):
        hint = (
            "check the credentials in the storage options or the environment, what they are allowed to do, "
            "and this machine's clock"
        )
        return InvalidError(words, where=where, hint=hint)
    if isinstance(error, ValueError | said.InvalidPathError):
        return PlaceError(words, where=where, hint="choose another name")
    if "BadScheme" in str(error):
        hint = "give an https endpoint, or the storage option allow_http=true"
        return InvalidError("the endpoint is not encrypted", where=where, hint=hint)
    if status in _CLIENT_ERRORS and status not in _PASSING:
        return InvalidError(words, where=where, hint="check the storage options and the name")
    hint = "check the endpoint, the account's name and the network, then try again"
    return RetryError(words, where=where, hint=hint)


def _clients(uri: str, storage_options: Mapping[str, str]) -> Clients:
    """Both clients of the bucket that `uri` names, made from the options that concern it."""
    found = place(uri)
    given = {key.lower(): value for key, value in storage_options.items()}
    patience: RetryConfig = {
        "max_retries": number_in(uri, given, "client_max_retries", _RETRIES),
        "retry_timeout": timedelta(seconds=number_in(uri, given, "client_retry_timeout", _RETRY_SECONDS)),
    }
    bucket, named = bucket_of(uri, found.authority)
    make: type[GCSStore | AzureStore] = GCSStore if found.scheme == "gs" else AzureStore
    config = {**_DEFAULTS, **_concerning(uri, make, given, _OWN_OPTIONS[found.scheme]), **named}
    try:
        return Clients(
            once=make(bucket, config=config, retry_config={"max_retries": 0}),  # type: ignore[arg-type] # text values do
            patient=make(bucket, config=config, retry_config=patience),  # type: ignore[arg-type] # as above
            server=(found.scheme, found.authority, frozenset(config.items())),
        )
    except said.BaseError as error:
        hint = "check the storage options and the environment variables of this store"
        raise InvalidError(without_key(in_words(error)), where=uri, hint=hint) from None


def _concerning(
    uri: str, make: type[GCSStore | AzureStore], given: Mapping[str, str], own: tuple[str, ...]
) -> dict[str, str]:
    """The options that this kind of store knows. One that only looks so is refused."""
    known = {}
    for key, value in given.items():
        name = _RENAMED.get(key, key)
        try:
            make("probe", config={name: value})  # type: ignore[arg-type] # what is known is the question
        except said.UnknownConfigurationKeyError as error:
            if key.startswith(own):
                hint = "compare it with the options that pylance takes for this store"
                raise InvalidError(f"there is no storage option {key}", where=uri, hint=hint) from error
            continue
        except said.BaseError:
            # Known, and not enough by itself.
            pass
        known[name] = value
    return known
