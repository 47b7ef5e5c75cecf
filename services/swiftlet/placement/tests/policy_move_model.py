"""Explores every interleaving of a mover and two clients of one object whose container moves from policy A to B.

Each policy is a register that merges as `swiftlet.store.merge` does: that is what its quorums amount to. Between two
calls anything else may run, and whoever runs may be killed. The mover starts anew after it was killed. Phases that may
be in force side by side: the clients are in `announced` (PUT to A) or `moving` (PUT to B), each by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, replace
from typing import Any

A, B = 0, 1
MOMENT = 0.01


@dataclass(frozen=True)
class Policy:
    """What a policy has of the object: times of data, tombstone and POST."""

    data: float = 0
    tomb: float = 0
    post: float = 0

    @property
    def there(self) -> bool:
        return self.data > self.tomb

    @property
    def meta(self) -> float:
        return max(self.data, self.post)


def do(policy: Policy, call: str, at: float) -> tuple[Policy, str]:
    newest = policy.data if policy.there else policy.tomb
    if call == "put":
        if policy.there and policy.data == at:
            return policy, "ok"
        if newest >= at:
            return policy, "superseded"
        return replace(policy, data=at), "ok"
    if call == "delete":
        if policy.there and policy.data > at:
            return policy, "superseded"
        return replace(policy, tomb=max(policy.tomb, at)), "ok"
    if call == "post":
        if not policy.there:
            return policy, "absent"
        return replace(policy, post=max(policy.post, at)), "ok"
    raise AssertionError(call)


# A program yields (policy, call, time) and is sent what came of it: a string, or for "head" what the policy has.
Result = tuple[Any, ...]
Program = Generator[tuple[int, str, float], Any, Result]

FAULT = ""
"""A rule to leave out, to see that the checks find it: read-b-first, no-second-look,
later-tombstone, post-b-first, delete-a-first, plain-delete.
"""


def read() -> Program:
    first, second = (B, A) if FAULT == "read-b-first" else (A, B)
    one = yield first, "head", 0
    other = yield second, "head", 0
    have = {first: one, second: other}
    return merged(have[A], have[B])


def merged(a: Policy, b: Policy) -> Result:
    found = []
    if a.there and a.data > b.tomb:
        found.append((a.data, a.meta))
    if b.there and b.data > a.tomb:
        found.append((b.data, b.meta))
    # Within a policy a POST counts for data that are older, so it does here, whichever of both has it.
    return ("found", max(found)[0], max(meta for _, meta in found)) if found else ("gone",)


def put(at: float, into: int) -> Program:
    other = 1 - into
    seen = yield other, "head", 0
    assert isinstance(seen, Policy)
    if max(seen.data if seen.there else 0, seen.tomb) >= at:
        return ("superseded",)
    answer = yield into, "put", at
    return (answer,)


def delete(at: float, _into: int) -> Program:
    later = at + (0 if FAULT == "plain-delete" else MOMENT)
    calls = [(B, later), (A, at)]
    if FAULT == "delete-a-first":
        calls.reverse()
    one = yield calls[0][0], "delete", calls[0][1]
    other = yield calls[1][0], "delete", calls[1][1]
    return ("superseded",) if "superseded" in (one, other) else ("ok",)


def post(at: float, _into: int) -> Program:
    order = (B, A) if FAULT == "post-b-first" else (A, B)
    one = yield order[0], "post", at
    other = yield order[1], "post", at
    return ("ok",) if "ok" in (one, other) else ("absent",)


def expire(_at: float, _into: int) -> Program:
    """Delete what is found at its own time, as the expirer does."""
    found = yield from read()
    if found[0] == "gone":
        return ("absent",)
    return (yield from delete(found[2], _into))


def get(_at: float, _into: int) -> Program:
    return (yield from read())


def mover() -> Program:
    while True:
        a = yield A, "head", 0
        assert isinstance(a, Policy)
        if not a.there:
            return ("ok",)
        # The copy is a moment newer, so that neither A's tombstone nor its row, whenever they come, count against it.
        yield B, "put", a.data + (0 if FAULT == "same-time" else MOMENT)
        if a.meta > a.data:
            yield B, "post", a.post
        if FAULT != "no-second-look":
            again = yield A, "head", 0
            if again != a:
                continue
        yield A, "delete", a.data + (0.5 if FAULT == "later-tombstone" else 0)


CLIENTS: dict[str, Callable[[float, int], Program]] = {
    "put": put,
    "delete": delete,
    "post": post,
    "get": get,
    "expire": expire,
    "mover": lambda _at, _into: mover(),
}


@dataclass(frozen=True)
class Op:
    kind: str
    into: int


class Run:
    """One schedule, replayed from its choices; programs can't be copied."""

    def __init__(self, ops: tuple[Op, ...], start: tuple[Policy, Policy], kills: int) -> None:
        self.policies = list(start)
        self.ops = ops
        self.programs: dict[int, Any] = {}
        self.pending: dict[int, tuple[int, str, float]] = {}
        self.results: dict[int, Result] = {}
        self.began: dict[int, frozenset[int]] = {}
        self.dead: set[int] = set()
        self.kills = kills
        self._begin_mover()

    def _begin_mover(self) -> None:
        self.programs[-1] = mover()
        self.pending[-1] = next(self.programs[-1])

    def choices(self) -> list[tuple[str, int]]:
        out = []
        for who in (-1, *range(len(self.ops))):
            if who in self.pending:
                out.append(("step", who))
                if self.kills and (who == -1 or self.ops[who].kind != "get"):
                    out.append(("kill", who))
            elif who >= 0 and who not in self.began:
                out.append(("begin", who))
        return out

    def take(self, choice: tuple[str, int]) -> None:
        what, who = choice
        if what == "begin":
            self.began[who] = frozenset(done for done in self.results)
            op = self.ops[who]
            # The time is taken when the request begins; the clocks of proxies are no more apart than this.
            self.programs[who] = CLIENTS[op.kind](10 + len(self.began), op.into)
            self.times = getattr(self, "times", {}) | {who: 10 + len(self.began)}
            self.pending[who] = next(self.programs[who])
            return
        if what == "kill":
            self.kills -= 1
            del self.pending[who]
            if who == -1:
                self._begin_mover()
            else:
                self.dead.add(who)
            return
        policy, call, at = self.pending.pop(who)
        if call == "head":
            answer: object = self.policies[policy]
        else:
            self.policies[policy], answer = do(self.policies[policy], call, at)
        try:
            self.pending[who] = self.programs[who].send(answer)
        except StopIteration as end:
            if who >= 0:
                self.results[who] = end.value
                if self.ops[who].kind == "get":
                    self.check(end.value, self.began[who], f"GET {who}")

    def key(self) -> Result:
        frames = tuple(
            (who, self.pending[who], *(sorted((k, str(v)) for k, v in (g.gi_frame.f_locals.items())))[:8], inner(g))
            for who, g in sorted(self.programs.items())
            if who in self.pending
        )
        return (
            tuple(self.policies),
            frames,
            tuple(sorted(self.results.items())),
            tuple(sorted(self.began.items(), key=lambda x: x[0])),
            tuple(sorted(self.dead)),
            self.kills,
            tuple(sorted(getattr(self, "times", {}).items())),
        )

    def check(self, seen: Result, known: frozenset[int], what: str) -> None:
        """What was read must be no older than what had been acknowledged to anybody before."""
        times = getattr(self, "times", {})
        acked = {who for who in known if self.results[who] == ("ok",)}
        puts = [times[w] for w in acked if self.ops[w].kind == "put"]
        deletions = [times[w] for w in acked if self.ops[w].kind == "delete"]
        expired = [w for w in acked if self.ops[w].kind == "expire"]
        if seen[0] == "found" and expired and not any(self.ops[w].kind in ("put", "post") for w in self.began):
            raise Wrong(f"{what}: came back after it expired")
        begun_deletions = [
            times[w] if self.ops[w].kind == "delete" else 99
            for w in self.began
            if self.ops[w].kind in ("delete", "expire")
        ]
        issued = {1} | {times[w] for w in self.began if self.ops[w].kind == "put"}
        least = max([*puts, 1])
        if seen[0] == "gone":
            if not any(d >= least for d in begun_deletions):
                raise Wrong(f"{what}: lost, with {least} acknowledged")
            return
        _, data, meta = seen
        data = int(data)
        if data not in issued:
            raise Wrong(f"{what}: {data} was never written")
        if data < least:
            raise Wrong(f"{what}: {data} is older than {least}, which was acknowledged")
        if any(d >= data for d in deletions):
            raise Wrong(f"{what}: {data} came back after a deletion at {max(deletions)}")
        for w in acked:
            if self.ops[w].kind == "post":
                base = [1, *(times[p] for p in self.began[w] if self.ops[p].kind == "put")]
                if data <= max(base) and meta < times[w]:
                    raise Wrong(f"{what}: metadata {meta}, {times[w]} was acknowledged")


