"""What is to be done about a world: pure, but for fresh secrets that are handed in.

What belongs here: which manifests are applied now and which wait, how far a StatefulSet may shrink, what each
condition says. What does not: reading, writing, and how a manifest looks.
"""

from swiftlet_operator.plan.actions import Actions, Event, Fresh, Patch, StatusOf
from swiftlet_operator.plan.decide import decide

__all__ = ["Actions", "Event", "Fresh", "Patch", "StatusOf", "decide"]
