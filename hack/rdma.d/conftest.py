"""An emulated machine may stand still for longer than a peer may be silent elsewhere, so clients wait longer here."""

from __future__ import annotations

from functools import partial

import pytest

from swiftlet.client.direct import guest, metadata
from swiftlet.testing.ways import agreement
from swiftlet.transport.native_calls import NativeSettings


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as long as services here do."""
    monkeypatch.setattr(metadata, "ANSWER_S", 120.0)
    monkeypatch.setattr(agreement, "PATIENCE_S", 600.0)
    slow = partial(NativeSettings, silence_s=20.0, answer_timeout_s=120.0, idle_timeout_s=120.0)
    monkeypatch.setattr(guest, "NativeSettings", slow)
