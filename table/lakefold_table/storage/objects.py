"""Objects on Google Cloud Storage and Azure, by obstore: the same client library for both.

Lance clients are built on the same library, so it takes the same storage options and environment variables
and finds objects under the same names. It repeats a failed request by itself, which must not happen to a
conditional put: if a put was stored and its answer was lost, the repeated put is answered "exists" because of
our own object. So that call has a client of its own that never repeats, and whatever isn't a clear answer is
a doubt that is settled by reading back. This is the only module that imports obstore, and it is loaded only
for these schemes.
"""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import obstore
from obstore import exceptions as errors
from obstore.store import AzureStore, GCSStore

from lakefold_table.errors import InvalidError, LakefoldError, LocationError, RetryError
from lakefold_table.own_process import OwnProcess
from lakefold_table.storage.base import Buffer, DoubtfulPutError, Listed, Put, check_whole
from lakefold_table.storage.concurrently import RemoteStorage, together
from lakefold_table.storage.conditions import check_once, check_puts
from lakefold_table.storage.paths import check_folder, check_new_path, check_path, check_range
from lakefold_table.uri import canonical, parse_location

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore, RetryConfig

_DEFAULTS: Final = {"connect_timeout": "5s", "timeout": "60s"}
"""The client's options if they are not given. A manifest of 100 MB needs some seconds."""
_RETRIES: Final = 6
_RETRY_SECONDS: Final = 60
_FARTHEST: Final = 1 << 62

# Options whose names in pylance differ from those in obstore.
_RENAMED: Final = {"google_storage_token": "google_bearer_token"}
_OWN_OPTIONS: Final = {"gs": ("google_", "gcs_"), "az": ("azure_",), "abfss": ("azure_",)}

_AZURE_HOSTS: Final = (".core.windows.net", ".fabric.microsoft.com")

# The parts of obstore's errors. Most faults have the same class, whatever the server answered, and the text
# contains the whole URL (its query may contain a signature) and the texts of all errors that caused it. So
# only the status, the server's own code and a line for people are taken out of it.
_STATUS: Final = re.compile(r"(?:status code:|\(code:) (\d{3}) ?([A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^\n<]+)")
_CAUSE: Final = re.compile(r'(?:message|error): "([^"]+)"|kind: (Timeout)\b|\b(IncompleteMessage)\b')
_QUERY: Final = re.compile(r"\?\S*")
_JSON: Final = re.compile(r"\{.*", re.DOTALL)

# What obstore raises: its own errors, and Python's for a missing object and for a path that it can't take.
_RAISED: Final = (FileNotFoundError, ValueError, errors.BaseError)
# The codes by which the servers say that the container or the bucket is missing, not the object in it.
_NO_BUCKET: Final = frozenset({"ContainerNotFound", "NoSuchBucket"})
# With 409 and 412 from Azure and 412 from Google these codes mean "exists"; others mean something else (a
# container that is being deleted, a lease).
_TAKEN: Final = frozenset({"", "BlobAlreadyExists", "ConditionNotMet", "PreconditionFailed"})
_DENIED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_NO_SUCH_RANGE: Final = 416
_CLIENT_ERRORS: Final = range(400, 500)
# Client errors after which the same request may succeed later.
_PASSING: Final = frozenset({408, 409, 412, 429})


@dataclass(frozen=True)
class ObjectClients:
    """The clients of a bucket: `once` never repeats a request, `patient` does.

    Same bucket, equal `server`.
    """

    once: ObjectStore
    patient: ObjectStore
    server: object = field(default_factory=object)


def open_objects(uri: str, storage_options: Mapping[str, str] | None = None) -> ObjectStorage:
    """Opens `gs://BUCKET/…`, `az://CONTAINER/…` or `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…`.

    `storage_options`: as pylance takes them (`azure_storage_account_name`, `google_service_account`,
    `allow_http`, `timeout`, `client_max_retries`, …); the rest is taken from the environment, as pylance
    does. Options of other kinds of store are ignored. No request is sent yet.

    Raises `InvalidError` if an option is unknown or malformed.
    """
    name = canonical(uri)
    return ObjectStorage(name, _clients(name, storage_options or {}))


