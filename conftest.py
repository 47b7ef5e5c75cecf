"""For all tests: properties are held to their sentences, not to a time; machines are busy with other things."""

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from swiftlet.web import logs

# Where Python is told to keep no compiled modules, each process that a test starts would compile all of them anew:
# nearly a second of processor time, ten times for each store.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests use folders that are not installed, such as a benchmark that one tries out; last, so that they hide nothing.
sys.path.append(str(Path(__file__).parent))

# Tests are collected by the thousand and none of them is garbage: the collector would look at all of them again and
# again, which took half the time of collecting.
gc.disable()

settings.register_profile("swiftlet", deadline=None)
settings.load_profile("swiftlet")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Take back what a command that a test calls has configured: later tests of the process would log nothing."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    # What a whole module has configured stays.
    before = structlog.get_config() if structlog.is_configured() else None
    lines = logs._json_lines
    yield
    logs._json_lines = lines
    root.handlers[:] = handlers
    root.setLevel(level)
    if before is not None:
        structlog.configure(**before)
    elif structlog.is_configured():
        structlog.reset_defaults()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector work again, and leave out what was collected: it stays to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, object, object]:
    """Keep the garbage collector away while a report is made.

    A report parses the source of the test. What a collection finalizes then (a transport that a test left open, which
    is logged with a traceback) parses source too, and Python 3.11 ends the whole run with "AST constructor recursion
    depth mismatch" when one parses within the other.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if was_enabled:
            gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Let go of a test's applications.

    aiohttp keeps the last 1,024 that answered a request, and with them all that they are made of: databases, stores
    whose files are deleted and keep their room, memory of the transport, threads.
    """
    try:
        return (yield)
    finally:
        if (module := sys.modules.get("aiohttp.web_app")) is not None:
            module._cached_build_middleware.cache_clear()
