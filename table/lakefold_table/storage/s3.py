"""A store on S3 or a server that speaks its protocol: its publish is one conditional put.

`PUT` with `If-None-Match: *` stores an object unless its name is taken, in one step that all see; S3 has had
it since 2024. That request is sent once and by no layer a second time: what comes back is an answer to it,
or no answer, which is doubt (`DoubtfulPutError`) and settled by reading back. Everything else may be sent
again and is. Nothing is ever copied on the server to commit it, since servers ignore conditions on a copy.

Objects that are too large for one request go up in parts, and the condition stands on the completion. What
can't be done in one request that waits for the network is done in several at one time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from botocore import exceptions as aws

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.storage.aws import NEVER_SENT, aws_options, failure, s3_clients, status_of, told
from lakefold_table.storage.base import DoubtfulPutError, Listed, Put
from lakefold_table.storage.concurrently import begun, together
from lakefold_table.storage.conditions import check_once, check_puts
from lakefold_table.storage.multipart import PartsUpload
from lakefold_table.storage.paths import check_folder, check_new_path, check_path, check_range
from lakefold_table.uri import canonical, place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lakefold_table.storage.base import Buffer

LARGE: Final = 32 << 20
"""From this size on an object goes up in parts, several at one time."""

AT_ONE_TIME: Final = 16
"""How many requests of one call are under way together."""

_READS: Final = 3
"""How often a body that broke off is asked for, the first time included; boto3 repeats only whole answers."""

_LONGEST: Final = 1 << 46
"""More bytes than an object can have; a server need not read larger numbers in a range."""

_NEW: Final[Mapping[str, Any]] = {"IfNoneMatch": "*"}

_EXPRESS: Final = "--x-s3"
"""How the name of a directory bucket (S3 Express One Zone) ends: it lists in no order."""

_TAKEN: Final = 412
_MISSING: Final = 404
_NO_SUCH_RANGE: Final = 416
_NO_OBJECT: Final = frozenset({"NoSuchKey", "NotFound", "404"})
"""How "there is no such object" is said; 404 is also said of buckets and, by some servers, of users."""


class _Body(NamedTuple):
    """Bytes of an object, its size, and its ETag."""

    data: bytes
    size: int
    mark: str = ""


class S3Storage:
    """The objects below `s3://BUCKET/PATH` as a `Storage`. Safe for many threads.

    `storage_options`: as pylance takes them (`aws_options`). Raises `InvalidError` where they can't be used,
    or where `uri` names another kind of store.
    """

    cheap_size: Final = False

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._uri = canonical(uri)
        found = place(self._uri)
        if found.scheme != "s3" or found.external:
            hint = "give a URI such as s3://BUCKET/PATH"
            raise InvalidError(f"a {found.scheme} URI names no plain S3 store", where=uri, hint=hint)
        self._bucket = found.authority
        self._below = found.path + "/" if found.path else ""
        options = aws_options(storage_options)
        clients = s3_clients(options, self._bucket)
        self._once, self._patient = clients.once, clients.patient
        self._server = (clients.patient.meta.endpoint_url, self._bucket)
        payer = {"RequestPayer": "requester"} if options.request_payer else {}
        self._all: dict[str, Any] = {"Bucket": self._bucket, **payer}
        self._new: dict[str, Any] = {
            **({"ServerSideEncryption": options.encryption} if options.encryption else {}),
            **({"SSEKMSKeyId": options.encryption_key} if options.encryption_key else {}),
            **({"BucketKeyEnabled": True} if options.bucket_key else {}),
        }

    @property
    def uri(self) -> str:
        """The canonical URI of the root."""
        return self._uri

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        return self._read(path, None).data

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`. One request, also where the object ends before."""
        check_range(path, start, length)
        if length == 0:
            self._head(path)
            return b""
        data, size, _ = self._read(path, f"bytes={min(start, _LONGEST)}-{start + min(length, _LONGEST) - 1}")
        # A server that doesn't know ranges sends the whole.
        return data[start : start + length] if size == len(data) else data

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """See `Storage.get_tail`. One request."""
        check_range(path, 0, length)
        if length == 0:
            return b"", int(self._head(path)["ContentLength"])
        data, size, _ = self._read(path, f"bytes=-{min(length, _LONGEST)}")
        return data[-length:], size

    def size(self, path: str) -> int | None:
        """See `Storage.size`. One request."""
        try:
            return int(self._head(path)["ContentLength"])
        except FileNotFoundError:
            return None

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """See `Storage.sizes`. Many requests at one time."""
        wanted = list(paths)
        return dict(zip(wanted, together(self.size, wanted, AT_ONE_TIME), strict=True))

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: the time of the object's last modification, in whole seconds."""
        try:
            return int(self._head(path)["LastModified"].timestamp()) * 1_000_000
        except FileNotFoundError:
            return None

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`. One request, sent once; more where the object is large."""
        check_new_path(path)
        data = b"".join(buffers)
        where = self._where(path)
        if len(data) >= LARGE:
            return conditional(where, lambda: self._upload(path, data, condition=_NEW))
        return conditional(
            where,
            lambda: self._once.put_object(**self._all, **self._new, Key=self._key(path), Body=data, **_NEW),
        )

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """See `PutsTogether`: many requests at one time."""
        return together(self._put_looked_after, objects, AT_ONE_TIME)

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        check_new_path(path)
        data = b"".join(buffers)
        with told(self._where(path)):
            if len(data) >= LARGE:
                self._upload(path, data, condition={})
            else:
                self._patient.put_object(**self._all, **self._new, Key=self._key(path), Body=data)

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """See `BeginsPuts`: the request is sent by a thread of its own."""
        return begun(lambda: self.put(path, buffers))

    def get_marked(self, path: str) -> tuple[bytes, str]:
        """See `ReplacesKnown.get_marked`: the mark is the object's ETag."""
        found = self._read(path, None)
        return found.data, found.mark

    def replace(self, path: str, mark: str, buffers: Sequence[Buffer]) -> bool:
        """See `ReplacesKnown.replace`. One request, sent once; S3 knows its condition since 2024."""
        check_new_path(path)
        asked: dict[str, Any] = {**self._all, **self._new, "Key": self._key(path), "IfMatch": mark}
        data = b"".join(buffers)
        try:
            put = conditional(self._where(path), lambda: self._once.put_object(**asked, Body=data))
        except InvalidError as error:
            if isinstance(error.__cause__, aws.ClientError) and status_of(error.__cause__) == _MISSING:
                return False
            raise
        return put is Put.STORED

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`. One request for each thousand objects, as the iterator goes on."""
        below = self._folder(prefix)
        pages = self._listed(below)
        if not self.lists_in_order:
            return iter(sorted((one for page in pages for one in page), key=lambda one: one.path))
        return (one for page in pages for one in page)

    def names(self, prefix: str) -> Sequence[str]:
        """See `Storage.names`. One request for each thousand objects."""
        return [listed.path.rpartition("/")[2] for listed in self.list(prefix)]

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ListsFolders`. One request for each thousand objects or folders."""
        below = self._folder(prefix)
        return [name for page in self._pages(below) for name in _folders_in(page, below)]

    def some_folders(self, prefix: str, most: int) -> Sequence[str] | None:
        """See `ListsSomeFolders`. One request for each thousand objects or folders."""
        below, seen, found = self._folder(prefix), 0, list[str]()
        for page in self._pages(below):
            names = _folders_in(page, below)
            seen += len(page.get("Contents", ())) + len(names)
            if seen > most:
                return None
            found += names
        return found

    @property
    def lists_in_order(self) -> bool:
        """See `ListsInOrder`: all buckets but directory buckets."""
        return not self._bucket.endswith(_EXPRESS)

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """See `ListsInOrder`. One request."""
        below = self._folder(prefix)
        page = next(self._pages(below, size=count))
        keys = [one["Key"] for one in page.get("Contents", ())]
        return [key[len(below) :] for key in keys if key != below]

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`. One request."""
        for page in self._pages(self._below, size=len(besides) + 2):
            keys = [one["Key"] for one in page.get("Contents", ())]
            folders = [one["Prefix"] for one in page.get("CommonPrefixes", ())]
            names = {key[len(self._below) :].partition("/")[0] for key in (*keys, *folders)}
            if names - {*besides, ""}:
                return True
        return False

    def everything(self) -> Iterator[str]:
        """See `ListsAll`. One request for each thousand objects, as the iterator goes on."""
        for page in self._pages(self._below, delimiter=""):
            keys = (one["Key"][len(self._below) :] for one in page.get("Contents", ()))
            yield from (key for key in keys if key and not key.endswith("/"))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        check_path(path)
        with told(self._where(path)):
            self._patient.delete_object(**self._all, Key=self._key(path))

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`. What S3 has stored is durable; only missing objects are reported."""
        together(self._head, list(paths), AT_ONE_TIME)

    def check_conditions(self) -> None:
        """See `ChecksConditions`: of a put, and of joining parts. Seven requests, once for a bucket."""
        check_once(self._server, lambda: check_puts(self, self._probe))

    def _probe(self, path: str) -> tuple[Put, ...]:
        put = partial(self.put_if_absent, path, [b"probe"])
        in_parts = partial(self._upload, path, b"probe", condition=_NEW)
        return put(), put(), conditional(self._where(path), in_parts)

    def _put_looked_after(self, one: tuple[str, Sequence[Buffer]]) -> Put:
        """A put without an answer counts as one that found something there: the caller looks what it is."""
        try:
            return self.put_if_absent(*one)
        except DoubtfulPutError:
            return Put.EXISTS

    def _upload(self, path: str, data: bytes, condition: Mapping[str, Any]) -> None:
        parts = PartsUpload(self._patient, self._once, {**self._all, "Key": self._key(path)})
        parts.run(data, self._new, condition)

    def _head(self, path: str) -> Any:  # noqa: ANN401 - an answer of boto3's
        check_path(path)
        where = self._where(path)
        with told(where):
            try:
                return self._patient.head_object(**self._all, Key=self._key(path))
            except aws.ClientError as error:
                if status_of(error) == _MISSING:
                    raise missing(where) from error
                raise

    def _read(self, path: str, ranged: str | None) -> _Body:
        """What was asked for; nothing where the object ends before the range."""
        check_path(path)
        where = self._where(path)
        asked: dict[str, Any] = {"Key": self._key(path), **({"Range": ranged} if ranged else {})}
        for left in reversed(range(_READS)):
            try:
                with told(where):
                    return self._read_once(where, asked)
            except RetryError as error:
                if left == 0 or not isinstance(error.__cause__, BROKEN_OFF):
                    raise
        raise AssertionError

    def _read_once(self, where: str, asked: Mapping[str, Any]) -> _Body:
        try:
            answer = self._patient.get_object(**self._all, **asked)
        except aws.ClientError as error:
            if status_of(error) == _NO_SUCH_RANGE:
                return _Body(b"", 0)
            if status_of(error) == _MISSING and error.response["Error"].get("Code") in _NO_OBJECT:
                raise missing(where) from error
            raise
        # Not by `with`: that hands out the stream below, whose errors aren't boto3's.
        with closing(answer["Body"]):
            data = answer["Body"].read()
        total = answer.get("ContentRange", "").rpartition("/")[2]
        return _Body(data, int(total) if total.isdigit() else len(data), answer.get("ETag", ""))

    def _pages(self, below: str, size: int = 1000, delimiter: str = "/") -> Iterator[Any]:
        """The pages of what lies directly below a key prefix that ends at a slash."""
        asked: dict[str, Any] = {**self._all, "Prefix": below, "MaxKeys": size}
        if delimiter:
            asked["Delimiter"] = delimiter
        where = f"s3://{self._bucket}/{below}"
        while True:
            with told(where):
                page = self._patient.list_objects_v2(**asked)
            if not all(one.keys() >= {"Key", "Size"} for one in page.get("Contents", ())):
                raise _no_listing("an object has no name or no size", where)
            yield page
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == asked.get("ContinuationToken"):
                raise _no_listing("it is cut off, and doesn't say where it goes on", where)
            asked["ContinuationToken"] = token

    def _listed(self, below: str) -> Iterator[Sequence[Listed]]:
        """The objects of each page, in the order of their names: some servers sort as UTF-16 does."""
        for page in self._pages(below):
            ones = (one for one in page.get("Contents", ()) if one["Key"] != below)
            listed = (Listed(one["Key"][len(self._below) :], one["Size"]) for one in ones)
            yield sorted(listed, key=lambda one: one.path)

    def _folder(self, prefix: str) -> str:
        folder = check_folder(prefix)
        return f"{self._below}{folder}/" if folder else self._below

    def _key(self, path: str) -> str:
        return self._below + path

    def _where(self, path: str) -> str:
        return f"{self._uri}/{path}"


def _folders_in(page: Mapping[str, Any], below: str) -> list[str]:
    """The names of the folders on a page of what lies directly below a key prefix."""
    return [one["Prefix"][len(below) :].rstrip("/") for one in page.get("CommonPrefixes", ())]


BROKEN_OFF: Final = (
    aws.ResponseStreamingError,
    aws.IncompleteReadError,
    aws.ReadTimeoutError,
    aws.FlexibleChecksumError,
)
"""How a body ends before its end."""


def conditional(where: str, put: Callable[[], object]) -> Put:
    """How a put with a condition ended, by its one answer.

    A condition that failed says that the name is taken. What the store refuses for good it has not done, and
    what was never sent neither. All else is doubt: also 409, by which S3 says that another request for the
    same name was under way, and every fault of the server, which may come after the object was stored.
    """
    try:
        put()
    except aws.ClientError as error:
        if status_of(error) == _TAKEN:
            return Put.EXISTS
        found = failure(error, where)
        if isinstance(found, RetryError):
            raise DoubtfulPutError(str(found)) from error
        raise found from error
    except NEVER_SENT as error:
        raise failure(error, where) from error
    except (aws.BotoCoreError, ValueError) as error:
        found = failure(error, where)
        if isinstance(found, RetryError):
            raise DoubtfulPutError(str(found)) from error
        raise found from error
    return Put.STORED


def _no_listing(message: str, where: str) -> RetryError:
    """What is raised for the answer to a listing that isn't one: a part of it would pass for the whole."""
    hint = "try again; if it stays so, the server, or a proxy before it, doesn't list as S3 does (version 2)"
    return RetryError(f"the store's listing is incomplete: {message}", where=where, hint=hint)


def missing(where: str) -> FileNotFoundError:
    """What every store raises where there is no object."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)