class ObjectStorage(RemoteStorage):
    """The objects below a root, through obstore, as a `Storage`. Safe for many threads.

    `clients`: those of the bucket (any of obstore's stores will do). `uri` names the root inside it.
    """

    at_one_time = 32
    lists_in_order = True
    """Both providers list by name, and Lance clients rely on that too."""

    def __init__(self, uri: str, clients: ObjectClients) -> None:
        self.uri = uri
        self._made = clients
        root = parse_location(uri).path
        self._below = root + "/" if root else ""

    @property
    def _clients(self) -> ObjectClients:
        """The clients. Raises `InvalidError` in a process that was forked after requests were sent."""
        _threads().check()
        return self._made

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        check_path(path)
        with self._translated_errors(path):
            answer = obstore.get(self._clients.patient, self._below + path)
            check_whole(answer.meta["size"], f"{self.uri}/{path}")
            return bytes(answer.bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`. Sends a second request if the range begins after the object's end."""
        check_range(path, start, length)
        check_path(path)
        part = None
        if length and start < _FARTHEST:
            part = self._part(path, {"range": (start, min(start + length, _FARTHEST))})
        if part is None:
            self._head(path)
            return b""
        return part[0]

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Storage.get_tail`. Two requests on Azure, which takes no range from the end."""
        check_range(path, 0, length)
        check_path(path)
        tail = None
        if length:
            try:
                tail = self._part(path, {"range": {"suffix": min(length, _FARTHEST)}})
            except errors.NotSupportedError:
                meta = self._head(path)
                if size := meta["size"]:
                    # If the object was replaced in between the answer is 412, which is a `RetryError`.
                    part: GetOptions = {"range": (max(size - length, 0), size), "if_match": meta["e_tag"]}
                    tail = self._part(path, part)
        return tail or (b"", self._head(path)["size"])

    def size(self, path: str) -> int | None:
        """See `Storage.size`. One request."""
        check_path(path)
        try:
            return self._head(path)["size"]
        except FileNotFoundError:
            return None

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: these stores report whole seconds."""
        check_path(path)
        try:
            return int(self._head(path)["last_modified"].timestamp() * 1_000_000)
        except FileNotFoundError:
            return None

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`. One request, which is never repeated."""
        check_new_path(path)
        data = b"".join(buffers)
        try:
            obstore.put(self._clients.once, self._below + path, data, mode="create", use_multipart=False)
        except errors.AlreadyExistsError as error:
            if _code_of(error) not in _TAKEN:
                raise self._doubt(path, error) from error
            return Put.EXISTS
        except _RAISED as error:
            failure = self._failure(path, error, of_bucket=True)
            if isinstance(failure, InvalidError):
                raise failure from error
            raise self._doubt(path, error) from error
        return Put.STORED

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        check_new_path(path)
        data = b"".join(buffers)
        with self._translated_errors(path, of_bucket=True):
            obstore.put(self._clients.patient, self._below + path, data, use_multipart=False)

    def get_with_etag(self, path: str) -> tuple[bytes, str]:
        """See `Storage.get_with_etag`.

        The etag is the store's own name of the object's present state.
        """
        check_path(path)
        with self._translated_errors(path):
            result = obstore.get(self._clients.patient, self._below + path)
            state = {"e_tag": result.meta["e_tag"], "version": result.meta["version"]}
            return bytes(result.bytes()), json.dumps({name: value for name, value in state.items() if value})

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        """See `Storage.replace`. One request, which is never repeated."""
        check_new_path(path)
        data, state = b"".join(buffers), json.loads(etag)
        try:
            obstore.put(self._clients.once, self._below + path, data, mode=state, use_multipart=False)
        except (errors.PreconditionError, FileNotFoundError):
            return False
        except _RAISED as error:
            failure = self._failure(path, error, of_bucket=True)
            if isinstance(failure, InvalidError) and not isinstance(error, errors.AlreadyExistsError):
                raise failure from error
            raise self._doubt(path, error) from error
        return True

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`. All names are fetched at once, some thousand in a request."""
        cut = len(self._below)
        objects = sorted((meta["path"], meta["size"]) for meta in self._listed(check_folder(prefix))[0])
        return (Listed(path[cut:], size) for path, size in objects)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`."""
        return [meta["path"].rpartition("/")[2] for meta in self._listed(check_folder(prefix))[0]]

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Storage.folders`."""
        return [path.rpartition("/")[2] for path in self._listed(check_folder(prefix))[1]]

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """See `Storage.first_names`. One request, unless thousands of names in folders come first."""
        folder = check_folder(prefix)
        start = (self._below + folder).rstrip("/")
        cut = len(start) + bool(start)
        with self._translated_errors(folder, of_bucket=True):
            listing = obstore.list(self._clients.patient, start or None, chunk_size=max(count, 1))
            names = (meta["path"][cut:] for chunk in listing for meta in chunk)
            return [*islice((name for name in names if name and "/" not in name), count)]

    def check_conditions(self) -> None:
        """See `Storage.check_conditions`: three requests, once for a bucket."""
        put = partial(self.put_if_absent, buffers=[b"probe"])
        check_once(self._clients.server, lambda: check_puts(self, lambda path: (put(path), put(path))))

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`."""
        objects, folders = self._listed("")
        paths = [*(meta["path"] for meta in objects), *folders]
        return any(path.rpartition("/")[2] not in besides for path in paths)

    def everything(self) -> Iterator[str]:
        """See `Storage.everything`. A request for each thousand names, sent while the iterator is read."""
        with self._translated_errors("", of_bucket=True):
            for chunk in obstore.list(self._clients.patient, self._below.rstrip("/") or None):
                yield from (meta["path"][len(self._below) :] for meta in chunk)

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        check_path(path)
        with suppress(FileNotFoundError), self._translated_errors(path):
            obstore.delete(self._clients.patient, self._below + path)

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`: these stores keep what can be read.

        Only missing objects are reported.
        """
        requested = list(paths)
        for path in requested:
            check_path(path)
        together(self._head, requested, self.at_one_time)

    def _head(self, path: str) -> ObjectMeta:
        """Returns the store's metadata of an object. Raises `FileNotFoundError`."""
        with self._translated_errors(path):
            return obstore.head(self._clients.patient, self._below + path)

    def _part(self, path: str, options: GetOptions) -> tuple[bytes, int] | None:
        """Returns a part of an object and the object's size, or None if no byte of it is in the range."""
        try:
            result = obstore.get(self._clients.patient, self._below + path, options=options)
            return bytes(result.bytes()), result.meta["size"]
        except errors.NotSupportedError:
            raise
        except _RAISED as error:
            if _status_of(error) == _NO_SUCH_RANGE or "StartTooLarge" in str(error):
                return None
            raise self._failure(path, error) from error

    def _listed(self, folder: str) -> tuple[Sequence[ObjectMeta], Sequence[str]]:
        """Returns the objects directly inside a folder, and the paths of the folders in it."""
        start = (self._below + folder).rstrip("/")
        with self._translated_errors(folder, of_bucket=True):
            listing = obstore.list_with_delimiter(self._clients.patient, start or None)
        # Some tools mark a folder by an object with the folder's name.
        return [meta for meta in listing["objects"] if meta["path"] != start], listing["common_prefixes"]

    def _doubt(self, path: str, error: Exception) -> DoubtfulPutError:
        return DoubtfulPutError(f"no clear answer to the put of {self.uri}/{path}: {_in_words(error)}")

    @contextmanager
    def _translated_errors(self, path: str, *, of_bucket: bool = False) -> Iterator[None]:
        """Raises obstore's errors as ours (see `_failure`)."""
        try:
            yield
        except _RAISED as error:
            raise self._failure(path, error, of_bucket=of_bucket) from error

    def _failure(
        self, path: str, error: Exception, *, of_bucket: bool = False
    ) -> LakefoldError | FileNotFoundError:
        """Returns the error class that says what to do about `error`.

        A missing object stays `FileNotFoundError`. `of_bucket`: only the bucket itself can be missing.
        """
        where = f"{self.uri}/{path}".rstrip("/")
        status, code = _status_of(error), _code_of(error)
        missing = isinstance(error, FileNotFoundError) or status == _NOT_FOUND
        if missing and (of_bucket or code in _NO_BUCKET):
            hint = "create it first, or correct the name"
            return LocationError("this bucket or container does not exist", where=where, hint=hint)
        if missing:
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)
        return _unanswered(error, status, where)


