"""Google's XML interface on loopback, in front of the S3 server of the tests.

No emulator that runs without Docker takes the requests of Lance's client (fake-gcs-server up to 1.56.1
answers its puts with 400). But the interface is S3's with other names for two things: who asks, and on which
condition a put is made. So the words are changed here, and a real server keeps the objects and decides the
races.
"""

from __future__ import annotations

import json
import re

from tests.servers.fault_proxy import Answered, FaultProxy, Handler, signed_without

_CONDITION, _GENERATION = "x-goog-if-generation-match", "x-goog-generation"
_HASH = re.compile("[0-9a-f]{32}")


class _Translating(Handler):
    def ask(self, headers: dict[str, str], body: bytes) -> Answered:
        """The S3 server's answer to what Google would have been asked."""
        kept = {name: value for name, value in headers.items() if not name.lower().startswith("x-goog-")}
        generation = self.headers.get(_CONDITION)
        if generation == "0":
            kept["If-None-Match"] = "*"
        elif generation is not None:
            kept["If-Match"] = f'"{int(generation):032x}"'
        answered = super().ask(signed_without(_CONDITION, self.command, self.url(), kept, body), body)
        tags = [value.strip('"') for name, value in answered.headers if name.lower() == "etag"]
        # The S3 server's tag is a hash in hex, and as a number it does for a generation.
        answered.headers += [(_GENERATION, str(int(tag, 16))) for tag in tags if _HASH.fullmatch(tag)]
        return answered


class GoogleFront(FaultProxy):
    """Google's interface before the S3 server that listens on `port`."""

    def __init__(self, port: int) -> None:
        super().__init__(port, _Translating)

    @property
    def google_options(self) -> dict[str, str]:
        """The `storage_options`, as pylance takes them: a key that names this place and asks for no login."""
        key = {"gcs_base_url": self.endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        return {"google_service_account_key": json.dumps({**key, "private_key_id": ""}), "allow_http": "true"}
