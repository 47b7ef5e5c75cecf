"""`GET /v1/locations/ACCOUNT/CONTAINER/OBJECT`: where an object is, for clients that ask the devices themselves.

The answer is JSON: the object's partition, its policy, the version of the ring, the primaries in replica order, and as
many handoffs. It costs one container lookup, mostly a cached one, and never asks for the object itself: the answer is
where the object would be. While the container moves to another policy nobody can say that, and the answer is 409.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import structlog
from aiohttp import web

from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.api.http.problems import ApiError, answer, status_of
from swiftlet.api.requests.metadata_requests import token_text
from swiftlet.auth.identity import Identity, authorize
from swiftlet.errors import SwiftletError
from swiftlet.names import HashPath, Path, parse_path
from swiftlet.placement.rings import Rings
from swiftlet.ring.model import Device
from swiftlet.settings.policies import Policies

PREFIX = "/v1/locations"

_log = structlog.get_logger("locations")


@dataclass(frozen=True, slots=True)
class LocationsApi:
    """The collaborators of one metadata server process."""

    identify: Callable[[str], Identity]
    """Returns the identity of a token. Raises Unauthorized."""
    containers: ContainerCache
    rings: Rings
    hash_path: HashPath
    policies: Policies


def add_location_routes(app: web.Application, api: LocationsApi) -> None:
    """Add the route for locations to `app`."""

    async def handle(request: web.Request) -> web.Response:
        raw = request.rel_url.raw_path.removeprefix(PREFIX)
        try:
            return await _locate(api, request, parse_path(raw))
        except SwiftletError as error:
            if status_of(error) >= 500:
                _log.warning("a request failed", path=raw, error=str(error))
            return answer(error, raw[1:].partition("/")[0])

    app.router.add_get(PREFIX + "/{path:.*}", handle)


async def _locate(api: LocationsApi, request: web.Request, path: Path) -> web.Response:
    if path.container is None or path.obj is None:
        raise ApiError(400, f"the path must name an object: {PREFIX}/ACCOUNT/CONTAINER/OBJECT")
    authorize(api.identify(token_text(request)), "GET", path)
    container = await api.containers.get(path.account, path.container)
    if (move := api.policies.move_in_force(container.move)) is not None:
        names = f"{api.policies.name_of(move.source)} to {api.policies.name_of(move.target)}"
        raise ApiError(409, f"this container moves from storage policy {names}, and either may have the object")
    ring = api.rings.objects(container.policy)
    partition = ring.partition_of(api.hash_path.of(path))
    primaries = ring.primaries(partition)
    return web.json_response(
        {
            "account": path.account,
            "container": path.container,
            "object": path.obj,
            "partition": partition,
            "policy": {"index": container.policy, "name": api.policies.name_of(container.policy)},
            "ring_version": ring.version,
            "primaries": [_described(device) for device in primaries],
            "handoffs": [_described(device) for device in islice(ring.handoffs(partition), len(primaries))],
        }
    )


def _described(device: Device) -> dict[str, str | int]:
    return {
        "name": device.name,
        "host": device.host,
        "port": device.port,
        "device": device.device,
        "region": device.region,
        "zone": device.zone,
    }
