"""Puts a large object in parts, several at once. S3 joins them in a single step, which may have a condition.

Before that step the object can't be seen. An upload that doesn't reach it is aborted, so that its parts
aren't paid for. If the answer to the last step was lost, the upload is aborted as well: an upload that was
joined can no longer be aborted, and an upload that was aborted can no longer be joined, so what is read back
afterwards does not change any more.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.errors import LakefoldError
from lakefold_table.new_threads import new_threads
from lakefold_table.storage.aws import translated_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from types_boto3_s3 import S3Client

PART: Final = 8 << 20
"""The size of a part; S3 takes at most 10,000 of them."""

_MOST: Final = 10_000
_CHECKSUM: Final = "CRC32"
_SUM: Final = "ChecksumCRC32"
_AT_ONE_TIME: Final = 8


class PartsUpload:
    """The upload of an object: `patient` sends what may be repeated, `once` the step that makes it visible.

    `named`: the parameters of each request that name bucket and key.
    """

    def __init__(self, patient: S3Client, once: S3Client, named: Mapping[str, Any]) -> None:
        self._patient = patient
        self._once = once
        self._named = dict(named)

    def run(self, data: bytes, new: Mapping[str, Any], condition: Mapping[str, Any]) -> None:
        """Uploads `data` and joins its parts under `condition`. Raises as boto3 does.

        `new`: the parameters of a new object (its encryption).
        """
        # Parts are sent with checksums, unless AWS_REQUEST_CHECKSUM_CALCULATION switches that off. With
        # checksums the upload must name their kind when it is created, or some servers don't join the parts.
        config = self._patient.meta.config
        summed = getattr(config, "request_checksum_calculation", "") == "when_supported"
        kind: dict[str, Any] = {"ChecksumAlgorithm": _CHECKSUM} if summed else {}
        upload = self._patient.create_multipart_upload(**self._named, **new, **kind)["UploadId"]
        try:
            parts = self._send(upload, data)
            self._once.complete_multipart_upload(
                **self._named, UploadId=upload, MultipartUpload={"Parts": parts}, **condition
            )
        except BaseException:
            with suppress(LakefoldError), translated_errors(str(self._named["Key"])):
                self._patient.abort_multipart_upload(**self._named, UploadId=upload)
            raise

    def _send(self, upload: str, data: bytes) -> list[Any]:
        step = max(PART, -(-len(data) // _MOST))
        view = memoryview(data)

        def send(number: int) -> dict[str, Any]:
            body = bytes(view[(number - 1) * step : number * step])
            answer = self._patient.upload_part(**self._named, UploadId=upload, PartNumber=number, Body=body)
            sums = {name: value for name, value in answer.items() if name == _SUM}
            return {"PartNumber": number, "ETag": answer["ETag"], **sums}

        numbers = range(1, -(-len(data) // step) + 1)
        with new_threads(), ThreadPoolExecutor(_AT_ONE_TIME) as pool:
            return list(pool.map(send, numbers))
