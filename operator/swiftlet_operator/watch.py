"""Watches children and pods to learn whose cluster has changed, and nothing more about them.

Only the metadata of each object is asked for, and nothing is kept: a hundred clusters have some thousand children, and
their contents are read anew by each reconcile.

Fault model: connections end or go silent at any moment, the API server is away, has forgotten the version that a watch
wants to continue from, or refuses. After a gap that can't be bridged all objects are told again, so that no cluster
misses a change; a refused request is repeated at growing intervals, and harms no other kind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from swiftlet_operator.kube import Metadata, Watching
from swiftlet_operator.manifests import Kind
from swiftlet_operator.problems import KubeError, KubeUnavailable

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 60.0

_log = logging.getLogger(__name__)


async def follow(
    kube: Watching, kind: Kind, namespace: str | None, labels: Mapping[str, str], tell: Callable[[Metadata], None]
) -> None:
    """Call `tell` for each object that exists, changes or is deleted, until cancelled."""
    since: str | None = None
    delay_s = FIRST_DELAY_S
    while True:
        try:
            if since is None:
                found, since = await kube.heads(kind, namespace, labels)
                for one in found:
                    tell(one)
            async for version, changed in kube.changes(kind, namespace, labels, since):
                since, delay_s = version, FIRST_DELAY_S
                if changed is not None:
                    tell(changed)
            # The API server ends every watch after some time; that is no failure.
            await asyncio.sleep(FIRST_DELAY_S)
        except KubeUnavailable as error:
            _log.info("the watch of %s was interrupted: %s", kind.plural, error)
            delay_s = await _wait(delay_s)
        except KubeError as error:
            # The version is too old, or a right is missing: begin anew.
            _log.warning("%s can't be watched: %s", kind.plural, error)
            since = None
            delay_s = await _wait(delay_s)


async def _wait(delay_s: float) -> float:
    """Wait, and return how long to wait the next time."""
    await asyncio.sleep(delay_s)
    return min(LONGEST_DELAY_S, 2 * delay_s)
