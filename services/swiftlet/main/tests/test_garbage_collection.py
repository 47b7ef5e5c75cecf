"""Garbage is looked for seldom, and not among what a process began with."""

from __future__ import annotations

import gc

from swiftlet.main.garbage_collection import NEW_VALUES, collect_garbage_seldom


def test_what_is_there_stays_and_new_values_may_be_many() -> None:
    before = gc.get_threshold()
    try:
        collect_garbage_seldom()
        assert gc.get_threshold()[0] == NEW_VALUES
        assert gc.get_freeze_count() > 1000
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
