"""The operator's recovery key: a Secret of its own namespace, made at the first start, and a copy of it.

Sealed copies of clusters' keys are opened with it. Each of the two Secrets is made again from the other, and both from
what a running operator remembers. They have no finalizer: the namespace of an operator that was uninstalled could not
be deleted then. A new recovery key is made only when nothing is left of the old one; all clusters' keys are then sealed
anew, so a lost recovery key is a loss only together with the keys of a cluster.

Somebody may add identities, as `kubectl swiftlet restore` does: the first one seals, all open.

Fault model: either Secret is deleted, edited or damaged, at any moment; two operators start at once, and then the first
to create the Secret decides the key. An operator whose role does not let it read the Secret goes on without a key.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet_operator.kube import Kube
from swiftlet_operator.manifests import COMPONENT_LABEL, MANAGED_BY_LABEL, MANAGER, NAME_LABEL, SECRET, Manifest
from swiftlet_operator.problems import KubeConflict, KubeError, NotLeader, SealError
from swiftlet_operator.sealing import MAX_IDENTITIES, RecoveryKeys, new_identity, parse_identities

NAME = "swiftlet-recovery-key"
COPY = "swiftlet-recovery-key-copy"
ENTRY = "identities"
COMPONENT = "recovery-key"
LABELS = {NAME_LABEL: "swiftlet-operator", COMPONENT_LABEL: COMPONENT, MANAGED_BY_LABEL: MANAGER}
LOOK_AGAIN_S = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """The recovery keys, or why there are none."""

    keys: RecoveryKeys | None
    problem: str = ""


NO_KEYS = Known(None)


class Recovery:
    """Finds, makes and keeps the recovery key of one operator."""

    def __init__(
        self, kube: Kube, namespace: str, may_write: Callable[[], None], monotonic: Callable[[], float]
    ) -> None:
        """Prepare without reading anything; `may_write` raises NotLeader."""
        self._kube = kube
        self._namespace = namespace
        self._may_write = may_write
        self._monotonic = monotonic
        self._known = Known(None, "it has not been looked for yet")
        self._looked_s = float("-inf")
        self._turn = asyncio.Lock()

    async def known(self) -> Known:
        """Return what the last look found, which is no older than a minute. Raises NotLeader."""
        async with self._turn:
            if self._monotonic() - self._looked_s >= LOOK_AGAIN_S or self._known.keys is None:
                self._known = await self._look()
                self._looked_s = self._monotonic()
            return self._known

    async def _look(self) -> Known:
        try:
            live = [await self._kube.get(SECRET, self._namespace, name) for name in (NAME, COPY)]
            found = [_identities(one) for one in live]
            keys = self._united(found)
            for name, one, has in zip((NAME, COPY), live, found, strict=True):
                if has != keys.identities:
                    await self._write(name, one, keys)
            return Known(keys)
        except NotLeader:
            raise
        except KubeConflict:
            return Known(self._known.keys, "another operator is making it")
        except (KubeError, SealError) as error:
            if self._known.problem != str(error):
                _log.warning("the recovery key can't be used or stored: %s", error)
            return Known(self._known.keys, str(error))

    def _united(self, found: list[tuple[str, ...]]) -> RecoveryKeys:
        """Return all identities of both Secrets and of memory; a fresh one when there is none."""
        remembered = self._known.keys.identities if self._known.keys is not None else ()
        united = tuple(dict.fromkeys(one for has in (*found, remembered) for one in has))
        if len(united) > MAX_IDENTITIES:
            raise SealError(f"Secrets {NAME} and {COPY} have more than {MAX_IDENTITIES} identities; remove old ones")
        if not united:
            _log.warning("a new recovery key was made; it can't open copies that were sealed for an earlier one")
        return RecoveryKeys(united or (new_identity(),))

    async def _write(self, name: str, live: Manifest | None, keys: RecoveryKeys) -> None:
        self._may_write()
        text = "".join(f"{one}\n" for one in keys.identities)
        data = {ENTRY: base64.b64encode(text.encode()).decode()}
        if live is not None:
            version = live["metadata"].get("resourceVersion")
            change = {"metadata": {"resourceVersion": version, "labels": LABELS}, "data": data}
            await self._kube.patch(SECRET, self._namespace, name, change)
            return
        metadata = {"name": name, "namespace": self._namespace, "labels": LABELS}
        await self._kube.create(
            {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
        )


def _identities(live: Manifest | None) -> tuple[str, ...]:
    """Return the identities in a Secret; none when it is missing or damaged, as the other Secret counts then."""
    text = ((live or {}).get("data") or {}).get(ENTRY)
    if not isinstance(text, str):
        return ()
    try:
        return parse_identities(base64.b64decode(text, validate=True).decode())
    except (ValueError, SealError) as error:
        _log.warning("a Secret with the recovery key is damaged: %s", error)
        return ()
