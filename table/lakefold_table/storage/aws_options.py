"""Reads AWS settings from `storage_options`, by the names that pylance takes: one configuration serves both.

The names are those of the `object_store` library (`AmazonS3ConfigKey` and `ClientConfigKey` in its
documentation), which pylance hands its options to: upper or lower case, most with or without `aws_` before
them. Options that mean nothing here are left to pylance. What isn't given is left to boto3, which knows the
usual variables, the profiles and the roles; only the variables that it doesn't know, and pylance does, are
read here (`AWS_ENDPOINT` and its like).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Final = {
    "access_key_id": "access_key_id",
    "secret_access_key": "secret_access_key",
    "session_token": "session_token",
    "token": "session_token",
    "region": "region",
    "default_region": "default_region",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint_url_s3",
    "profile": "profile",
    "virtual_hosted_style_request": "virtual_hosted_style_request",
    "skip_signature": "skip_signature",
    "allow_http": "allow_http",
    "allow_invalid_certificates": "allow_invalid_certificates",
    "connect_timeout": "connect_timeout",
    "timeout": "timeout",
    "request_timeout": "timeout",
    "read_timeout": "read_timeout",
    "client_max_retries": "client_max_retries",
    "proxy_url": "proxy_url",
    "server_side_encryption": "server_side_encryption",
    "sse_kms_key_id": "sse_kms_key_id",
    "sse_bucket_key_enabled": "sse_bucket_key_enabled",
    "sse_customer_key_base64": "sse_customer_key_base64",
    "request_payer": "request_payer",
}
"""An option's name in lower case and without `aws_`, and what it is called here."""

_FROM_ENVIRONMENT: Final = frozenset(
    {
        "endpoint",
        "virtual_hosted_style_request",
        "skip_signature",
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "timeout",
        "read_timeout",
        "proxy_url",
        "server_side_encryption",
        "sse_kms_key_id",
        "sse_bucket_key_enabled",
        "request_payer",
    }
)
"""What pylance reads from variables whose names begin with `AWS_`, and boto3 doesn't."""

_TRUE: Final = frozenset({"1", "true", "on", "yes", "y"})
_FALSE: Final = frozenset({"0", "false", "off", "no", "n"})
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_SECONDS: Final = {
    **dict.fromkeys(("ms", "msec", "millis"), 0.001),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
}

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0
"""How long a connection, and a pause within an answer, may last. They are pylance's own defaults."""

ATTEMPTS: Final = 5
"""How often a request that may be repeated is sent, the first time included."""


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """What was set, as plain values; None and empty text mean: as boto3 finds it. Times in seconds."""

    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    region: str = ""
    profile: str = ""
    endpoint: str = ""
    virtual_hosted: bool | None = None
    skip_signature: bool = False
    verify_certificates: bool = True
    connect_timeout: float = CONNECT_SECONDS
    read_timeout: float = READ_SECONDS
    attempts: int = ATTEMPTS
    proxy_url: str = ""
    encryption: str = ""
    encryption_key: str = ""
    bucket_key: bool = False
    request_payer: bool = False

    def __repr__(self) -> str:
        """Without credentials: it may come into a log."""
        return f"AwsOptions(endpoint={self.endpoint!r}, region={self.region!r}, profile={self.profile!r})"


