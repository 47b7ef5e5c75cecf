"""Groups pieces of large objects into runs: consecutive pieces without decisions between them are read as one stream.

The kind of each piece, and whether the sender may read it, is decided here before its run begins. Where a run ends
early, that piece is read by itself, from the byte at which the run stopped, from any replica and with the usual errors;
after it another run begins.

Fault model: any piece may turn out to be missing, another object, a manifest, or on a failing device: all of that ends
a run, and the reading of that piece by itself finds the cause. A large object of which every piece ends its run is read
without runs from the third one on. A client that takes nothing has as little waiting as with one object.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from swiftlet.api.context.policy_lookup import container_of
from swiftlet.api.http.reserved import is_reserved
from swiftlet.api.reading.readables import LINK_TARGET, OBJECT_MANIFEST, STATIC_LARGE_OBJECT, Reader, Stored
from swiftlet.api.reading.segment_stream import Source
from swiftlet.boundaries.objects import Marks, RunEnd, RunPart
from swiftlet.errors import SwiftletError
from swiftlet.placement.runs import ClusterRun, RunPlan
from swiftlet.policy_moves import Phase
from swiftlet.segments import Piece

RUN_PIECES = 256
"""The largest number of pieces in one run."""
RUN_BYTES = 256 << 20
"""A run gets no further piece once it has so many bytes: what was decided of its pieces should not become outdated."""
GATHER_S = 0.005
"""A run gets no further piece once it took so many seconds to gather: nested manifests have to be fetched."""
_FUTILE = 3
"""After so many runs in a row that ended at their first piece, which a run can't read, no more are begun."""
MARKS = Marks(metadata=(OBJECT_MANIFEST,), sysmeta=(STATIC_LARGE_OBJECT, LINK_TARGET))

OpenPiece = Callable[[Piece], Awaitable[Source]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive pieces for one run."""

    pieces: Sequence[Piece]
    parts: Sequence[RunPart]

    @property
    def bytes(self) -> int:
        """Return the bytes of all parts."""
        return sum(piece.bytes for piece in self.pieces)


class Runs:
    """The runs of one read of a large object."""

    def __init__(self, reader: Reader, open_piece: OpenPiece) -> None:
        """Start without runs; `open_piece` reads a piece by itself."""
        self._reader = reader
        self._open_piece = open_piece
        self._futile = 0

    def plan(self) -> RunPlan:
        """Return an empty plan for one run."""
        return self._reader.call.api.objects.runs.plan()

    async def add(self, plan: RunPlan, piece: Piece) -> bool:
        """Add a piece to a run; return False for one that has to be read by itself, whatever the reason."""
        segment, reader = piece.segment, self._reader
        path = segment.path
        if path is None or self._futile >= _FUTILE or not (segment.raw or segment.etag is not None):
            return False
        try:
            if not is_reserved(path):
                await reader.call.access.require("GET", path)
            container = await container_of(reader.call.api, path)
            move = reader.call.api.options.policies.move_in_force(container.move)
            if move is not None and move.phase is not Phase.SETTLED:
                return False
            key = reader.call.api.objects.key(path, container.policy)
            return plan.add(key, piece.start, piece.stop, segment.size, segment.etag, not segment.raw)
        except SwiftletError:
            return False  # Reading the piece by itself will raise the error.

    async def batched(self, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece | Batch, None]:
        """Yield the same pieces, some of them grouped. The first one never is, so that its errors have a status."""
        async with aclosing(pieces):
            first = await anext(pieces, None)
            if first is not None:
                yield first
            while True:
                plan = self.plan()
                found, after, error = await self._gather(pieces, plan)
                if len(found) == 1:
                    yield found[0]
                elif found:
                    yield Batch(found, plan.parts)
                if error is not None:
                    raise error
                if after is not None:
                    yield after
                elif not found:
                    return

    async def _gather(
        self, pieces: AsyncGenerator[Piece, None], plan: RunPlan
    ) -> tuple[list[Piece], Piece | None, BaseException | None]:
        """Return pieces for one run, a piece after it that is read by itself, and an error that came after that."""
        found: list[Piece] = []
        size, end = 0, time.monotonic() + GATHER_S
        while len(found) < RUN_PIECES and size < RUN_BYTES and (not found or time.monotonic() < end):
            try:
                piece = await anext(pieces, None)
            except SwiftletError as error:
                return found, None, error
            if piece is None:
                break
            if not await self.add(plan, piece):
                return found, piece, None
            found.append(piece)
            size += piece.bytes
        return found, None, None

    async def open(self, unit: Piece | Batch) -> Source:
        """Open a single piece, which raises what is wrong with it; return None for others."""
        if isinstance(unit, Batch):
            return RunSource(self, unit, self.begin(unit.parts))
        return await self._open_piece(unit)

    def begin(self, parts: Sequence[RunPart]) -> ClusterRun:
        """Begin a run of these parts."""
        return self._reader.call.api.objects.runs.open(parts, MARKS)

    def ended(self, end: RunEnd) -> None:
        """Record how a run ended, which tells whether runs are of use here."""
        self._futile = self._futile + 1 if end.done == 0 and end.error is None else 0

    async def resume(self, piece: Piece, end: RunEnd) -> Source:
        """Return the rest of the piece in which a run has ended: of the same version, if it had delivered
        bytes of it.
        """
        if end.info is None:
            return await self._open_piece(piece)
        assert piece.segment.path is not None
        stored = Stored(self._reader.call, piece.segment.path, end.info)
        return await stored.open(piece.start + end.sent, piece.stop)


class RunSource:
    """The bytes of a batch of segments, read as one run."""

    def __init__(self, runs: Runs, batch: Batch, run: ClusterRun) -> None:
        """Read `batch` with `run`, which covers all of it."""
        self._runs = runs
        self._pieces = deque(batch.pieces)
        self._open: Source | None = run
        self._run: ClusterRun | None = run

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes in order; an error in a piece is raised when its turn comes."""
        while self._open is not None:
            async for chunk in self._open.chunks():
                yield chunk
            await self._open.close()
            self._open = await self._next()

    async def _next(self) -> Source | None:
        """Return what is read after the run, or after the piece, that has just been read."""
        run, self._run = self._run, None
        if run is not None:
            self._runs.ended(run.end)
            for _ in range(run.end.done):
                self._pieces.popleft()
            if not run.is_complete:
                return await self._runs.resume(self._pieces.popleft(), run.end)
        if not self._pieces:
            return None
        plan = self._runs.plan()
        for piece in self._pieces:
            if not await self._runs.add(plan, piece):
                break
        if not plan.parts:
            return await self._runs.resume(self._pieces.popleft(), RunEnd(0))
        self._run = self._runs.begin(plan.parts)
        return self._run

    async def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            await self._open.close()
