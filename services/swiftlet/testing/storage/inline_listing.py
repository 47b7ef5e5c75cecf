"""Listing databases whose work is done by the event loop's own thread, for tests of what is above them.

A store of `swiftlet.listing.pool` starts up to a dozen threads, and passes each read and each transaction to one of
them: together that takes a third of the processor time of a test that makes a cluster for a few requests. Databases,
transactions and their order are the same here; only nothing runs beside the event loop. What threads can do to each
other is a matter of the tests of `swiftlet.listing`, of its servers and of whole stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from swiftlet.folds import FOLD_AFTER_S
from swiftlet.listing.commits import Commits
from swiftlet.listing.handle import Limits, Workers
from swiftlet.listing.late_sync import LateSyncs
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.thread_pool import Done, ThreadPool
from swiftlet.listing.updates import UpdateTable
from swiftlet.names import HashPath

T = TypeVar("T")
P = ParamSpec("P")


class InlinePool(ThreadPool):
    """A thread pool without threads: a job is done at once, and its outcome told in the loop's next turn."""

    def __init__(self) -> None:
        super().__init__(0, "inline")

    def do(self, job: Callable[[], Any], done: Done) -> None:
        """Behaves as the base class does to its caller."""
        value, error = None, None
        try:
            value = job()
        except BaseException as raised:
            error = raised
        asyncio.get_running_loop().call_soon(done, value, error)


class InlineExecutor(Executor):
    """An executor without threads: what is submitted is done at once."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return a future that has its result already."""
        answer: Future[T] = Future()
        try:
            answer.set_result(fn(*args, **kwargs))
        except BaseException as error:
            answer.set_exception(error)
        return answer


class InlineListingStore(ListingStore):
    """The listing databases of one device, without threads."""

    def __init__(
        self,
        root: Path,
        hash_path: HashPath,
        limits: Limits | None = None,
        device: str = "",
        make_table: Callable[[Path], UpdateTable] | None = None,
        fold_after_s: float = FOLD_AFTER_S,
    ) -> None:
        """Arguments and errors are those of the base class."""
        super().__init__(root, hash_path, limits, device, make_table, fold_after_s)
        # Those of the base class have not started a thread yet.
        self._writers = self._syncers = InlinePool()
        self._readers = InlineExecutor()
        self._workers = Workers(Commits(self._writers), LateSyncs(self._syncers, 1), self._readers)

    async def _release(self) -> None:
        self._shut_down()