def read_options(options: Mapping[str, str], environment: Mapping[str, str]) -> AwsOptions:
    """The AWS settings in `storage_options`, and what `environment` (`os.environ`) adds to them.

    Raises `InvalidError` where a value can't be read, where a key comes without its secret, where an endpoint
    without TLS isn't allowed by `allow_http` (as pylance refuses it), and for encryption by a customer's key.
    """
    given = _named(options)
    found = {**_of_environment(environment), **given}
    if found.get("sse_customer_key_base64"):
        hint = "use server_side_encryption with a key of the store's own (aws:kms)"
        raise InvalidError(
            "encryption by a customer's key is not supported", where="storage_options", hint=hint
        )
    if bool(found.get("access_key_id")) != bool(found.get("secret_access_key")):
        hint = "give both aws_access_key_id and aws_secret_access_key, or none of them"
        raise InvalidError("a key without its secret signs nothing", where="storage_options", hint=hint)
    endpoint = found.get("endpoint_url_s3") or found.get("endpoint", "")
    if "@" in endpoint:
        # boto3 and pylance print it in every error, and neither signs with what stands there.
        hint = "leave user and password out of it, and give aws_access_key_id and aws_secret_access_key"
        raise InvalidError("the endpoint names a user", where="storage_options", hint=hint)
    if endpoint.startswith("http://") and given.keys() & {"endpoint", "endpoint_url_s3"}:
        _check_http_allowed(endpoint, found)
    virtual = found.get("virtual_hosted_style_request")
    return AwsOptions(
        access_key_id=found.get("access_key_id", ""),
        secret_access_key=found.get("secret_access_key", ""),
        session_token=found.get("session_token", ""),
        region=found.get("region") or found.get("default_region", ""),
        profile=found.get("profile", ""),
        endpoint=endpoint,
        virtual_hosted=None if virtual is None else _flag("virtual_hosted_style_request", virtual),
        skip_signature=_flag("skip_signature", found.get("skip_signature", "false")),
        verify_certificates=not _flag(
            "allow_invalid_certificates", found.get("allow_invalid_certificates", "false")
        ),
        connect_timeout=_seconds("connect_timeout", found, CONNECT_SECONDS),
        read_timeout=_seconds("read_timeout", found, _seconds("timeout", found, READ_SECONDS)),
        attempts=_attempts(found.get("client_max_retries", str(ATTEMPTS - 1))),
        proxy_url=found.get("proxy_url", ""),
        encryption=found.get("server_side_encryption", ""),
        encryption_key=found.get("sse_kms_key_id", ""),
        bucket_key=_flag("sse_bucket_key_enabled", found.get("sse_bucket_key_enabled", "false")),
        request_payer=_flag("request_payer", found.get("request_payer", "false")),
    )


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are known here, under one name each."""
    short = {name.lower().removeprefix("aws_"): str(value) for name, value in options.items()}
    return {_NAMES[name]: value for name, value in short.items() if name in _NAMES}


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {name: value for name, value in environment.items() if name.startswith("AWS_") and value}
    # The address under its other names is boto3's own to find.
    named = {name: value for name, value in variables.items() if not name.startswith("AWS_ENDPOINT_URL")}
    return {name: value for name, value in _named(named).items() if name in _FROM_ENVIRONMENT}


def _check_http_allowed(endpoint: str, found: Mapping[str, str]) -> None:
    if not _flag("allow_http", found.get("allow_http", "false")):
        hint = "set allow_http=true to send what you store in the clear, as pylance asks for it too"
        raise InvalidError("the endpoint has no TLS", where=endpoint, hint=hint)


def _flag(name: str, value: str) -> bool:
    text = value.strip().lower()
    if text not in _TRUE | _FALSE:
        raise InvalidError(f"{name}={value!r} is neither true nor false", where="storage_options")
    return text in _TRUE


def _seconds(name: str, found: Mapping[str, str], default: float) -> float:
    """A duration as pylance takes it: `30s`, `500ms`, `1m`."""
    if name not in found:
        return default
    told = _DURATION.fullmatch(found[name].strip().lower())
    if told is None or told[2] not in _SECONDS or float(told[1]) == 0:
        raise InvalidError(
            f"{name}={found[name]!r} is no time", where="storage_options", hint="write it as 30s or 500ms"
        )
    return float(told[1]) * _SECONDS[told[2]]


def _attempts(retries: str) -> int:
    if not retries.strip().isdigit():
        raise InvalidError(f"client_max_retries={retries!r} is no number", where="storage_options")
    return int(retries) + 1
