"""A store on S3 or a server that speaks its protocol: it publishes by a conditional put.

`PUT` with `If-None-Match: *` stores an object unless its name is taken, atomically. S3 has had it
since 2024. That request is sent once and no layer repeats it: what is received is an answer to it, or no
answer, which is a doubt (`DoubtfulPutError`) that is settled by reading back. All other requests may be
repeated, and are. Nothing is committed by a copy on the server, since servers ignore conditions on a copy.

Objects that are too large for a request are uploaded in parts, and the condition is put on the completion.
What needs many requests sends several at once.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from botocore import exceptions as aws
from urllib3.exceptions import HTTPError

from lakefold_table.errors import InvalidError, RetryError
from lakefold_table.storage.aws import (
    CLIENT_ERRORS,
    NEVER_SENT,
    aws_options,
    failure,
    s3_clients,
    status_of,
    translated_errors,
)
from lakefold_table.storage.base import Buffer, DoubtfulPutError, Listed, Put, check_whole
from lakefold_table.storage.concurrently import RemoteStorage, together
from lakefold_table.storage.conditions import check_once, check_puts
from lakefold_table.storage.multipart import PartsUpload
from lakefold_table.storage.paths import check_folder, check_new_path, check_path, check_range
from lakefold_table.uri import canonical, parse_location

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

LARGE: Final = 32 << 20
"""From this size on an object is uploaded in parts, several at once."""

AT_ONE_TIME: Final = 16
"""How many requests of a call run at the same time."""

_READS: Final = 3
"""How often a body that broke off is requested, the first time included; boto3 repeats only whole answers."""

_LONGEST: Final = 1 << 46
"""More bytes than an object can have. A server need not read larger numbers in a range."""

_NEW: Final[Mapping[str, Any]] = {"IfNoneMatch": "*"}

_EXPRESS: Final = "--x-s3"
"""The end of the name of a directory bucket (S3 Express One Zone), which lists in no order."""

_TAKEN: Final = 412
_MISSING: Final = 404
_NO_SUCH_RANGE: Final = 416
_NO_OBJECT: Final = frozenset({"NoSuchKey", "NotFound", "404"})
"""The codes of a missing object. 404 is also sent for buckets and, by some servers, for users."""


class _Body(NamedTuple):
    """Bytes of an object, its size, and its ETag."""

    data: bytes
    size: int
    etag: str = ""


class S3Storage(RemoteStorage):
    """The objects below `s3://BUCKET/PATH` as a `Storage`. Safe for many threads.

    `storage_options`: as pylance takes them (`aws_options`). Raises `InvalidError` if they can't be used, or
    if `uri` names another kind of store.
    """

    at_one_time = AT_ONE_TIME

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.uri = canonical(uri)
        location = parse_location(self.uri)
        if location.scheme != "s3" or location.external:
            hint = "give a URI such as s3://BUCKET/PATH"
            raise InvalidError(f"a {location.scheme} URI is not a plain S3 store", where=uri, hint=hint)
        self._bucket = location.authority
        self.lists_in_order = not self._bucket.endswith(_EXPRESS)
        self._below = location.path + "/" if location.path else ""
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

    def get(self, path: str) -> bytes:
        """See `Storage.get`."""
        return self._read(path, None).data

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """See `Storage.get_range`. One request, even if the object ends before the range."""
        check_range(path, start, length)
        if length == 0:
            self._head(path)
            return b""
        data, size, _ = self._read(path, f"bytes={min(start, _LONGEST)}-{start + min(length, _LONGEST) - 1}")
        # A server that doesn't know ranges sends the whole object.
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

    def stored_at(self, path: str) -> int | None:
        """See `Storage.stored_at`: the time of the object's last modification, in whole seconds."""
        try:
            modified = self._head(path).get("LastModified")
            return None if modified is None else int(modified.timestamp()) * 1_000_000
        except FileNotFoundError:
            return None

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """See `Storage.put_if_absent`. One request, sent once; several if the object is large."""
        check_new_path(path)
        data = b"".join(buffers)
        where = self._where(path)
        if len(data) >= LARGE:
            return conditional_put(where, lambda: self._upload(path, data, condition=_NEW))
        return conditional_put(
            where,
            lambda: self._once.put_object(**self._all, **self._new, Key=self._key(path), Body=data, **_NEW),
        )

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Storage.put`."""
        check_new_path(path)
        data = b"".join(buffers)
        with translated_errors(self._where(path)):
            if len(data) >= LARGE:
                self._upload(path, data, condition={})
            else:
                self._patient.put_object(**self._all, **self._new, Key=self._key(path), Body=data)

    def get_with_etag(self, path: str) -> tuple[bytes, str]:
        """See `Storage.get_with_etag`."""
        body = self._read(path, None)
        return body.data, body.etag

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        """See `Storage.replace`. One request, sent once. S3 has known its condition since 2024."""
        check_new_path(path)
        request: dict[str, Any] = {**self._all, **self._new, "Key": self._key(path), "IfMatch": etag}
        data = b"".join(buffers)
        try:
            put = conditional_put(self._where(path), lambda: self._once.put_object(**request, Body=data))
        except InvalidError as error:
            if isinstance(error.__cause__, aws.ClientError) and status_of(error.__cause__) == _MISSING:
                return False
            raise
        return put is Put.STORED

    def list(self, prefix: str) -> Iterator[Listed]:
        """See `Storage.list`. One request for each thousand objects, sent while the iterator is read."""
        below = self._folder(prefix)
        pages = self._listed(below)
        if not self.lists_in_order:
            return iter(sorted((item for page in pages for item in page), key=lambda item: item.path))
        return (item for page in pages for item in page)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `Storage.folders`. One request for each thousand objects or folders."""
        below = self._folder(prefix)
        return [name for page in self._pages(below) for name in _folders_in(page, below)]

    def some_folders(self, prefix: str, most: int) -> Sequence[str] | None:
        """See `Storage.some_folders`. One request for each thousand objects or folders."""
        below, count, folders = self._folder(prefix), 0, list[str]()
        for page in self._pages(below):
            names = _folders_in(page, below)
            count += len(page.get("Contents", ())) + len(names)
            if count > most:
                return None
            folders += names
        return folders

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """See `Storage.first_names`. One request."""
        below = self._folder(prefix)
        page = next(self._pages(below, size=count))
        keys = [entry["Key"] for entry in page.get("Contents", ())]
        return [key[len(below) :] for key in keys if key != below]

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """See `Storage.anything_at_root`. One request, if no more names than `besides` has don't count."""
        for page in self._pages(self._below, size=len(besides) + 2):
            keys = [entry["Key"] for entry in page.get("Contents", ())]
            folders = [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
            names = {key[len(self._below) :].partition("/")[0] for key in (*keys, *folders)}
            if any(name and name not in besides for name in names):
                return True
        return False

    def everything(self) -> Iterator[str]:
        """See `Storage.everything`. A request for each thousand objects, sent while the iterator is read."""
        for page in self._pages(self._below, delimiter=""):
            keys = (entry["Key"][len(self._below) :] for entry in page.get("Contents", ()))
            yield from (key for key in keys if key and not key.endswith("/"))

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        check_path(path)
        with translated_errors(self._where(path)):
            self._patient.delete_object(**self._all, Key=self._key(path))

    def make_durable(self, paths: Iterable[str]) -> None:
        """See `Storage.make_durable`. What S3 has stored is durable; only missing objects are reported."""
        together(self._head, list(paths), AT_ONE_TIME)

    def check_conditions(self) -> None:
        """See `Storage.check_conditions`: also of joining parts. Seven requests, once for a bucket."""
        check_once(self._server, lambda: check_puts(self, self._probe))

    def _probe(self, path: str) -> tuple[Put, ...]:
        put = partial(self.put_if_absent, path, [b"probe"])
        in_parts = partial(self._upload, path, b"probe", condition=_NEW)
        return put(), put(), conditional_put(self._where(path), in_parts)

    def _upload(self, path: str, data: bytes, condition: Mapping[str, Any]) -> None:
        parts = PartsUpload(self._patient, self._once, {**self._all, "Key": self._key(path)})
        parts.run(data, self._new, condition)

    def _head(self, path: str) -> Any:  # noqa: ANN401 - an answer of boto3's
        check_path(path)
        where = self._where(path)
        with translated_errors(where):
            try:
                return self._patient.head_object(**self._all, Key=self._key(path))
            except aws.ClientError as error:
                if status_of(error) == _MISSING:
                    raise missing(where) from error
                raise

    def _read(self, path: str, ranged: str | None) -> _Body:
        """Returns the requested bytes, none if the object ends before the range."""
        check_path(path)
        where = self._where(path)
        request: dict[str, Any] = {"Key": self._key(path), **({"Range": ranged} if ranged else {})}
        for attempts_left in reversed(range(_READS)):
            try:
                with translated_errors(where):
                    return self._read_once(where, request)
            except RetryError as error:
                if attempts_left == 0 or not isinstance(error.__cause__, BROKEN_OFF):
                    raise
        raise AssertionError

    def _read_once(self, where: str, request: Mapping[str, Any]) -> _Body:
        try:
            answer = self._patient.get_object(**self._all, **request)
        except aws.ClientError as error:
            if status_of(error) == _NO_SUCH_RANGE:
                return _Body(b"", 0)
            if status_of(error) == _MISSING and error.response["Error"].get("Code") in _NO_OBJECT:
                raise missing(where) from error
            raise
        # `with answer["Body"]` would return the stream below it, whose errors aren't boto3's.
        with closing(answer["Body"]):
            check_whole(answer.get("ContentLength", 0), where)
            data = answer["Body"].read()
        total = answer.get("ContentRange", "").rpartition("/")[2]
        return _Body(data, int(total) if total.isdigit() else len(data), answer.get("ETag", ""))

    def _pages(self, below: str, size: int = 1000, delimiter: str = "/") -> Iterator[Any]:
        """Yields the pages of a listing directly below a key prefix that ends with a slash."""
        request: dict[str, Any] = {**self._all, "Prefix": below, "MaxKeys": size}
        if delimiter:
            request["Delimiter"] = delimiter
        where = f"s3://{self._bucket}/{below}"
        while True:
            with translated_errors(where):
                page = self._patient.list_objects_v2(**request)
            if not all(entry.keys() >= {"Key", "Size"} for entry in page.get("Contents", ())):
                raise _no_listing("an object has no name or no size", where)
            yield page
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == request.get("ContinuationToken"):
                raise _no_listing("it is cut off, and doesn't say where it continues", where)
            request["ContinuationToken"] = token

    def _listed(self, below: str) -> Iterator[Sequence[Listed]]:
        """Yields the objects of each page, in the order of their names: some servers sort as UTF-16 does."""
        for page in self._pages(below):
            entries = (entry for entry in page.get("Contents", ()) if entry["Key"] != below)
            listed = (Listed(entry["Key"][len(self._below) :], entry["Size"]) for entry in entries)
            yield sorted(listed, key=lambda item: item.path)

    def _folder(self, prefix: str) -> str:
        folder = check_folder(prefix)
        return f"{self._below}{folder}/" if folder else self._below

    def _key(self, path: str) -> str:
        return self._below + path

    def _where(self, path: str) -> str:
        return f"{self.uri}/{path}"


def _folders_in(page: Mapping[str, Any], below: str) -> list[str]:
    """Returns the names of the folders on a page of a listing directly below a key prefix."""
    return [entry["Prefix"][len(below) :].rstrip("/") for entry in page.get("CommonPrefixes", ())]


BROKEN_OFF: Final = (
    aws.ResponseStreamingError,
    aws.IncompleteReadError,
    aws.ReadTimeoutError,
    aws.FlexibleChecksumError,
    HTTPError,
)
"""Errors of a body that ends too early."""


def conditional_put(where: str, put: Callable[[], object]) -> Put:
    """Calls `put`, a put with a condition, and returns how it ended by its only answer.

    If the condition failed, the name is taken. If the store refuses for good, or the request was never sent,
    the object was not stored. Everything else is a doubt: also 409, by which S3 says that another request for
    the same name was under way, and every fault of the server, which may come after the object was stored.
    """
    try:
        put()
    except NEVER_SENT as error:
        raise failure(error, where) from error
    except CLIENT_ERRORS as error:
        if isinstance(error, aws.ClientError) and status_of(error) == _TAKEN:
            return Put.EXISTS
        refusal = failure(error, where)
        if isinstance(refusal, RetryError):
            raise DoubtfulPutError(str(refusal)) from error
        raise refusal from error
    return Put.STORED


def _no_listing(message: str, where: str) -> RetryError:
    """Returns the error for an incomplete listing, of which a part would be taken for the whole."""
    hint = "try again; if it stays so, the server, or a proxy before it, doesn't list as S3 does (version 2)"
    return RetryError(f"the store's listing is incomplete: {message}", where=where, hint=hint)


def missing(where: str) -> FileNotFoundError:
    """Returns the error that every store raises if an object doesn't exist."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)
