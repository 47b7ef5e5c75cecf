"""The cluster key's rotation: one step at a time, each taken only when every running pod has completed the one before.

1. accept: the old key signs, the new one is accepted too.
2. sign: the new key signs, the old one is still accepted. Lasts as long as a token that was signed with the old one.
3. forget: the new key alone.

Keys and phase are in one Secret and change in one write, so there is no moment between them. The next step follows from
the Secret and the pods' reports alone.

Fault model: the operator may die, or lose the lease, between any two writes, and any write may fail: the next reconcile
reads the Secret as it is and continues from there. A pod that does not report, for whatever reason, stops the rotation
where it is. Somebody may edit the Secret: keys are removed from it by step 3 only, and only with the new key in it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from swiftlet.crd import Fact
from swiftlet.crd.conditions import rfc3339
from swiftlet.errors import SettingsError
from swiftlet.settings import SERVICES
from swiftlet.settings.secret import MAX_KEYS, key_id, parse_keys
from swiftlet_operator.build.secrets import KEY_GENERATION
from swiftlet_operator.build.settings import CLUSTER_KEY
from swiftlet_operator.manifests import GROUP, SECRET, Manifest, annotations_of, name_of
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.world import World

PHASE = f"{GROUP}/key-phase"
TARGET = f"{GROUP}/key-target"
"""Annotation: the generation that is reached when all phases are through."""
NEW = f"{GROUP}/key-new"
"""Annotation: the fingerprint of the key that takes over."""
COMPLETE_AT = f"{GROUP}/key-complete-at"
"""Annotation: when all pods were first seen to have reached the phase, seconds since the epoch."""
MADE_AT = f"{GROUP}/key-made-at"
"""Annotation: when the newest key was made, seconds since the epoch; absent while it is the Secret's first key."""
WORKERS_S = 30
"""Seconds after a report in which a service's other workers read the file too: a report is from one worker alone."""
LOOK_AGAIN_S = 15.0
_DONE = "done"
_MOST_NAMED = 5

Phase = Literal["accept", "sign", "forget"]
_NEXT: Mapping[Phase, Phase | None] = {"accept": "sign", "sign": "forget", "forget": None}
_REASONS: Mapping[Phase, str] = {"accept": "NewKeyAccepted", "sign": "NewKeySigns", "forget": "OldKeyForgotten"}
ROTATING = frozenset(_REASONS.values())
"""Reasons of a rotation that proceeds as it should, while `KeysRotated` is False."""


class Holder(NamedTuple):
    """A service of a running pod: the fingerprints of its keys, the signing one first; None when it does not report."""

    pod: str
    service: str
    keys: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """What is to be done about the Secret now, what people are told, and when to look again."""

    fact: Fact
    generation: int
    """The generation that has been reached."""
    patch: Patch | None = None
    again_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """The state of the keys as the Secret has it."""

    secret: Manifest
    keys: tuple[bytes, ...]
    generation: int
    phase: Phase | None
    target: int
    new: str
    complete_at_s: int | None


def rotation(world: World, fresh: Callable[[], str]) -> KeyPlan:
    """Return the plan for a world; `fresh` makes a key."""
    spec = world.cluster.spec
    live = world.child(SECRET, f"{world.cluster.meta.name}-keys")
    return plan_keys(live, spec.keys.generation, holders(world), world.now_s, spec.auth.token_life_seconds, fresh)


def key_made_s(live: Manifest | None) -> float | None:
    """Return when the newest key in the Secret was made, in seconds since the epoch; None when that is not recorded."""
    if live is None:
        return None
    noted = _number(live, MADE_AT)
    if noted is not None:
        return float(noted)
    created = live["metadata"].get("creationTimestamp")
    try:
        return datetime.fromisoformat(str(created)).timestamp()
    except ValueError:
        return None


def holders(world: World) -> list[Holder]:
    """Return the services of all pods that may be running: those that have a node and have not ended."""
    found = []
    for pod in world.pods:
        ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if ended or not pod["spec"].get("nodeName"):
            continue
        for service in sorted({one["name"] for one in pod["spec"].get("containers") or []} & set(SERVICES)):
            report = world.report(name_of(pod), service)
            found.append(Holder(name_of(pod), service, report.keys or None if report is not None else None))
    return found


def plan_keys(
    live: Manifest | None,
    wanted: int,
    running: Sequence[Holder],
    now_s: int,
    token_life_s: int,
    fresh: Callable[[], str],
) -> KeyPlan:
    """Return what the Secret should hold next.

    `live` is the Secret, None before it is made with the generation `wanted`.
    """
    if live is None:
        return KeyPlan(Fact("KeysRotated", "True", "Current", f"the key of generation {wanted} is made"), wanted)
    try:
        state = _state(live)
    except SettingsError as error:
        message = f"Secret {name_of(live)}: {error}; restore it from a backup"
        return KeyPlan(Fact("KeysRotated", "False", "KeysUnreadable", message), _number(live, KEY_GENERATION) or 1)
    if state.phase is not None:
        return _go_on(state, state.phase, running, now_s, token_life_s)
    if state.generation >= wanted:
        fact = Fact("KeysRotated", "True", "Current", f"all services have the key of generation {state.generation}")
        return KeyPlan(fact, state.generation)
    if len(state.keys) >= MAX_KEYS:
        message = f"Secret {name_of(live)} holds {len(state.keys)} keys, so that no new one fits; remove old ones"
        return KeyPlan(Fact("KeysRotated", "False", "TooManyKeys", message), state.generation)
    made = fresh()
    notes = {PHASE: "accept", TARGET: str(wanted), NEW: key_id(made.encode()), MADE_AT: str(now_s), COMPLETE_AT: ""}
    patch = _patch(state, notes, (*state.keys, made.encode()))
    return KeyPlan(_rotating("accept", wanted, "a new key is handed out"), state.generation, patch, LOOK_AGAIN_S)


