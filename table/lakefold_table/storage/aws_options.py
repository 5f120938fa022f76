"""Reads AWS settings from `storage_options`, by the names that pylance takes: one configuration serves both.

The names are those of the `object_store` library (`AmazonS3ConfigKey` and `ClientConfigKey` in its
documentation), to which pylance passes its options: upper or lower case, most with or without `aws_` before
them. Options that mean nothing here are left to pylance. What isn't given is left to boto3, which reads the
usual variables, profiles and roles. Only variables that pylance reads and boto3 doesn't (`AWS_ENDPOINT` and
the like) are read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLES: Final = """
    endpoint virtual_hosted_style_request skip_signature allow_http allow_invalid_certificates
    connect_timeout timeout read_timeout proxy_url server_side_encryption sse_kms_key_id
    sse_bucket_key_enabled request_payer
"""
_GIVEN: Final = """
    access_key_id secret_access_key session_token region default_region endpoint_url_s3 profile
    client_max_retries sse_customer_key_base64
"""
_FROM_ENVIRONMENT: Final = frozenset(_VARIABLES.split())
"""The options that pylance reads from variables beginning with `AWS_`, and that boto3 doesn't."""

_NAMES: Final = _FROM_ENVIRONMENT.union(_GIVEN.split())
"""The options that are read here, in lower case and without `aws_`."""

_OTHER_NAMES: Final = {"token": "session_token", "endpoint_url": "endpoint", "request_timeout": "timeout"}
"""Other names of some of them."""

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
"""How long connecting, and a pause within an answer, may take. They are pylance's own defaults."""

ATTEMPTS: Final = 5
"""How often a request that may be repeated is sent, the first time included."""


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """The settings as plain values. None and empty text leave a setting to boto3. Times in seconds."""

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
        """Returns the options without credentials, since they may be logged."""
        return f"AwsOptions(endpoint={self.endpoint!r}, region={self.region!r}, profile={self.profile!r})"


def read_options(options: Mapping[str, str], environment: Mapping[str, str]) -> AwsOptions:
    """Returns the AWS settings in `storage_options`, completed from `environment` (`os.environ`).

    Raises `InvalidError` if a value can't be read, if a key is given without its secret, if an endpoint has
    no TLS and `allow_http` doesn't allow that (pylance refuses it too), or if encryption by a customer's key
    is asked for.
    """
    given = _named(options)
    settings = {**_of_environment(environment), **given}
    if settings.get("sse_customer_key_base64"):
        hint = "use server_side_encryption with a key of the store's own (aws:kms)"
        raise InvalidError(
            "encryption by a customer's key is not supported", where=OptionName("storage_options"), hint=hint
        )
    if bool(settings.get("access_key_id")) != bool(settings.get("secret_access_key")):
        hint = "give both aws_access_key_id and aws_secret_access_key, or neither"
        raise InvalidError(
            "a key without its secret can't sign", where=OptionName("storage_options"), hint=hint
        )
    endpoint = settings.get("endpoint_url_s3") or settings.get("endpoint", "")
    if "@" in endpoint:
        # boto3 and pylance print it in every error, and neither uses the user and password to sign.
        hint = "leave user and password out of it, and give aws_access_key_id and aws_secret_access_key"
        raise InvalidError("the endpoint names a user", where=OptionName("storage_options"), hint=hint)
    if endpoint.startswith("http://") and given.keys() & {"endpoint", "endpoint_url_s3"}:
        _check_http_allowed(endpoint, settings)
    virtual = settings.get("virtual_hosted_style_request")
    return AwsOptions(
        access_key_id=settings.get("access_key_id", ""),
        secret_access_key=settings.get("secret_access_key", ""),
        session_token=settings.get("session_token", ""),
        region=settings.get("region") or settings.get("default_region", ""),
        profile=settings.get("profile", ""),
        endpoint=endpoint,
        virtual_hosted=None if virtual is None else _flag("virtual_hosted_style_request", virtual),
        skip_signature=_flag("skip_signature", settings.get("skip_signature", "false")),
        verify_certificates=not _flag(
            "allow_invalid_certificates", settings.get("allow_invalid_certificates", "false")
        ),
        connect_timeout=_seconds("connect_timeout", settings, CONNECT_SECONDS),
        read_timeout=_seconds("read_timeout", settings, _seconds("timeout", settings, READ_SECONDS)),
        attempts=_attempts(settings.get("client_max_retries", str(ATTEMPTS - 1))),
        proxy_url=settings.get("proxy_url", ""),
        encryption=settings.get("server_side_encryption", ""),
        encryption_key=settings.get("sse_kms_key_id", ""),
        bucket_key=_flag("sse_bucket_key_enabled", settings.get("sse_bucket_key_enabled", "false")),
        request_payer=_flag("request_payer", settings.get("request_payer", "false")),
    )


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that this module reads, each under one name."""
    short = {name.lower().removeprefix("aws_"): str(value) for name, value in options.items()}
    named = ((_OTHER_NAMES.get(name, name), value) for name, value in short.items())
    return {name: value for name, value in named if name in _NAMES}


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {name: value for name, value in environment.items() if name.startswith("AWS_") and value}
    # boto3 reads the other variables for the endpoint itself.
    named = {name: value for name, value in variables.items() if not name.startswith("AWS_ENDPOINT_URL")}
    return {name: value for name, value in _named(named).items() if name in _FROM_ENVIRONMENT}


def _check_http_allowed(endpoint: str, settings: Mapping[str, str]) -> None:
    if not _flag("allow_http", settings.get("allow_http", "false")):
        hint = "set allow_http=true to send data without encryption, which pylance requires too"
        raise InvalidError("the endpoint has no TLS", where=endpoint, hint=hint)


def _flag(name: str, value: str) -> bool:
    text = value.strip().lower()
    if text not in _TRUE | _FALSE:
        raise InvalidError(f"{name}={value!r} is neither true nor false", where=OptionName("storage_options"))
    return text in _TRUE


def _seconds(name: str, settings: Mapping[str, str], default: float) -> float:
    """Reads a duration as pylance takes it: `30s`, `500ms`, `1m`."""
    if name not in settings:
        return default
    match = _DURATION.fullmatch(settings[name].strip().lower())
    if match is None or match[2] not in _SECONDS or float(match[1]) == 0:
        raise InvalidError(
            f"{name}={settings[name]!r} is not a duration",
            where=OptionName("storage_options"),
            hint="write it as 30s or 500ms",
        )
    return float(match[1]) * _SECONDS[match[2]]


def _attempts(retries: str) -> int:
    if not retries.strip().isdigit():
        raise InvalidError(
            f"client_max_retries={retries!r} is not a number", where=OptionName("storage_options")
        )
    return int(retries) + 1
