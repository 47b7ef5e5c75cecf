"""The process that a crash test kills: writes to a plain store and says what was acknowledged.

Arguments: the device, how many operations, a seed. Prints one line per acknowledged operation, at once. What it
does is a function of the seed, so that the test knows what each line stands for.
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swiftlet.errors import NotFound, Superseded
from swiftlet.store.plain import PlainStore
from swiftlet.store.protocol import Store
from swiftlet.testing.store.conformance import NAME, at, key_of, post, put

KEYS = 5


@dataclass(frozen=True)
class Step:
    """One operation of the child."""

    number: int
    kind: str
    key: int

    @property
    def data(self) -> bytes:
        """What a PUT writes: tells its step and has its own length."""
        return f"step {self.number};".encode() * (self.number * 37 % 900 + 1)

    def apply(self, store: Store) -> None:
        """Carry it out; refusals are acknowledgements too."""
        key = key_of(self.key)
        with suppress(NotFound, Superseded):
            if self.kind == "put":
                put(store, key, self.number, self.data)
            elif self.kind == "post":
                post(store, key, self.number, self.number, step=str(self.number))
            else:
                store.delete(key, at(self.number), NAME)


def plan(count: int, seed: int) -> list[Step]:
    """The child's operations."""
    chance = random.Random(seed)
    kinds = ["put", "put", "put", "post", "post", "delete"]
    return [Step(number, chance.choice(kinds), chance.randrange(KEYS)) for number in range(1, count + 1)]


def main() -> None:
    """Write until done or killed."""
    store = PlainStore(Path(sys.argv[1]))
    for step in plan(int(sys.argv[2]), int(sys.argv[3])):
        step.apply(store)
        print(step.number, flush=True)
    store.close()


if __name__ == "__main__":
    main()