def _go_on(state: _State, phase: Phase, running: Sequence[Holder], now_s: int, token_life_s: int) -> KeyPlan:
    new = next((key for key in state.keys if key_id(key) == state.new), None)
    if new is None:
        message = (
            f"Secret {name_of(state.secret)} has lost the new key {state.new} while it was handed out: put it back, or "
            f"set the annotation {PHASE} to {_DONE} to begin anew with another one"
        )
        return KeyPlan(Fact("KeysRotated", "False", "NewKeyLost", message), state.generation)
    keys = _ordered(phase, state.keys, new)
    if keys != state.keys:
        # Somebody changed the order of the keys: it is put right before anything else.
        note = _rotating(phase, state.target, "the Secret is put right")
        return KeyPlan(note, state.generation, _patch(state, {COMPLETE_AT: ""}, keys), LOOK_AGAIN_S)
    ids = tuple(key_id(key) for key in keys)
    if behind := [one for one in running if not _has_reached(phase, one.keys, ids)]:
        # A service that does not answer had the keys when all had them; one that reports others has lost them again.
        lost = state.complete_at_s is not None and any(one.keys is not None for one in behind)
        patch = _patch(state, {COMPLETE_AT: ""}) if lost else None
        return KeyPlan(_rotating(phase, state.target, _waiting(behind)), state.generation, patch, LOOK_AGAIN_S)
    wait_s = WORKERS_S + (token_life_s if phase == "sign" else 0)
    if state.complete_at_s is None:
        note = _rotating(phase, state.target, f"all services have it; {wait_s} s are waited for what is under way")
        return KeyPlan(note, state.generation, _patch(state, {COMPLETE_AT: str(now_s)}), LOOK_AGAIN_S)
    left_s = state.complete_at_s + wait_s - now_s
    if left_s > 0:
        note = _rotating(phase, state.target, _until(phase, state.complete_at_s + wait_s))
        return KeyPlan(note, state.generation, None, float(left_s))
    return _advanced(state, phase, new)


def _advanced(state: _State, phase: Phase, new: bytes) -> KeyPlan:
    following = _NEXT[phase]
    if following is None:
        notes = {KEY_GENERATION: str(state.target), PHASE: _DONE, COMPLETE_AT: ""}
        fact = Fact("KeysRotated", "True", "Current", f"all services have the key of generation {state.target}")
        return KeyPlan(fact, state.target, _patch(state, notes), LOOK_AGAIN_S)
    patch = _patch(state, {PHASE: following, COMPLETE_AT: ""}, _ordered(following, state.keys, new))
    return KeyPlan(_rotating(following, state.target, "handed out"), state.generation, patch, LOOK_AGAIN_S)


def _ordered(phase: Phase, keys: tuple[bytes, ...], new: bytes) -> tuple[bytes, ...]:
    """Return the keys in the order that the Secret has in a phase."""
    old = tuple(key for key in keys if key != new)
    return {"accept": (*old, new), "sign": (new, *old), "forget": (new,)}[phase]


def _has_reached(phase: Phase, reported: tuple[str, ...] | None, ids: tuple[str, ...]) -> bool:
    if reported is None:
        return False
    if phase == "forget":
        return reported == ids
    return set(ids) <= set(reported) and (phase == "accept" or reported[0] == ids[0])


def _state(live: Manifest) -> _State:
    notes = annotations_of(live)
    try:
        content = base64.b64decode((live.get("data") or {}).get(CLUSTER_KEY, ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SettingsError(f"{CLUSTER_KEY} is not base64") from error
    return _State(
        secret=live,
        keys=parse_keys(content, CLUSTER_KEY),
        generation=_number(live, KEY_GENERATION) or 1,
        phase=next((phase for phase in _NEXT if phase == notes.get(PHASE)), None),
        target=_number(live, TARGET) or 1,
        new=notes.get(NEW, ""),
        complete_at_s=_number(live, COMPLETE_AT),
    )


def _number(live: Manifest, note: str) -> int | None:
    text = annotations_of(live).get(note, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _patch(state: _State, notes: Mapping[str, str], keys: Iterable[bytes] | None = None) -> Patch:
    """Return a patch that the API server refuses when the Secret has changed since it was read."""
    version = state.secret["metadata"].get("resourceVersion")
    change: Manifest = {"metadata": {"resourceVersion": version, "annotations": dict(notes)}}
    if keys is not None:
        change["data"] = {CLUSTER_KEY: base64.b64encode(b"".join(key + b"\n" for key in keys)).decode()}
    return Patch(SECRET, name_of(state.secret), change)


def _rotating(phase: Phase, target: int, what: str) -> Fact:
    number = list(_NEXT).index(phase) + 1
    message = f"on the way to generation {target}, step {number} of {len(_NEXT)} ({phase}): {what}"
    return Fact("KeysRotated", "False", _REASONS[phase], message)


def _waiting(behind: Sequence[Holder]) -> str:
    names = [f"{one.pod} ({one.service}{', no report' if one.keys is None else ''})" for one in behind[:_MOST_NAMED]]
    more = f" and {len(behind) - _MOST_NAMED} more" if len(behind) > _MOST_NAMED else ""
    return f"waiting for {', '.join(names)}{more}"


def _until(phase: Phase, moment_s: int) -> str:
    why = "tokens signed with the old key are good" if phase == "sign" else "all workers read it"
    return f"all services have it; {why} until {rfc3339(datetime.fromtimestamp(moment_s, UTC))} at the latest"
