"""`/info`: the features of this cluster and the limits in force; `/healthcheck`: OK."""

from __future__ import annotations

from aiohttp import web

from swiftlet import __version__
from swiftlet.api.context.core import ApiOptions, SwiftApi
from swiftlet.api.reading.versioning import HISTORY, STACK
from swiftlet.names import MAX_ACCOUNT_NAME, MAX_CONTAINER_NAME, MAX_OBJECT_NAME


def capabilities(api: SwiftApi) -> dict[str, object]:
    """Return the document at `/info`, in OpenStack Swift's form."""
    limits = api.options.limits
    policies = [
        {"name": policy.name, "aliases": policy.name, "etag": policy.etag}
        | ({"default": True} if policy.default else {})
        for policy in api.options.policies
        if not policy.deprecated
    ]
    return (
        {
            "swift": {
                "version": __version__,
                "account_autocreate": True,
                "allow_account_management": True,
                "policies": policies,
                "max_file_size": limits.max_file_size,
                "max_meta_name_length": limits.max_meta_name_length,
                "max_meta_value_length": limits.max_meta_value_length,
                "max_meta_count": limits.max_meta_count,
                "max_meta_overall_size": limits.max_meta_overall_size,
                "max_header_size": limits.max_header_size,
                "max_account_name_length": MAX_ACCOUNT_NAME,
                "max_container_name_length": MAX_CONTAINER_NAME,
                "max_object_name_length": MAX_OBJECT_NAME,
                "container_listing_limit": limits.container_listing_limit,
                "account_listing_limit": limits.account_listing_limit,
                "valid_api_versions": ["v1", "v1.0"],
                "strict_cors_mode": api.options.cors.strict,
            },
            "slo": {
                "max_manifest_segments": limits.slo_max_manifest_segments,
                "max_manifest_size": limits.slo_max_manifest_size,
                "max_inline_segments": limits.slo_max_inline_segments,
                "min_segment_size": limits.slo_min_segment_size,
                "yield_frequency": limits.slo_yield_frequency_s,
                "allow_async_delete": False,
            },
            "dlo": {"container_listing_limit": limits.container_listing_limit},
            "tempauth": {"account_acls": True},
            "account_quotas": {},
            "container_quotas": {},
            "symlink": {"symloop_max": api.options.symlink.symloop_max, "static_links": True},
        }
        | _many(api.options)
        | _versioning(api.options)
        | _access(api.options)
        | _synced(api)
    )


def _many(options: ApiOptions) -> dict[str, object]:
    bulk = options.bulk
    shown: dict[str, object] = {
        "bulk_upload": {
            "max_containers_per_extraction": bulk.max_containers_per_extraction,
            "max_failed_extractions": bulk.max_failed_extractions,
        },
        "bulk_delete": {
            "max_deletes_per_request": bulk.max_deletes_per_request,
            "max_failed_deletes": bulk.max_failed_deletes,
        },
    }
    return shown | ({"staticweb": {}} if options.static_web.enabled else {})


def _versioning(options: ApiOptions) -> dict[str, object]:
    shown: dict[str, object] = {}
    if options.versioning.allow_object_versioning:
        shown["object_versioning"] = {}
    if options.versioning.allow_versioned_writes:
        shown["versioned_writes"] = {"allowed_flags": [STACK.lower(), HISTORY.lower()]}
    return shown


def _synced(api: SwiftApi) -> dict[str, object]:
    return {"container_sync": api.realms.shown()} if api.realms.enabled else {}


def _access(options: ApiOptions) -> dict[str, object]:
    """Return the kinds of access without a token that are enabled."""
    shown: dict[str, object] = {}
    if options.tempurl.enabled:
        shown["tempurl"] = options.tempurl.model_dump(mode="json", exclude={"enabled"})
    if options.formpost.enabled:
        shown["formpost"] = {"allowed_digests": sorted(options.formpost.allowed_digests)}
    rates = options.rate_limits
    if rates.on:
        shown["ratelimit"] = {
            "account_ratelimit": rates.account_ratelimit,
            "max_sleep_time_seconds": rates.max_sleep_time_s,
            "container_ratelimits": [[step.size, step.rate] for step in rates.container_ratelimits],
            "container_listing_ratelimits": [[step.size, step.rate] for step in rates.container_listing_ratelimits],
        }
    return shown


async def get(api: SwiftApi, request: web.Request) -> web.Response:
    return web.json_response(capabilities(api))


async def healthcheck(api: SwiftApi, request: web.Request) -> web.Response:
    """Answer GET /healthcheck, as Swift's middleware does."""
    return web.Response(text="OK")