def inner(g: Any) -> Result:
    sub = g.gi_yieldfrom
    line = (g.gi_frame.f_lineno,)
    return (
        line
        if sub is None
        else (*line, sub.gi_frame.f_lineno, *(sorted((k, str(v)) for k, v in sub.gi_frame.f_locals.items())))
    )


class Wrong(Exception):
    """Something was lost, came back or is older than what was acknowledged."""


def explore(ops: tuple[Op, ...], start: tuple[Policy, Policy], kills: int) -> int:
    seen: set[Result] = set()
    stack: list[tuple[tuple[str, int], ...]] = [()]
    while stack:
        path = stack.pop()
        run = Run(ops, start, kills)
        try:
            for choice in path:
                run.take(choice)
            key = run.key()
            if key in seen:
                continue
            seen.add(key)
            choices = run.choices()
            if not choices:
                run.check(merged(*run.policies), frozenset(run.results), "the end")
                # One more pass of the mover, as a late upload needs, leaves nothing in A and changes nothing.
                before = merged(*run.policies)
                run._begin_mover()
                while -1 in run.pending:
                    run.take(("step", -1))
                if run.policies[A].there:
                    raise Wrong("something is left in A")
                # A POST that came before older data, from a late upload, applies to them once they are beside it.
                after = merged(*run.policies)
                if (after[0], *map(int, after[1:2])) != (before[0], *map(int, before[1:2])) or after[2:] < before[2:]:
                    raise Wrong(f"a pass changed {before} to {merged(*run.policies)}")
                run.check(merged(*run.policies), frozenset(run.results), "after a pass")
                # A's tombstones are forgotten one day: nothing that was deleted in both may come back by that.
                is_deleted = not any(
                    run.ops[w].kind in ("delete", "expire") and w not in run.results for w in run.began
                )
                if after[0] == "gone" and is_deleted and merged(Policy(), run.policies[B])[0] != "gone":
                    raise Wrong("comes back when A's tombstone is forgotten")
        except Wrong as wrong:
            raise Wrong(f"{[(o.kind, 'AB'[o.into]) for o in ops]} {path}: {wrong}") from None
        stack.extend((*path, choice) for choice in choices)
    return len(seen)


def explore_all(clients: int, kills: int, fault: str = "", only: Collection[str] = tuple(CLIENTS)) -> int:
    """Explore all that so many clients can do with so many kills, with a rule left out; return the number of states.
    They do `only` things of these kinds.

    Raises Wrong with the steps that lead to it.
    """
    global FAULT
    FAULT = fault
    kinds = [Op(kind, into) for kind in only for into in (A, B) if kind == "put" or into == B]
    starts = ((Policy(data=1), Policy()), (Policy(data=1, post=2), Policy()))
    return sum(
        explore(ops, start, kills)
        for ops in itertools.combinations_with_replacement(kinds, clients)
        for start in starts
    )
