"""Warns of a misspelt storage option, which every client would ignore without a word.

The same options go to all clients, and each takes those that it knows: ours, Lance's, and the `object_store`
library below Lance. So an option that none of them knows can't be refused (a newer Lance may know it), but it
is most likely a typo, and an ignored region or endpoint shows only later. Each name is reported once.

The names are those of `object_store` 0.12 (`AmazonS3ConfigKey`, `AzureConfigKey`, `GoogleConfigKey`,
`ClientConfigKey` in its documentation) and of Lance's guide to object stores.
"""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LOGGER: Final = logging.getLogger("lakefold_table.storage")

_S3: Final = """
    access_key_id secret_access_key session_token token region default_region endpoint endpoint_url
    endpoint_url_s3 bucket bucket_name profile role_arn role_session_name endpoint_url_sts
    web_identity_token_file metadata_endpoint imdsv1_fallback container_credentials_relative_uri
    container_credentials_full_uri container_authorization_token_file virtual_hosted_style_request
    unsigned_payload checksum_algorithm copy_if_not_exists conditional_put skip_signature disable_tagging
    disable_bulk_delete s3_express request_payer server_side_encryption sse_kms_key_id
    sse_bucket_key_enabled sse_customer_key_base64
"""
_AZURE: Final = """
    account_name account_key access_key master_key client_id client_secret tenant_id authority_id
    authority_host sas_key sas_token bearer_token token use_emulator
    use_fabric_endpoint encryption_key endpoint msi_endpoint identity_endpoint object_id msi_resource_id
    federated_token_file use_azure_cli skip_signature container_name disable_tagging credential_type
    fabric_token_service_url fabric_workload_host fabric_session_token fabric_cluster_identifier
"""
_GOOGLE: Final = """
    service_account service_account_path service_account_key base_url bearer_token bucket bucket_name
    application_credentials skip_signature storage_token
"""
_CLIENT: Final = """
    allow_http allow_invalid_certificates connect_timeout default_content_type http1_only
    http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle http2_max_frame_size
    http2_only pool_idle_timeout pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes
    randomize_addresses read_timeout timeout request_timeout user_agent
"""
_RETRIES: Final = "client_max_retries client_retry_timeout"
_LANCE: Final = """
    download_retry_count dynamodb_endpoint expires_at_millis
    refresh_offset_millis use_opendal
"""

_BY_PREFIX: Final = {
    "aws_": frozenset(f"{_S3} {_CLIENT} {_RETRIES}".split()),
    "azure_storage_": frozenset(_AZURE.split()),
    "azure_": frozenset(f"{_AZURE} {_CLIENT}".split()),
    "google_": frozenset(f"{_GOOGLE} {_CLIENT}".split()),
    "gcs_": frozenset(_GOOGLE.split()),
    "": frozenset(f"{_S3} {_AZURE} {_GOOGLE} {_CLIENT} {_RETRIES} {_LANCE}".split()),
}
"""The names after each prefix. Of prefixes that begin alike the longest comes first."""

_OTHERS: Final = ("oss_", "cos_", "tos_", "hf_", "lance_", "headers.")
"""Prefixes of stores and parts that only Lance has; it checks their options itself."""

_warned: set[str] = set()


def warn_unknown(names: Iterable[str]) -> None:
    """Logs a warning for each name that no client knows, with the most similar name; once in a process."""
    for name in names:
        if name not in _warned and not is_known(name):
            _warned.add(name)
            near = nearest(name)
            suggestion = f"; did you mean {near}?" if near else ""
            LOGGER.warning("neither Lakefold nor Lance knows the storage option %s%s", name, suggestion)


def is_known(name: str) -> bool:
    """Returns whether some client takes an option of this name, in upper or lower case."""
    prefix, rest = _parted(name)
    return rest in _BY_PREFIX[prefix] or name.lower() in _BY_PREFIX[""] or name.lower().startswith(_OTHERS)


def nearest(name: str) -> str:
    """Returns the known name that is most similar to `name`, with its prefix, or "" if none is similar."""
    prefix, rest = _parted(name)
    matches = get_close_matches(rest, sorted(_BY_PREFIX[prefix]), 1, 0.7)
    if matches:
        return prefix + matches[0]
    # The prefix itself may be misspelt.
    whole = sorted(prefix + rest for prefix, names in _BY_PREFIX.items() for rest in names)
    return next(iter(get_close_matches(name.lower(), whole, 1, 0.8)), "")


def _parted(name: str) -> tuple[str, str]:
    low = name.lower()
    prefix = next(prefix for prefix in _BY_PREFIX if low.startswith(prefix))
    return prefix, low.removeprefix(prefix)