def _unanswered(error: Exception, status: int, where: str) -> LakefoldError:
    """Returns the error if the store neither did what was asked nor reported a missing object."""
    words = _in_words(error)
    if status in _DENIED or isinstance(error, errors.PermissionDeniedError | errors.UnauthenticatedError):
        hint = (
            "check the credentials in the storage options or the environment, what they are allowed to do, "
            "and this machine's clock"
        )
        return InvalidError(words, where=where, hint=hint)
    if isinstance(error, ValueError | errors.InvalidPathError):
        return LocationError(words, where=where, hint="choose another name")
    if "BadScheme" in str(error):
        hint = "give an https endpoint, or the storage option allow_http=true"
        return InvalidError("the endpoint is not encrypted", where=where, hint=hint)
    if status in _CLIENT_ERRORS and status not in _PASSING:
        return InvalidError(words, where=where, hint="check the storage options and the name")
    hint = "check the endpoint, the account's name and the network, then try again"
    return RetryError(words, where=where, hint=hint)


@cache
def _threads() -> OwnProcess:
    """Returns the process whose threads send the requests: the first one here that needed them."""
    hint = (
        "send no request to gs:// or az:// before the fork, not even by another object, or start processes "
        'with "spawn" (multiprocessing.set_start_method)'
    )
    return OwnProcess("the client of gs:// and az://", hint=hint)


