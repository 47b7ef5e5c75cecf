"""Decides what is to be done about a world: pure, except for new secrets that are passed in.

Which manifests are applied now and which wait, how far a StatefulSet may shrink, and what each condition says belong
here. Reading, writing, and the content of manifests don't.
"""

from swiftlet_operator.plan.actions import Actions, Event, Fresh, Patch, StatusOf
from swiftlet_operator.plan.decide import decide

__all__ = ["Actions", "Event", "Fresh", "Patch", "StatusOf", "decide"]
