"""What a policy's objects survive, and what they take, for its status. Pure.

Both are of objects that have all of their copies or fragments. How many nodes and zones may be lost is counted in the
ring's table, by where the pods are now.
"""

from __future__ import annotations

from collections.abc import Mapping

from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.spread import kinds_of_places, may_be_lost
from swiftlet_operator.rings import Shape
from swiftlet_operator.world import World

_LEVELS = ("devices", "nodes", "zones")


def durability(world: World, state: RingState) -> dict[str, object]:
    """Return the fields `keptAs`, `bytesPerByte` and `mayBeLost` of a policy with this ring; none before there is a
    ring.
    """
    if state.before is None or state.problem:
        return {}
    places = {f"{kind}s": place_of for kind, place_of in kinds_of_places(world, [state]).items()}
    found = {"devices": may_be_lost(state, str)}
    found |= {level: may_be_lost(state, places[level]) for level in _LEVELS if level in places}
    shape = state.task.shape
    return {
        "keptAs": _kept_as(shape),
        "bytesPerByte": _bytes_per_byte(shape),
        "mayBeLost": {**found, "text": _text(found)},
    }


def _kept_as(shape: Shape) -> str:
    if shape.coding is not None:
        return str(shape.coding)
    return f"{shape.replicas:g} {'copy' if shape.replicas == 1 else 'copies'}"


def _bytes_per_byte(shape: Shape) -> float:
    return round(shape.replicas if shape.coding is None else shape.coding.fragments / shape.coding.data, 2)


def _text(found: Mapping[str, int]) -> str:
    said = [f"{found[level]} {level if found[level] != 1 else level[:-1]}" for level in _LEVELS if level in found]
    return ", or ".join(said)