def _clients(uri: str, storage_options: Mapping[str, str]) -> ObjectClients:
    """Returns both clients of the bucket that `uri` names, made from the options that concern it."""
    location = parse_location(uri)
    given = {key.lower(): value for key, value in storage_options.items()}
    patience: RetryConfig = {
        "max_retries": _number_in(uri, given, "client_max_retries", _RETRIES),
        "retry_timeout": timedelta(seconds=_number_in(uri, given, "client_retry_timeout", _RETRY_SECONDS)),
    }
    bucket, named = _bucket_of(uri, location.authority)
    make = _kind_of_store(location.scheme)
    config = {**_DEFAULTS, **_concerning(uri, location.scheme, given), **named}
    try:
        return ObjectClients(
            once=make(bucket, config=config, retry_config={"max_retries": 0}),  # type: ignore[arg-type] # text values do
            patient=make(bucket, config=config, retry_config=patience),  # type: ignore[arg-type] # as above
            server=(location.scheme, location.authority, frozenset(config.items())),
        )
    except errors.BaseError as error:
        hint = "check the storage options and the environment variables of this store"
        raise InvalidError(_without_key(_in_words(error)), where=uri, hint=hint) from None


def _kind_of_store(scheme: str) -> type[GCSStore | AzureStore]:
    return GCSStore if scheme == "gs" else AzureStore


def _concerning(uri: str, scheme: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that stores of this scheme know. Raises `InvalidError` for an unknown option."""
    known_options = {}
    for key, value in given.items():
        name = _RENAMED.get(key, key)
        if _knows(scheme, name):
            known_options[name] = value
        elif key.startswith(_OWN_OPTIONS[scheme]):
            hint = "compare it with the options that pylance takes for this store"
            raise InvalidError(f"the storage option {key} does not exist", where=uri, hint=hint)
    return known_options


@lru_cache(maxsize=1024)
def _knows(scheme: str, name: str) -> bool:
    """Returns whether stores of this scheme have an option of this name.

    Cached, because a store is made to find out.
    """
    try:
        _kind_of_store(scheme)("probe", config={name: ""})  # type: ignore[arg-type] # to find out whether it is known
    except errors.UnknownConfigurationKeyError:
        return False
    except errors.BaseError:
        # The option is known, but not enough by itself, or not without a value.
        pass
    return True


def _bucket_of(uri: str, authority: str) -> tuple[str, dict[str, str]]:
    """Returns the bucket or container, and the options that the URI itself contains."""
    bucket, at, host = authority.partition("@")
    if not at:
        return bucket, {}
    if uri.startswith("gs:") or not host.endswith(_AZURE_HOSTS):
        hint = (
            "write az://CONTAINER/PATH, with azure_storage_account_name or azure_endpoint among the options"
        )
        raise InvalidError(f"{host} is not a known host of Azure", where=uri, hint=hint)
    named = {"azure_storage_account_name": host.partition(".")[0]}
    if host.endswith(".fabric.microsoft.com"):
        named["azure_use_fabric_endpoint"] = "true"
    return bucket, named


def _number_in(uri: str, given: Mapping[str, str], key: str, default: int) -> int:
    """Returns a whole number among the options. Raises `InvalidError` if it is not a number."""
    if (text := given.get(key, str(default))).isdecimal():
        return int(text)
    raise InvalidError(f"{key} is {text}", where=uri, hint="give a whole number")


def _status_of(error: Exception) -> int:
    """Returns the HTTP status of an answer, 0 if there was none."""
    match = _STATUS.search(str(error))
    return int(match[1]) if match else 0


def _code_of(error: Exception) -> str:
    """Returns the code that the server sent with its answer, or ""."""
    match = _CODE.search(str(error))
    return match[1] if match else ""


def _in_words(error: Exception) -> str:
    """Returns what happened, as a line without any URL."""
    text = str(error)
    if answer := _STATUS.search(text):
        message = _MESSAGE.search(text)
        return f"the store answered {answer[1]} {answer[2]}".rstrip() + (f": {message[1]}" if message else "")
    words = _QUERY.sub("", text.partition("\n")[0]).rpartition(" - ")[2]
    cause = _CAUSE.search(text)
    return f"{words}: {next(filter(None, cause.groups()))}" if cause else words


def _without_key(words: str) -> str:
    """Returns a message about settings without JSON: it would show a key that was given as a file's name."""
    return _JSON.sub("{…", words)
