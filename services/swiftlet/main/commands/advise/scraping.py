"""Reads the metrics of running services, twice."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Sequence

from swiftlet.advice.errors import AdviceError
from swiftlet.advice.load import Load
from swiftlet.advice.observed import MAX_PAGE_BYTES, Reading, observed, parse

_TIMEOUT_S = 30.0


def watch(urls: Sequence[str], seconds: float) -> Load:
    """Return the load within so many seconds from now. AdviceError, with the address that does not answer."""
    before = [_page(url) for url in urls]
    began = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return observed(zip(before, (_page(url) for url in urls), strict=True), passed)


def _page(url: str) -> Reading:
    if not url.startswith(("http://", "https://")):
        raise AdviceError(f"--metrics {url}: write an address such as http://127.0.0.1:6211/metrics")
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the scheme was looked at
            return parse(answer.read(MAX_PAGE_BYTES).decode("utf-8", "replace"))
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise AdviceError(f"--metrics {url}: {error}") from error
